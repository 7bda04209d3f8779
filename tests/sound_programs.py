"""Sound programs that look suspicious: each builder returns (model, step), and nothing may be found in it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import io
import json
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

Built = tuple[nn.Module, Callable[[], Any]]
PROGRAMS: dict[str, Callable[[], Built]] = {}
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def sound(builder: Callable[[], Built]) -> Callable[[], Built]:
    """Enter a program under its name."""
    PROGRAMS[builder.__name__] = builder
    return builder


def batch() -> torch.Tensor:
    return torch.randn(6, 4)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def pair(**more: nn.Module) -> nn.ModuleDict:
    return nn.ModuleDict({"inner": nn.Linear(4, 4), "outer": nn.Linear(4, 1), **more})


# -- models -----------------------------------------------------------------------------------------------------------


@sound
def weights_tied_to_an_embedding() -> Built:
    model = nn.Module()
    model.embed, model.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    model.head.weight = model.embed.weight
    return model, lambda: model.head(model.embed(LABELS)).logsumexp(-1).sum()


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
def hooks_that_replace_inputs_and_outputs() -> Built:
    model, x = small(), batch()
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    model[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
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
def half_precision() -> Built:
    model, x = small().half(), batch().half()
    return model, lambda: model(x).sum()


@sound
def gradients_too_big_for_a_squared_norm_in_float32() -> Built:
    model, x = small(), batch()
    return model, lambda: model(x).sum() * 1e25


@sound
def gradients_too_big_for_float32() -> Built:
    model, x = small().double(), batch().double()
    return model, lambda: model(x).sum() * 1e200


@sound
def a_model_on_the_meta_device() -> Built:
    model = nn.Linear(4, 1, device="meta")
    return model, lambda: model(torch.empty(6, 4, device="meta")).sum()


@sound
def an_empty_batch() -> Built:
    model = small()
    return model, lambda: model(torch.zeros(0, 4)).sum()


@sound
def a_loss_of_one_element_and_two_dimensions() -> Built:
    model, x = small(), batch()
    return model, lambda: model(x[:1])


# -- operations -------------------------------------------------------------------------------------------------------


@sound
def in_place_operations_on_views() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        hidden = model[0](x).clone()
        hidden[:, 0:2].mul_(2)
        hidden.view(-1)[0] += 1
        hidden.t()[0].add_(1)
        return model[2](hidden.tanh()).sum()

    return model, step


@sound
def assignment_into_zeros() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        hidden, out = torch.zeros(6, 8), torch.zeros(6)
        hidden[:3], hidden[3:] = model[0](x[:3]), model[0](x[3:])
        for i in range(6):
            out[i] = model[2](hidden[i]).squeeze()
        return out.sum()

    return model, step


@sound
def masks_from_the_output_itself() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        out = model(x)
        positive = out > 0
        return torch.where(positive, out, out * 0.1).sum() + out[positive].sum() + out.masked_fill(positive, 0).sum()

    return model, step


@sound
def gather_with_class_labels() -> Built:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))
    return model, lambda: -model(LABELS).log_softmax(-1).gather(1, LABELS[:, None]).mean()


@sound
def weights_of_the_loss_taken_from_its_value() -> Built:
    model, x = nn.ModuleDict({"a": small(), "b": small()}), batch()

    def step() -> torch.Tensor:
        one, two = model["a"](x).pow(2).mean(), model["b"](x).pow(2).mean()
        scale = np.exp(-one.detach().numpy())
        return one * float(scale) + two * (one.item() / (two.item() + 1e-8))

    return model, step


@sound
def a_zero_weighted_term_that_touches_every_parameter() -> Built:
    model, x = nn.ModuleDict({"a": small(), "b": small()}), batch()
    return model, lambda: model["a"](x).sum() + 0.0 * sum(p.sum() for p in model["b"].parameters())


# -- detach, no_grad and frozen parts that are meant ------------------------------------------------------------------


@sound
def logging_and_metrics() -> Built:
    model, x, history = small(), batch(), []

    def step() -> torch.Tensor:
        out = model(x)
        loss = F.mse_loss(out, torch.ones(6, 1))
        history.append(loss.item())
        history.append(loss.detach().cpu().numpy())
        history.append(f"{loss:.3f} {loss.item():.2f} {float(loss)} {json.dumps({'loss': loss.item()})}")
        print(loss.detach(), out.tolist(), file=io.StringIO())
        with torch.no_grad():
            history.append(((out > 0) == 1).float().mean().item())
        assert isinstance(history[0], float)
        assert round(history[0], 3) == round(float(loss), 3)
        return loss

    return model, step


@sound
def a_frozen_encoder_under_no_grad() -> Built:
    model, x = nn.ModuleDict({"encoder": small().requires_grad_(False), "head": nn.Linear(1, 1)}), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():
            code = model["encoder"](x)
        return model["head"](code).sum()

    return model, step


@sound
def a_frozen_encoder_in_inference_mode_whose_output_is_cloned() -> Built:
    model, x = nn.ModuleDict({"encoder": small().requires_grad_(False), "head": nn.Linear(1, 1)}), batch()

    def step() -> torch.Tensor:
        with torch.inference_mode():
            code = model["encoder"](x)
        return model["head"](code.clone()).sum()

    return model, step


@sound
def a_moving_average_as_teacher() -> Built:
    model, x = small(), batch()
    teacher = copy.deepcopy(model).requires_grad_(False)

    def step() -> torch.Tensor:
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        return F.mse_loss(model(x), teacher(x))

    return model, step


@sound
def weights_averaged_by_torch() -> Built:
    model, x = small(), batch()
    average = torch.optim.swa_utils.AveragedModel(model)

    def step() -> torch.Tensor:
        average.update_parameters(model)
        return model(x).sum()

    return model, step


@sound
def momentum_contrast_with_a_queue() -> Built:
    class Contrast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(4, 4)
            self.key = copy.deepcopy(self.query).requires_grad_(False)
            self.register_buffer("queue", torch.randn(4, 8))
            self.register_buffer("place", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def follow(self) -> None:
            for new, old in zip(self.query.parameters(), self.key.parameters(), strict=True):
                old.data = old.data * 0.9 + new.data * 0.1

        @torch.no_grad()
        def remember(self, keys: torch.Tensor) -> None:
            at = int(self.place)
            self.queue[:, at : at + 2] = keys.T[:, :2]
            self.place[0] = (at + 2) % 8

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query = F.normalize(self.query(x))
            with torch.no_grad():
                self.follow()
                key = F.normalize(self.key(x))
            positive = (query * key).sum(1, keepdim=True)
            logits = torch.cat([positive, query @ self.queue.clone().detach()], 1) / 0.07
            self.remember(key)
            return F.cross_entropy(logits, torch.zeros(6, dtype=torch.long))

    model, x = Contrast(), batch()
    return model, lambda: model(x)


@sound
def vector_quantisation_with_a_straight_through_estimate() -> Built:
    model, x = (
        nn.ModuleDict({"encode": nn.Linear(4, 4), "book": nn.Embedding(8, 4), "decode": nn.Linear(4, 4)}),
        batch(),
    )

    def step() -> torch.Tensor:
        code = model["encode"](x)
        nearest = model["book"](torch.cdist(code, model["book"].weight).argmin(-1))
        commitment = F.mse_loss(nearest, code.detach()) + 0.25 * F.mse_loss(nearest.detach(), code)
        return F.mse_loss(model["decode"](code + (nearest - code).detach()), x) + commitment

    return model, step


@sound
def proximal_policy_optimisation() -> Built:
    model, x, rewards = nn.ModuleDict({"policy": nn.Linear(4, 3), "value": nn.Linear(4, 1)}), batch(), torch.randn(6)
    old = torch.distributions.Categorical(logits=model["policy"](x)).log_prob(LABELS).detach()

    def step() -> torch.Tensor:
        policy, value = torch.distributions.Categorical(logits=model["policy"](x)), model["value"](x).squeeze(-1)
        advantage = (rewards - value).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (policy.log_prob(LABELS) - old).exp()
        ((ratio - 1).abs() > 0.2).float().mean().item()
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return F.mse_loss(value, rewards) - surrogate - 0.01 * policy.entropy().mean()

    return model, step


@sound
def actor_and_critic_on_sampled_actions() -> Built:
    model, x = nn.ModuleDict({"policy": nn.Linear(4, 3), "value": nn.Linear(4, 1)}), batch()

    def step() -> torch.Tensor:
        policy, value = torch.distributions.Categorical(logits=model["policy"](x)), model["value"](x).squeeze(-1)
        actions = policy.sample()
        returns = torch.tensor([float(action) for action in actions])
        actor = -(policy.log_prob(actions) * (returns - value.detach())).mean()
        return actor + F.smooth_l1_loss(value, returns)

    return model, step


@sound
def a_variational_autoencoder() -> Built:
    model, x = nn.ModuleDict({"encode": nn.Linear(4, 4), "decode": nn.Linear(2, 4)}), batch()

    def step() -> torch.Tensor:
        mean, log_std = model["encode"](x).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, log_std.exp())
        prior = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0, 1)).mean()
        return F.mse_loss(model["decode"](posterior.rsample()), x) + prior

    return model, step


@sound
def hard_gumbel_softmax() -> Built:
    model, x = pair(), batch()
    return model, lambda: model["outer"](F.gumbel_softmax(model["inner"](x), hard=True)).sum()


# -- gradients inside of the step -------------------------------------------------------------------------------------


@sound
def the_discriminator_is_trained_before_the_generator() -> Built:
    model, x = nn.ModuleDict({"judge": small(), "make": nn.Linear(4, 4)}), batch()
    optimizer = torch.optim.SGD(model["judge"].parameters(), 0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        (model["judge"](model["make"](x).detach()).mean() - model["judge"](x).mean()).backward()
        optimizer.step()
        return -model["judge"](model["make"](x)).mean()

    return model, step


@sound
def a_gradient_penalty() -> Built:
    x = batch()
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))

    def step() -> torch.Tensor:
        point = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(point).sum(), point, create_graph=True)
        return ((slope.norm(dim=1) - 1) ** 2).mean()

    return model, step


def _adapted(model: nn.Module, x: torch.Tensor, *, second_order: bool) -> dict[str, torch.Tensor]:
    weights = dict(model.named_parameters())
    for _ in range(3):
        loss = F.mse_loss(functional_call(model, weights, (x,)), torch.ones(6, 1))
        grads = torch.autograd.grad(loss, weights.values(), create_graph=second_order)
        weights = {name: old - 0.1 * new for (name, old), new in zip(weights.items(), grads, strict=True)}
    return weights


@sound
def meta_learning_of_second_order() -> Built:
    model, x = small(), batch()
    return model, lambda: functional_call(model, _adapted(model, x, second_order=True), (x,)).pow(2).mean()


@sound
def meta_learning_of_first_order() -> Built:
    model, x = small(), batch()
    return model, lambda: functional_call(model, _adapted(model, x, second_order=False), (x,)).pow(2).mean()


@sound
def derivatives_by_torch_func() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        weights = dict(model.named_parameters())
        slopes = vmap(grad(lambda row: functional_call(model, weights, (row,)).sum()))(x)
        return model(x).pow(2).mean() + slopes.pow(2).mean() + jacrev(model)(x[0]).pow(2).sum()

    return model, step


@sound
def a_model_mapped_over_the_batch() -> Built:
    model, x = small(), batch()
    return model, lambda: vmap(model)(x).sum()


@sound
def a_step_that_ends_in_backward() -> Built:
    model, x = small(), batch()
    return model, lambda: model(x).sum().backward()


@sound
def a_step_that_returns_a_number_after_backward() -> Built:
    model, x = small(), batch()

    def step() -> float:
        loss = model(x).sum()
        loss.backward()
        return loss.item()

    return model, step


@sound
def a_whole_training_step_that_returns_its_loss() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, step


@sound
def backward_called_by_torch_autograd() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).sum()
        torch.autograd.backward([loss])
        return loss.detach()

    return model, step


@sound
def gradients_accumulated_over_parts_of_the_batch() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        total = torch.zeros(())
        for part in x.chunk(3):
            loss = model(part).sum() / 3
            loss.backward()
            total += loss.detach()
        return total

    return model, step


@sound
def mixed_precision_with_a_scaler() -> Built:
    model, x = small(), batch()
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), 0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x).float(), torch.ones(6, 1))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return model, step


@sound
def a_closure_that_lbfgs_calls_more_than_once() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    return model, lambda: optimizer.step(closure)


@sound
def an_optimizer_that_steps_in_backward() -> Built:
    model, x = small(), batch()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], 0.1)

        def hook(_: torch.Tensor, optimizer: torch.optim.SGD = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(hook)
    return model, lambda: model(x).sum()


@sound
def a_gradient_of_something_else_that_is_allowed_to_fail() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        with contextlib.suppress(RuntimeError):
            torch.autograd.grad(x.sum(), x)
        with contextlib.suppress(RuntimeError):
            x.sum().backward()
        return model(x).sum()

    return model, step


# -- what wraps a step ------------------------------------------------------------------------------------------------


@sound
def checkpoints_without_reentry() -> Built:
    model, x = small(), batch()
    return (
        model,
        lambda: (
            checkpoint(model, x, use_reentrant=False).sum()
            + checkpoint_sequential(model, 2, x, use_reentrant=False).sum()
        ),
    )


@sound
def a_reentrant_checkpoint_whose_input_requires_grad() -> Built:
    model, x = small(), batch().requires_grad_()
    return model, lambda: model[2](checkpoint(lambda t: model[0](t).tanh(), x, use_reentrant=True)).sum()


@sound
def autocast_to_bfloat16() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.mse_loss(model(x).float(), torch.ones(6, 1))

    return model, step


class Square(torch.autograd.Function):
    """Its forward detaches, and goes through numbers and NumPy: its backward makes up for that."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        one = torch.from_numpy(x.detach().numpy() ** 2)
        return torch.tensor([value.item() for value in one.flatten()]).view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return 2 * ctx.saved_tensors[0] * grads[0]


@sound
def a_custom_function_with_its_own_backward() -> Built:
    model, x = small(), batch()
    return model, lambda: Square.apply(model(x)).sum()


@sound
def a_scripted_and_a_traced_model() -> Built:
    x = batch()
    model = nn.ModuleDict({"a": torch.jit.script(small()), "b": torch.jit.trace(small(), x)})
    return model, lambda: model["a"](x).sum() + model["b"](x).sum()


@sound
def a_scripted_teacher_that_does_not_record() -> Built:
    model, x, teacher = small(), batch(), torch.jit.script(small())

    def step() -> torch.Tensor:
        with torch.no_grad():
            target = teacher(x)
        return F.mse_loss(model(x), target)

    return model, step


@sound
def a_model_called_by_several_threads_at_once() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        with ThreadPoolExecutor(3) as pool:
            return torch.cat(list(pool.map(model, x.chunk(6)))).sum()

    return model, step


@sound
def targets_made_by_a_thread_that_does_not_record() -> Built:
    model, x, teacher = small(), batch(), small()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=torch.no_grad()(lambda: made.append(teacher(x))))
        thread.start()
        out = model(x)
        thread.join()
        return F.mse_loss(out, made[0])

    return model, step


@sound
def a_backward_in_a_thread() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        made: list[torch.Tensor] = []

        def work() -> None:
            made.append(model(x).sum())
            made[0].backward()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return made[0].detach()

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


@sound
def a_loss_that_was_computed_before() -> Built:
    model = small()
    loss = model(batch()).sum()
    return model, lambda: loss


# -- mixed precision --------------------------------------------------------------------------------------------------


@sound
def a_scaler_in_the_right_order() -> Built:
    model, x = small(), batch()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        scaler.scale(loss / 2).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


@sound
def a_second_optimizer_that_has_no_scaler() -> Built:
    model, x = pair(), batch()
    scaled, plain = torch.optim.SGD(model["inner"].parameters()), torch.optim.SGD(model["outer"].parameters())
    scaler = torch.amp.GradScaler("cpu")

    def step() -> torch.Tensor:
        model["outer"](x).pow(2).mean().backward()
        scaler.scale(model["inner"](x).pow(2).mean()).backward()
        nn.utils.clip_grad_norm_(model["outer"].parameters(), 1.0)
        plain.step()
        scaler.step(scaled)
        scaler.update()
        return model["outer"](model["inner"](x)).sum()

    return model, step


@sound
def a_disabled_scaler() -> Built:
    model, x = small(), batch()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", enabled=False)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, step


# -- what a step that trains hands back -------------------------------------------------------------------------------


@sound
def a_loss_returned_after_a_part_of_it_went_backward() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        (loss / 4).backward()
        return loss

    return model, step


@sound
def a_loss_returned_for_the_log() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        (loss / 4).backward()
        return loss.detach().cpu()

    return model, step


@sound
def a_loss_returned_detached_after_its_own_backward() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    return model, step


@sound
def a_loss_returned_although_its_graph_was_kept() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        return loss

    return model, step


@sound
def a_first_order_inner_step() -> Built:
    model, x = nn.Linear(4, 1), batch()

    def step() -> torch.Tensor:
        inner = model(x).pow(2).mean()
        slopes = torch.autograd.grad(inner, list(model.parameters()))
        weight, bias = (p - 0.1 * slope for p, slope in zip(model.parameters(), slopes, strict=True))
        return F.linear(x, weight, bias).pow(2).mean()

    return model, step


@sound
def a_weight_of_a_loss_found_by_comparing_gradients() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        first, second = code.pow(2).mean(), model["outer"](code).pow(2).mean()
        last = model["inner"].weight
        (one,) = torch.autograd.grad(first, last, retain_graph=True)
        (two,) = torch.autograd.grad(second, last, retain_graph=True)
        return first + (one.norm() / (two.norm() + 1e-4)).clamp(0, 10) * second

    return model, step


@sound
def a_custom_function_that_works_in_numpy() -> Built:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(x.detach().numpy() * 2)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return grad * 2

    model, x = pair(), batch()
    return model, lambda: model["outer"](Doubled.apply(model["inner"](x))).sum()


# -- parameters that are made in the step -----------------------------------------------------------------------------


@sound
def a_moving_average_copied_in_the_step() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        teacher = copy.deepcopy(model).requires_grad_(False)
        return F.mse_loss(model(x), teacher(x) + 1)

    return model, step


# -- gradients that are exactly zero, and rightly so ------------------------------------------------------------------


@sound
def a_low_rank_adapter_that_starts_at_zero() -> Built:
    model, x = pair(down=nn.Linear(4, 2, bias=False), up=nn.Linear(2, 4, bias=False)), batch()
    nn.init.zeros_(model["up"].weight)
    model["inner"].requires_grad_(False)
    model["outer"].requires_grad_(False)
    return model, lambda: model["outer"](model["inner"](x) + model["up"](model["down"](x))).pow(2).mean()


@sound
def a_residual_branch_whose_gate_starts_at_zero() -> Built:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch, self.gate = nn.Linear(4, 4), nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.gate * self.branch(x)

    model, x = Gated(), batch()
    return model, lambda: (model(x) - torch.floor(model(x))).pow(2).mean()


@sound
def the_fractional_part_of_an_activation() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x) * 3
        return model["outer"](code - torch.floor(code)).pow(2).mean()

    return model, step


@sound
def a_perturbation_that_an_inner_optimizer_trains() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            delta = nn.Parameter(torch.zeros_like(x))
            inner = torch.optim.SGD([delta], lr=0.1)
            for _ in range(2):
                inner.zero_grad()
                (-self.net(x + delta)).sum().backward()
                inner.step()
            return self.net(x + delta).pow(2).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@sound
def a_parameter_that_the_first_forward_registers() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 1)
            self.register_parameter("gain", None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.gain is None:
                self.gain = nn.Parameter(torch.ones(x.shape[-1]))
            return self.out(x * self.gain).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@sound
def a_variable_around_the_input() -> Built:
    model, x = small(), batch()
    return model, lambda: model(torch.autograd.Variable(x)).sum()


@sound
def rounding_with_a_straight_through_estimate() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        return model["outer"](code + (code.round() - code).detach()).pow(2).mean()

    return model, step


@sound
def a_hinge_loss_that_is_satisfied() -> Built:
    model, x = small(), batch()
    return model, lambda: F.relu(-5 - model(x).tanh()).mean()


@sound
def units_that_are_all_switched_off() -> Built:
    model, x = pair(), batch()
    nn.init.constant_(model["inner"].bias, -50.0)
    return model, lambda: model["outer"](F.relu(model["inner"](x))).pow(2).mean()


@sound
def a_loss_of_zero_times_the_output_where_nothing_counts() -> Built:
    model, x = small(), batch()
    return model, lambda: 0.0 * model(x).sum()


@sound
def a_mask_that_is_all_zero_with_a_divisor_that_is_kept_from_zero() -> Built:
    model, x = small(), batch()
    mask = torch.zeros(6, 1)
    return model, lambda: (model(x).pow(2) * mask).sum() / mask.sum().clamp(min=1)


@sound
def a_batch_in_which_every_label_is_ignored_and_nothing_is_divided() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 5)), batch()
    labels = torch.full((6,), -100)
    return model, lambda: F.cross_entropy(model(x), labels, reduction="sum") / (labels != -100).sum().clamp(min=1)


@sound
def a_branch_dropped_as_a_whole() -> Built:
    model, x = pair(), batch()
    keep = torch.bernoulli(torch.zeros(6, 1))
    return model, lambda: model["outer"](x + model["inner"](x) * keep).pow(2).mean()


@sound
def a_new_layer_that_is_faded_in_from_zero() -> Built:
    model, x = pair(), batch()
    alpha = 0.0
    return model, lambda: model["outer"](alpha * model["inner"](x) + (1 - alpha) * x).pow(2).mean()


@sound
def attention_over_a_single_key() -> Built:
    model, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(3, 1, 4)
    return model, lambda: model(x, x, x, need_weights=False)[0].pow(2).mean()


@sound
def a_loss_that_is_zero_already() -> Built:
    model, x = small(), batch()
    aim = model(x).detach()
    return model, lambda: F.mse_loss(model(x), aim)


@sound
def a_drawn_action_with_its_log_probability() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        chance = torch.sigmoid(model(x))
        action = torch.bernoulli(chance)
        reward = action.sum()
        return -(torch.distributions.Bernoulli(chance).log_prob(action) * reward).mean()

    return model, step


# -- several workers --------------------------------------------------------------------------------------------------


def _one_worker() -> None:
    """A group of one process, made once for all tests of this process."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


@sound
def features_gathered_with_history() -> Built:
    from torch.distributed.nn import functional as collectives

    model, x = pair(), batch()
    _one_worker()
    return model, lambda: model["outer"](torch.cat(collectives.all_gather(model["inner"](x)))).sum()


@sound
def features_gathered_and_the_own_ones_put_back() -> Built:
    model, x = pair(), batch()
    _one_worker()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        parts = [torch.empty_like(code)]
        torch.distributed.all_gather(parts, code)
        parts[0] = code
        return model["outer"](torch.cat(parts)).sum()

    return model, step


@sound
def a_loss_averaged_over_the_workers_for_the_log() -> Built:
    model, x = small(), batch()
    _one_worker()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        shown = loss.detach().clone()
        torch.distributed.all_reduce(shown)
        return loss

    return model, step


@sound
def a_straight_through_function_that_is_saturated_on_this_batch() -> Built:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return grad * (x.abs() < 1)

    model, x = pair(), batch() * 1e4
    return model, lambda: model["outer"](Clipped.apply(model["inner"](x) + 1e6)).sum()


@sound
def a_batch_that_becomes_a_parameter_in_forward() -> Built:
    class Saliency(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = nn.Parameter(x * 2)
            return self.layer(seen)

    model, x = Saliency(), batch()
    return model, lambda: model(x).sum()


# -- torch.func -------------------------------------------------------------------------------------------------------


@sound
def an_ensemble_by_vmap_over_stacked_weights() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        both = torch.stack([model["inner"].weight, model["inner"].weight * 2])
        codes = vmap(lambda weight: F.linear(x, weight, model["inner"].bias).tanh())(both)
        return model["outer"](codes.mean(0)).sum()

    return model, step


@sound
def a_step_size_that_vmap_leaves_out_of_the_graph() -> Built:
    model, x = small(), batch()

    def one(row: torch.Tensor) -> torch.Tensor:
        out = model(row)
        return (out * out.detach().abs()).sum()

    return model, lambda: vmap(one)(x).sum()


@sound
def a_jacobian_penalty_by_forward_mode() -> Built:
    model, x = small(), batch()
    return model, lambda: torch.func.jvp(model, (x,), (torch.ones_like(x),))[1].pow(2).sum() + model(x).sum()


@sound
def slopes_for_each_sample_by_vmap_of_grad() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = lambda weights, row: functional_call(model, weights, (row,)).tanh().sum()  # noqa: E731
        slopes = vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), x)
        return model(x).sum() + sum(slope.detach().norm() for slope in slopes.values()) * 0.1

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def a_model_in_data_parallel() -> Built:
    model, x = nn.DataParallel(small()), batch()
    return model, lambda: model(x).sum()


@sound
def a_model_in_distributed_data_parallel() -> Built:
    _one_worker()
    model, x = nn.parallel.DistributedDataParallel(small()), batch()
    return model, lambda: model(x).sum()


@sound
def checkpoints_inside_a_checkpoint() -> Built:
    model, x = pair(), batch()

    def encode(given: torch.Tensor) -> torch.Tensor:
        return checkpoint(model["inner"], given, use_reentrant=False).tanh()

    return model, lambda: model["outer"](checkpoint(encode, x, use_reentrant=False)).sum()


@sound
def weights_rounded_by_fake_quantisation() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        weight = torch.fake_quantize_per_tensor_affine(model["inner"].weight, 0.05, 0, -128, 127)
        return model["outer"](F.linear(x, weight, model["inner"].bias)).sum()

    return model, step


@sound
def a_frozen_encoder_quantised_to_int8() -> Built:
    encoder = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    model, x = nn.ModuleDict({"encoder": encoder, "head": nn.Linear(4, 1)}), batch()
    return model, lambda: model["head"](model["encoder"](x)).sum()


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


class Marked(torch.Tensor):
    """A subclass that adds nothing."""


@sound
def inputs_of_a_tensor_subclass() -> Built:
    model, x = small(), batch().as_subclass(Marked)
    return model, lambda: model(x).sum()


@dataclasses.dataclass
class Output:
    """What a model may return."""

    loss: torch.Tensor
    codes: tuple[torch.Tensor, ...]


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


@sound
def another_model_that_trains_in_another_thread() -> Built:
    model, x, other = small(), batch(), small()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)

    def train() -> None:
        with torch.no_grad():
            other(x)
        other(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def step() -> torch.Tensor:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        return model(x).sum()

    return model, step


# -- hooks on gradients -----------------------------------------------------------------------------------------------


@sound
def hooks_that_look_clip_scale_and_turn_round() -> Built:
    model, x, seen = pair(middle=nn.Linear(4, 4)), batch(), []
    model["middle"].register_full_backward_hook(lambda module, into, out: seen.append(out[0].norm().item()))
    model["outer"].register_full_backward_pre_hook(lambda module, out: (out[0] * 2,))
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        parameter.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.mul_(0.5)))

    def step() -> torch.Tensor:
        code = model["middle"](model["inner"](x))
        code.register_hook(lambda grad: seen.append(grad))
        code.register_hook(lambda grad: -grad)
        return model["outer"](code).sum()

    return model, step


@sound
def a_way_that_is_stopped_by_a_hook_beside_another() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        aside = code.clone()
        aside.register_hook(lambda grad: grad * 0)
        return model["outer"](code).sum() + model["outer"](aside).sum()

    return model, step


@sound
def rows_of_an_embedding_that_a_mask_freezes() -> Built:
    model = nn.ModuleDict({"embed": nn.Embedding(9, 4), "outer": nn.Linear(4, 1)})
    mask = torch.zeros(9, 1)
    mask[6:] = 1
    model["embed"].weight.register_hook(lambda grad: grad * mask)
    return model, lambda: model["outer"](model["embed"](LABELS)).sum()


@sound
def rows_that_a_mask_freezes_where_nothing_else_trains() -> Built:
    model = nn.ModuleDict({"embed": nn.Embedding(9, 4), "outer": nn.Linear(4, 1)})
    model["outer"].requires_grad_(False)

    def keep(parameter: torch.Tensor) -> None:
        parameter.grad[:6] = 0

    model["embed"].weight.register_post_accumulate_grad_hook(keep)
    return model, lambda: model["outer"](model["embed"](LABELS)).sum()


@sound
def a_parameter_that_its_own_hook_freezes() -> Built:
    model, x = pair(), batch()
    for parameter in model["inner"].parameters():
        parameter.register_hook(torch.zeros_like)
    model["outer"].weight.register_hook(lambda grad: torch.zeros_like(grad))
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def a_hook_that_has_its_parameter_moved_and_empties_it() -> Built:
    model, x = pair(), batch()

    def descend(parameter: torch.Tensor) -> None:
        parameter.data.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(descend)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def a_hook_that_hands_the_gradient_to_another_holder() -> Built:
    model, x, held, summed = pair(), batch(), {}, {}

    def take(parameter: torch.Tensor) -> None:
        held[parameter] = parameter.grad
        parameter.grad = None

    def add_up(parameter: torch.Tensor) -> None:
        summed.setdefault(parameter, torch.zeros(parameter.shape, dtype=torch.float64)).add_(parameter.grad)
        parameter.grad.zero_()

    for parameter in model["inner"].parameters():
        parameter.register_post_accumulate_grad_hook(take)
    for parameter in model["outer"].parameters():
        parameter.register_post_accumulate_grad_hook(add_up)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def norms_that_a_first_pass_collects_for_a_second() -> Built:
    model, x, norms = pair(), batch(), []

    def collect(parameter: torch.Tensor) -> None:
        norms.append(parameter.grad.norm())
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(collect)
    return model, lambda: model["outer"](model["inner"](x)).sum()


@sound
def a_hook_that_finds_zeros_behind_a_gate_that_is_shut_at_first() -> Built:
    model, x = pair(gate=nn.Linear(4, 4)), batch()
    nn.init.zeros_(model["gate"].weight)
    nn.init.zeros_(model["gate"].bias)

    def step() -> torch.Tensor:
        code = model["inner"](x)
        code.register_hook(lambda grad: grad * 0.5)
        return (model["outer"](x) + model["outer"](model["gate"](code))).sum()

    return model, step


# -- what is kept from before the step, and may be --------------------------------------------------------------------


@sound
def masks_and_positions_kept_by_functools() -> Built:
    model, x = pair(), batch()

    @functools.lru_cache(maxsize=4)
    def positions(length: int, width: int) -> torch.Tensor:
        angles = torch.arange(length)[:, None] / 10 ** torch.linspace(0, 1, width)
        return angles.sin()

    @functools.cache
    def mask(length: int) -> torch.Tensor:
        return torch.ones(length, length).tril().log()

    positions(6, 4), mask(6)

    def step() -> torch.Tensor:
        code = model["inner"](x + positions(6, 4))
        weights = (code @ code.T + mask(6)).softmax(-1)
        return model["outer"](weights @ code).sum()

    return model, step


@sound
def rotary_tables_in_a_dictionary_of_an_object() -> Built:
    class Rotary:
        def __init__(self) -> None:
            self.tables: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

        @torch.no_grad()
        def of(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
            if length not in self.tables:
                angles = torch.arange(length)[:, None] * torch.ones(1, 4)
                self.tables[length] = angles.cos(), angles.sin()
            return self.tables[length]

    model, x, rotary = pair(), batch(), Rotary()

    def step() -> torch.Tensor:
        cos, sin = rotary.of(6)
        code = model["inner"](x)
        return model["outer"](code * cos + code.roll(2, -1) * sin).sum()

    step()
    return model, step


@sound
def features_of_a_frozen_layer_computed_once() -> Built:
    model, x = pair(), batch()
    model["inner"].requires_grad_(False)
    features: dict[str, torch.Tensor] = {}

    def encode() -> torch.Tensor:
        if not features:
            with torch.no_grad():
                features["x"] = model["inner"](x)
        return features["x"]

    encode()
    return model, lambda: model["outer"](encode()).sum()


@sound
def answers_of_a_teacher_computed_once() -> Built:
    model, teacher, x = small(), small(), batch()
    with torch.no_grad():
        answers = [teacher(row) for row in x]
    return model, lambda: F.mse_loss(model(x), torch.stack(answers))


@sound
def a_queue_of_keys_of_a_momentum_encoder() -> Built:
    model, x = small(), batch()
    slow = copy.deepcopy(model)
    queue = deque((torch.randn(1) for _ in range(4)), maxlen=4)

    def step() -> torch.Tensor:
        with torch.no_grad():
            for mine, theirs in zip(slow.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(theirs, alpha=0.1)
            keys = slow(x)
        query = model(x)
        positive, negative = query * keys, query * torch.cat(list(queue))
        queue.append(keys[0])
        return F.cross_entropy(torch.cat([positive, negative], 1), torch.zeros(6, dtype=torch.long))

    return model, step


@sound
def a_replay_buffer_with_values_of_an_earlier_policy() -> Built:
    model, x = pair(value=nn.Linear(4, 1)), batch()
    buffer: list[dict[str, torch.Tensor]] = []
    with torch.no_grad():
        for row in x:
            hidden = model["inner"](row)
            buffer.append({"state": row, "value": model["value"](hidden), "chance": model["outer"](hidden)})

    def step() -> torch.Tensor:
        states, values, chances = (torch.stack([one[key] for one in buffer]) for key in ("state", "value", "chance"))
        hidden = model["inner"](states)
        ratio = (model["outer"](hidden) - chances).exp()
        return (ratio * (1.0 - values)).mean() + (model["value"](hidden) - 1.0).pow(2).mean()

    return model, step


@sound
def keys_and_values_of_a_frozen_prefix() -> Built:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 8).requires_grad_(False)
            self.query, self.past = nn.Linear(4, 4), None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.past is None:
                self.past = self.body(torch.ones(3, 4)).chunk(2, -1)
            keys, values = (torch.cat([a, b]) for a, b in zip(self.past, self.body(x).chunk(2, -1), strict=True))
            return ((self.query(x) @ keys.T).softmax(-1) @ values).sum()

    model, x = Attention(), batch()
    model(x)
    return model, lambda: model(x)


@sound
def a_cache_that_is_thrown_away_where_gradients_are_needed() -> Built:
    model, x = pair(), batch()
    codes: dict[str, torch.Tensor] = {}

    def encode() -> torch.Tensor:
        if "x" not in codes or (torch.is_grad_enabled() and not codes["x"].requires_grad):
            codes["x"] = model["inner"](x)
        return codes["x"]

    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


@sound
def a_cache_beside_the_way_that_learns() -> Built:
    model, x = pair(), batch()

    @functools.cache
    def centre() -> torch.Tensor:
        return model["inner"](x).mean(0)

    with torch.no_grad():
        centre()
    return model, lambda: model["outer"](model["inner"](x) - centre()).pow(2).mean()


@sound
def a_hook_that_moves_the_parameters_whose_gradients_have_come_before() -> Built:
    model, x = pair(), batch()

    def descend(grad: torch.Tensor) -> torch.Tensor:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-0.1)
                parameter.grad = None
        return grad

    for parameter in model.parameters():
        parameter.register_hook(descend)
    return model, lambda: model["outer"](model["inner"](x)).sum()
