"""Sound programs of every kind that look like no cause in particular."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import vmap
from torch.nn.utils import parametrizations, prune

from tests.programs.shared import LABELS, Built, Marked, Output, batch, pair, small, sound

# -- models -----------------------------------------------------------------------------------------------------------


@sound
def one_module_under_two_names_called_twice() -> Built:
    model, x = nn.Module(), batch()
    model.layer = nn.Linear(4, 4)
    model.alias = model.layer
    return model, lambda: model.layer(model.alias(x).relu()).sum()


@sound
def a_recurrent_cell_over_200_steps() -> Built:
    model, x = nn.ModuleDict({"cell": nn.LSTMCell(4, 4), "out": nn.Linear(4, 1)}), batch()

    def step() -> torch.Tensor:
        hidden = state = torch.zeros(6, 4)
        for _ in range(200):
            hidden, state = model["cell"](x, (hidden, state))
        return model["out"](hidden).sum()

    return model, step


@sound
def a_bidirectional_lstm() -> Built:
    model, x = nn.ModuleDict({"rnn": nn.LSTM(4, 4, 2, bidirectional=True), "out": nn.Linear(8, 1)}), batch()
    return model, lambda: model["out"](model["rnn"](x[None])[0]).sum()


@sound
def attention_in_train_mode() -> Built:
    model, x = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), batch()
    return model, lambda: model(x[None]).pow(3).sum()


@sound
def attention_in_eval_mode() -> Built:
    model, x = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), batch()
    return model, lambda: model(x[None]).pow(3).sum()


@sound
def spectral_weight_and_orthogonal_norm() -> Built:
    x = batch()
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(4, 4)), nn.utils.spectral_norm(nn.Linear(4, 4)),
        parametrizations.orthogonal(nn.Linear(4, 4)), parametrizations.weight_norm(nn.Linear(4, 1)),
    )  # fmt: skip
    return model, lambda: model(x).pow(2).sum()


@sound
def pruned_weights() -> Built:
    model, x = small(), batch()
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model, lambda: model(x).sum()


@sound
def a_module_that_changes_its_own_attributes() -> Built:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls, self.last = nn.Linear(4, 1), 0, None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = self.layer(x)
            return self.last.sum()

    model, x = Counting(), batch()
    return model, lambda: model(x)


@sound
def lists_and_dictionaries_of_parameters() -> Built:
    model, x = nn.Module(), batch()
    model.many = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
    model.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
    return model, lambda: sum((x * p).sum() for p in [*model.many, *model.named.values()])


@sound
def complex_parameters() -> Built:
    model, x = nn.Module(), batch()
    model.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.cfloat))
    return model, lambda: (x.to(torch.cfloat) @ model.weight).abs().sum()


@sound
def a_scalar_parameter_that_is_the_whole_model() -> Built:
    model = nn.Module()
    model.weight = nn.Parameter(torch.tensor(2.0))
    return model, lambda: model.weight * 3


@sound
def sparse_embeddings() -> Built:
    model = nn.ModuleDict(
        {"one": nn.Embedding(5, 3, sparse=True), "bag": nn.EmbeddingBag(5, 3, mode="sum", sparse=True)}
    )
    return model, lambda: model["one"](LABELS).sum() + model["bag"](LABELS[None]).sum()


@sound
def double_precision() -> Built:
    model, x = small().double(), batch().double()
    return model, lambda: model(x).sum()


@sound
def a_model_on_the_meta_device() -> Built:
    model = nn.Linear(4, 1, device="meta")
    return model, lambda: model(torch.empty(6, 4, device="meta")).sum()


@sound
def an_empty_batch() -> Built:
    model = small()
    return model, lambda: model(torch.zeros(0, 4)).sum()


# -- gradients inside of the step -------------------------------------------------------------------------------------


@sound
def a_model_mapped_over_the_batch() -> Built:
    model, x = small(), batch()
    return model, lambda: vmap(model)(x).sum()


# -- what wraps a step ------------------------------------------------------------------------------------------------


@sound
def a_scripted_and_a_traced_model() -> Built:
    x = batch()
    model = nn.ModuleDict({"a": torch.jit.script(small()), "b": torch.jit.trace(small(), x)})
    return model, lambda: model["a"](x).sum() + model["b"](x).sum()


@sound
def a_model_called_by_several_threads_at_once() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        with ThreadPoolExecutor(3) as pool:
            return torch.cat(list(pool.map(model, x.chunk(6)))).sum()

    return model, step


@sound
def a_compiled_model() -> Built:
    model, x = small(), batch()
    compiled = torch.compile(model, backend="aot_eager")
    return model, lambda: compiled(x).sum()


@sound
def a_model_called_in_a_thread() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: made.append(model(x)))
        thread.start()
        thread.join()
        return made[0].sum()

    return model, step


@sound
def saved_tensors_moved_and_anomalies_watched() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(), torch.autograd.detect_anomaly(check_nan=False):
            return model(x).sum()

    return model, step


@sound
def batches_from_a_generator() -> Built:
    def endless() -> Any:
        while True:
            yield batch()

    model, batches = small(), endless()
    return model, lambda: model(next(batches)).sum()


# -- torch.func -------------------------------------------------------------------------------------------------------


@sound
def an_ensemble_by_vmap_over_stacked_weights() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        both = torch.stack([model["inner"].weight, model["inner"].weight * 2])
        codes = vmap(lambda weight: F.linear(x, weight, model["inner"].bias).tanh())(both)
        return model["outer"](codes.mean(0)).sum()

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def a_model_in_data_parallel() -> Built:
    model, x = nn.DataParallel(small()), batch()
    return model, lambda: model(x).sum()


@sound
def a_sparse_matrix_times_features() -> Built:
    model, x = pair(), batch()
    graph = torch.eye(6).to_sparse()
    return model, lambda: model["outer"](torch.sparse.mm(graph, model["inner"](x))).sum()


@sound
def a_spectrum_and_back() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        spectrum = torch.fft.rfft(model["inner"](x)) * torch.polar(torch.ones(3), torch.ones(3))
        return model["outer"](torch.fft.irfft(spectrum, n=4)).sum() + torch.view_as_real(spectrum).pow(2).sum()

    return model, step


@sound
def a_lazy_layer_after_its_first_forward() -> Built:
    model, x = nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.Linear(3, 1)), batch()
    model(x)
    return model, lambda: model(x).sum()


@sound
def inputs_of_a_tensor_subclass() -> Built:
    model, x = small(), batch().as_subclass(Marked)
    return model, lambda: model(x).sum()


@sound
def a_dataclass_that_a_model_returns() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = pair()

        def forward(self, x: torch.Tensor) -> Output:
            code = self.net["inner"](x)
            return Output(self.net["outer"](code).sum(), (code.detach(),))

    model, x = Model(), batch()
    return model, lambda: model(x).loss


@sound
def an_output_of_the_kind_that_transformers_returns() -> Built:
    from transformers.modeling_outputs import SequenceClassifierOutput

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = pair()

        def forward(self, x: torch.Tensor) -> SequenceClassifierOutput:
            code = self.net["inner"](x)
            return SequenceClassifierOutput(loss=self.net["outer"](code).sum(), logits=code.detach())

    model, x = Model(), batch()
    return model, lambda: model(x)


@sound
def a_function_that_is_compiled_in_the_step() -> Built:
    model, x = small(), batch()
    return model, lambda: torch.compile(model, backend="aot_eager")(x).sum()


# -- what a step returns ----------------------------------------------------------------------------------------------


@sound
def a_loss_and_the_predictions_returned_as_a_pair() -> Built:
    model, x = small(), batch()

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        out = model(x)
        return F.mse_loss(out, torch.ones(6, 1)), out

    return model, step


@sound
def a_loss_beside_numbers_for_the_log() -> Built:
    model, x = small(), batch()

    def step() -> tuple[torch.Tensor, float, torch.Tensor]:
        loss = model(x).pow(2).mean()
        return loss, loss.item(), (model(x) > 0).float().mean()

    return model, step


@sound
def a_dictionary_with_the_loss_and_its_parts() -> Built:
    model, x = small(), batch()

    def step() -> dict[str, object]:
        out = model(x)
        return {"loss": out.pow(2).mean(), "mean": out.mean().item(), "logits": out}

    return model, step


@sound
def a_loss_that_was_computed_before_the_step_and_reaches_all() -> Built:
    model, x = small(), batch()
    loss = model(x).pow(2).mean()
    return model, lambda: loss
