"""A diagnosis leaves nothing behind: whatever the step does to the model and its process is undone."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.core.errors import GradkitError
from gradkit.state.preserve import Preserved
from tests import snapshots
from tests.telling import told

Program = Callable[[], tuple[nn.Module, Callable[[], Any], list[Any]]]
ENDINGS = ("returns", "is_interrupted")
PROGRAMS: dict[str, Program] = {}
SHORT: dict[str, str] = {}


def program(found: Program) -> Program:
    """Enter a program: (model, step, further modules and tensors that must be as before)."""
    PROGRAMS[found.__name__] = found
    return found


def falls_short(reason: str) -> Callable[[Program], Program]:
    """A program after which something is left behind today."""

    def mark(found: Program) -> Program:
        SHORT[found.__name__] = reason
        return found

    return mark


def batch() -> torch.Tensor:
    return torch.randn(6, 4)


class Net(nn.Module):
    """BatchNorm keeps statistics, Dropout draws numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout()
        self.outer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.drop(self.norm(self.inner(x))))


# -- the programs -----------------------------------------------------------------------------------------------------


@program
def a_sound_step() -> Any:
    model, x = Net(), batch()
    return model, lambda: model(x).sum(), [x]


@program
def a_step_with_a_cut_that_is_run_twice() -> Any:
    model, x = Net(), batch()
    return model, lambda: model.outer(model.drop(model.norm(model.inner(x))).detach()).sum(), [x]


@program
def a_model_that_already_has_gradients() -> Any:
    model, x = Net(), batch()
    model(x).sum().backward()
    return model, lambda: model.outer(model.inner(x).detach()).sum(), [x]


@program
def a_step_that_writes_into_the_gradient_it_finds() -> Any:
    model, x = Net(), batch()
    model(x).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        return model(x).sum()

    return model, step, [x]


@program
def a_whole_training_step_with_adam() -> Any:
    model, x = Net(), batch()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, step, [x]


@program
def several_training_steps_with_foreach_and_momentum() -> Any:
    model, x = Net(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)

    def step() -> torch.Tensor:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        return model(x).sum()

    return model, step, [x]


@program
def weights_written_in_every_common_way() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():
            model.inner.weight.mul_(2).add_(1)
            model.inner.weight[0] = 0
            model.inner.weight.view(-1)[3] = 7
            model.inner.bias.copy_(torch.ones(4))
            torch.mul(model.outer.bias, 2, out=model.outer.bias)
            torch._foreach_mul_(list(model.norm.parameters()), 3.0)
        model.inner.weight.data.clamp_(-1, 1)
        nn.init.xavier_uniform_(model.outer.weight)
        return model(x).sum()

    return model, step, [x]


@program
def a_state_dict_that_is_loaded() -> Any:
    model, x = Net(), batch()
    other = {name: value + 1 for name, value in model.state_dict().items()}

    def step() -> torch.Tensor:
        model.load_state_dict(other)
        return model(x).sum()

    return model, step, [x]


@program
def a_state_dict_whose_tensors_take_the_place_of_the_parameters() -> Any:
    model, x = Net(), batch()
    other = {name: value + 1 for name, value in model.state_dict().items()}

    def step() -> torch.Tensor:
        model.load_state_dict(other, assign=True)
        return model(x).sum()

    return model, step, [x]


@program
def parameters_modules_and_buffers_that_are_replaced_or_added() -> Any:
    model, x = Net(), batch()
    model.register_buffer("count", torch.zeros(2))

    def step() -> torch.Tensor:
        model.inner.weight = nn.Parameter(model.inner.weight.detach() * 2)
        model.drop = nn.Identity()
        model.added = nn.Linear(4, 4)
        model.extra = nn.Parameter(torch.ones(4))
        model.count = model.count + 1
        model.register_buffer("later", torch.ones(1))
        del model.norm.bias
        model.norm.bias = None
        return model(x).sum() + model.extra.sum()

    return model, step, [x]


@program
def lists_of_modules_and_parameters_that_grow() -> Any:
    model, x = nn.Module(), batch()
    model.layers = nn.ModuleList([nn.Linear(4, 4)])
    model.scales = nn.ParameterList([nn.Parameter(torch.ones(4))])

    def step() -> torch.Tensor:
        model.layers.append(nn.Linear(4, 4))
        model.scales.append(nn.Parameter(torch.ones(4)))
        return sum(layer(x).sum() for layer in model.layers) + sum(scale.sum() for scale in model.scales)

    return model, step, [x]


@program
def data_that_points_to_new_memory() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        model.inner.weight.data = model.inner.weight.data * 0.9
        return model(x).sum()

    return model, step, [x]


@program
def a_model_that_is_cast_to_double() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        model.double()
        return model(x.double()).sum()

    return model, step, [x]


@program
def data_of_another_shape() -> Any:
    model, x = nn.Linear(4, 1), batch()

    def step() -> torch.Tensor:
        model.weight.data, model.bias.data = torch.randn(2, 4), torch.zeros(2)
        return model(x).sum()

    return model, step, [x]


@program
def a_weight_whose_storage_is_set() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():
            model.inner.weight.set_(torch.zeros(4, 4))
        return model(x).sum()

    return model, step, [x]


@program
def an_embedding_with_max_norm() -> Any:
    model = nn.Sequential(nn.Embedding(5, 3, max_norm=0.1), nn.Linear(3, 1))
    return model, lambda: model(torch.tensor([0, 1, 2])).sum(), []


@program
def weights_that_are_written_through_numpy() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        loss = model(x).sum()
        weights = model.inner.weight.detach().numpy()
        weights *= 0.5
        np.clip(model.outer.weight.data.numpy(), -0.1, 0.1, out=model.outer.weight.data.numpy())
        return loss

    return model, step, [x]


@program
def statistics_kept_as_plain_attributes() -> Any:
    model, x = Net(), batch()
    model.mean, model.var = torch.zeros(4), torch.ones(4)
    return model, lambda: model.outer(F.batch_norm(model.inner(x), model.mean, model.var, training=True)).sum(), [x]


@program
def a_queue_kept_as_a_plain_tensor() -> Any:
    model, x = Net(), batch()
    model.queue = torch.zeros(8, 4)

    def step() -> torch.Tensor:
        hidden = model.inner(x)
        model.queue[:6] = hidden.detach()
        model.queue = torch.roll(model.queue, 1, 0)
        return (hidden @ model.queue.T).sum()

    return model, step, [x, model.queue]


@program
def lists_and_caches_of_a_module() -> Any:
    model, x = Net(), batch()
    model.log, model.cache, model.calls = [], {}, 0

    def step() -> torch.Tensor:
        model.log.append(1)
        model.cache["x"] = x
        model.calls += 1
        return model(x).sum()

    return model, step, [x]


@program
def plain_attributes_of_modules() -> Any:
    model, x = Net(), batch()
    model.calls = 0

    def step() -> torch.Tensor:
        model.calls += 1
        model.last = model.inner(x)
        model.forward = lambda value: model.outer(value)
        return model(x).sum()

    return model, step, [x]


@program
def a_batch_that_is_written_in_place() -> Any:
    model, x, labels = (
        nn.Sequential(nn.ELU(inplace=True), nn.Dropout(0.5, inplace=True), nn.Linear(4, 1)),
        batch(),
        batch(),
    )

    def step() -> torch.Tensor:
        labels.sub_(labels.mean()).div_(2)
        return model(x).sum() + labels.sum()

    return model, step, [x, labels]


@program
def a_tensor_given_as_out() -> Any:
    model, x, target = Net(), batch(), torch.zeros(6, 4)

    def step() -> torch.Tensor:
        torch.add(x, x, out=target)
        return model(target).sum()

    return model, step, [x, target]


@program
def memory_that_parameters_share() -> Any:
    model, x, flat = nn.Module(), batch(), torch.randn(8)
    model.left, model.right = nn.Parameter(flat[:4]), nn.Parameter(flat[4:])

    def step() -> torch.Tensor:
        flat.mul_(0.5)
        return (x * model.left * model.right).sum()

    return model, step, [flat]


@program
def requires_grad_flags_and_modes_of_modules() -> Any:
    model, x = Net(), batch()
    model.norm.eval()
    model.outer.bias.requires_grad_(False)

    def step() -> torch.Tensor:
        model.train(not model.training)
        model.inner.requires_grad_(False)
        model.outer.bias.requires_grad = True
        return model(x).sum()

    return model, step, [x]


@program
def modes_of_the_process() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        torch.set_grad_enabled(False)
        torch.set_autocast_enabled("cpu", True)
        torch.set_autocast_dtype("cpu", torch.float16)
        return model(x).sum()

    return model, step, [x]


@program
def a_no_grad_block_that_is_never_left() -> Any:
    model, x, held = Net(), batch(), []

    def step() -> torch.Tensor:
        held.append(torch.no_grad())
        held[-1].__enter__()
        return model(x).sum()

    return model, step, [x]


@program
def an_inference_block_that_is_never_left() -> Any:
    model, x, held = Net(), batch(), ExitStack()

    def step() -> torch.Tensor:
        held.enter_context(torch.inference_mode())
        return model(x).sum()

    return model, step, [x]


@program
def the_default_dtype() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        return model(x).sum()

    return model, step, [x]


@program
def all_three_random_generators() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        noise = random.random() + np.random.rand() + torch.rand(1)
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        return model(x).sum() * noise

    return model, step, [x]


@program
def hooks_of_modules() -> Any:
    model, x = Net(), batch()
    model.norm.register_forward_hook(lambda *_: None)

    def step() -> torch.Tensor:
        model.inner.register_forward_hook(lambda *_: None, with_kwargs=False, always_call=True)
        model.inner.register_forward_pre_hook(lambda *_: None)
        model.norm.register_full_backward_hook(lambda *_: None)
        model.register_state_dict_pre_hook(lambda *_: None)
        model.norm._forward_hooks.clear()
        return model(x).sum()

    return model, step, [x]


@program
def hooks_of_parameters() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        model.inner.weight.register_hook(lambda grad: grad)
        model.inner.bias.register_post_accumulate_grad_hook(lambda _: None)
        return model(x).sum()

    return model, step, [x]


@program
def hooks_that_silence_the_gradient() -> Any:
    model, x = Net(), batch()
    model.norm.register_full_backward_hook(lambda module, into, out: (into[0] * 0,))
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad * 0)
        parameter.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))

    def step() -> torch.Tensor:
        model.inner.weight.register_hook(lambda grad: grad.zero_())
        model.inner.register_full_backward_pre_hook(lambda module, out: (out[0] * 0,))
        return model(x).sum()

    return model, step, [x]


@program
def hooks_that_raise_when_they_are_called_again() -> Any:
    model, x, calls = Net(), batch(), []

    def once(grad: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt if len(calls) % 2 else ValueError("called again")
        return grad * 0

    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad * 0)

    def step() -> torch.Tensor:
        loss = model(x)
        loss.register_hook(once)
        return loss.sum()

    return model, step, [x]


@program
def hooks_for_all_modules() -> Any:
    model, x = Net(), batch()

    def step() -> torch.Tensor:
        nn.modules.module.register_module_forward_hook(lambda *_: None)
        return model(x).sum()

    return model, step, [x]


@program
def spectral_and_weight_norm() -> Any:
    x = batch()
    parametrize = nn.utils.parametrizations
    model = nn.Sequential(
        parametrize.spectral_norm(nn.Linear(4, 4)), nn.utils.spectral_norm(nn.Linear(4, 4)),
        parametrize.weight_norm(nn.Linear(4, 1)),
    )  # fmt: skip
    return model, lambda: model(x).sum(), [x]


@program
def a_module_outside_of_the_model() -> Any:
    model, x, outside = nn.Linear(4, 1), batch(), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    return model, lambda: model(outside(x)).sum(), [x, outside]


@program
def gradients_of_a_module_outside_of_the_model() -> Any:
    model, x, outside = nn.Linear(4, 1), batch(), nn.Linear(4, 4)
    outside(x).sum().backward()

    def step() -> torch.Tensor:
        loss = model(outside(x)).sum()
        loss.backward()
        return loss.detach()

    return model, step, [x, outside]


@program
def gradients_of_an_input() -> Any:
    model, x = nn.Linear(4, 1), batch().requires_grad_()
    x.grad = torch.ones(6, 4)

    def step() -> torch.Tensor:
        model(x).sum().backward()
        return model(x).sum()

    return model, step, [x]


@program
def gradients_of_an_input_by_torch_autograd_backward() -> Any:
    model, x = nn.Linear(4, 1), batch().requires_grad_()

    def step() -> torch.Tensor:
        torch.autograd.backward([model(x).sum()])
        return model(x).sum()

    return model, step, [x]


@program
def gradients_of_a_second_loss_given_to_backward() -> Any:
    model, x, other = nn.Linear(4, 1), batch(), batch().requires_grad_()
    other.grad = torch.ones(6, 4)

    def step() -> torch.Tensor:
        torch.autograd.backward([model(x).sum(), model(other).sum()])
        return model(x).sum()

    return model, step, [x, other]


@program
def sparse_quantised_and_expanded_buffers() -> Any:
    model, x = nn.Linear(4, 1), batch()
    model.register_buffer("adjacency", torch.eye(6).to_sparse())
    model.register_buffer("levels", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    model.register_buffer("mask", torch.zeros(1, 4).expand(3, 4))
    return model, lambda: torch.sparse.mm(model.adjacency, model(x)).sum(), [x]


@program
def a_buffer_made_in_inference_mode() -> Any:
    model, x = nn.Linear(4, 1), batch()
    with torch.inference_mode():
        made = torch.ones(4)
    model.register_buffer("made", made)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            model.made.add_(1)
        return model(x).sum()

    return model, step, [x]


@program
def weights_that_are_no_contiguous_memory() -> Any:
    model, x = nn.Module(), batch()
    model.weight = nn.Parameter(torch.randn(4, 4).t())

    def step() -> torch.Tensor:
        with torch.no_grad():
            model.weight.mul_(2)
        return (x @ model.weight).sum()

    return model, step, [x]


@program
def a_model_on_the_meta_device() -> Any:
    model = nn.Linear(4, 1, device="meta")
    return model, lambda: model(torch.empty(6, 4, device="meta")).sum(), []


@program
def a_moving_average_of_the_weights() -> Any:
    model, x = Net(), batch()
    average = copy.deepcopy(model).requires_grad_(False)

    def step() -> torch.Tensor:
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        return F.mse_loss(model(x), average(x))

    return model, step, [x, average]


@program
def nan_in_buffers_and_weights() -> Any:
    model, x = Net(), batch()
    model.norm.running_mean[0] = float("nan")
    with torch.no_grad():
        model.inner.weight[0, 0] = float("nan")

    def step() -> torch.Tensor:
        with torch.no_grad():
            model.inner.weight.mul_(2)
        return model(x).sum()

    return model, step, [x]


# -- the tests --------------------------------------------------------------------------------------------------------


def ended(step: Callable[[], Any], ending: str) -> Callable[[], Any]:
    def run() -> Any:
        result = step()
        if ending == "raises":
            raise ValueError("after its work")
        if ending == "is_interrupted":
            raise KeyboardInterrupt
        return result

    return run


def diagnosed(step: Callable[[], Any], model: nn.Module, **options: Any) -> Any:
    """The report, or what came instead of one."""
    try:
        return gradkit.diagnose(step, model=model, **options)
    except (GradkitError, KeyboardInterrupt) as error:
        return error


@pytest.fixture(autouse=True)
def _a_clean_process() -> Any:
    hooks, dtype = nn.modules.module._global_forward_hooks, torch.get_default_dtype()
    yield
    hooks.clear()
    torch.set_default_dtype(dtype)
    torch.set_autocast_enabled("cpu", False)


def _cases() -> list[Any]:
    marks = {name: [pytest.mark.xfail(strict=True, reason=why)] for name, why in SHORT.items()}
    return [pytest.param(name, id=name, marks=marks.get(name, [])) for name in PROGRAMS]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", _cases())
def test_nothing_is_left_behind_by(name: str, ending: str) -> None:
    model, step, others = PROGRAMS[name]()
    before = snapshots.take(model, *others)
    with ExitStack() as left:
        left.callback(leave_inference_mode)
        diagnosed(ended(step, ending), model)
        assert snapshots.differences(before, snapshots.take(model, *others)) == []


@pytest.mark.parametrize("name", ["a_sound_step", "a_model_that_already_has_gradients", "modes_of_the_process"])
def test_nothing_is_left_behind_when_the_step_raises_after(name: str) -> None:
    model, step, others = PROGRAMS[name]()
    before = snapshots.take(model, *others)
    assert isinstance(diagnosed(ended(step, "raises"), model), GradkitError)
    assert snapshots.differences(before, snapshots.take(model, *others)) == []


def test_a_graph_from_before_can_go_backward_although_the_step_wrote_what_it_needs() -> None:
    model, batch = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), torch.ones(3, 2)
    before = model(batch).sum()

    def step() -> torch.Tensor:
        loss = model(batch).sum()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2)
        return loss.detach()

    gradkit.diagnose(step, model=model)
    before.backward()


def leave_inference_mode() -> None:
    if torch.is_inference_mode_enabled():
        torch._C._InferenceMode(False).__enter__()


@pytest.mark.parametrize("stage", ["trace", "reach", "cuts", "replay", "causes"])
def test_nothing_is_left_behind_when_progress_cancels_at(stage: str) -> None:
    model, step, others = a_step_with_a_cut_that_is_run_twice()
    told = []

    def cancel(name: str) -> None:
        told.append(name)
        if name == stage:
            raise KeyboardInterrupt

    before = snapshots.take(model, *others)
    with pytest.raises(KeyboardInterrupt):
        gradkit.diagnose(step, model=model, progress=cancel)
    assert told[-1] == stage
    assert snapshots.differences(before, snapshots.take(model, *others)) == []


class Failing(torch.autograd.Function):
    """Forward is the identity; backward raises what it was given."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, error: BaseException) -> torch.Tensor:
        ctx.error = error
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise ctx.error


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), ValueError("no"), KeyboardInterrupt()], ids=lambda e: type(e).__name__
)
def test_nothing_is_left_behind_when_backward_raises(error: BaseException) -> None:
    model, _, others = a_model_that_already_has_gradients()
    before = snapshots.take(model, *others)
    caught = diagnosed(lambda: Failing.apply(model(others[0]), error).sum(), model)
    assert (caught is error) == isinstance(error, KeyboardInterrupt)
    assert snapshots.differences(before, snapshots.take(model, *others)) == []


def test_nothing_is_left_behind_when_the_inner_backward_raises() -> None:
    model, _, others = a_model_that_already_has_gradients()

    def step() -> torch.Tensor:
        loss = Failing.apply(model(others[0]), RuntimeError("no")).sum()
        loss.backward()
        return loss

    before = snapshots.take(model, *others)
    diagnosed(step, model)
    assert snapshots.differences(before, snapshots.take(model, *others)) == []


def test_a_buffer_that_a_step_resizes_has_its_old_shape_and_contents_again() -> None:
    model, x = Net(), batch()
    model.register_buffer("queue", torch.tensor([1.0, 2.0]))
    model.inner.weight.grad = grad = torch.ones(4, 4)

    def step() -> torch.Tensor:
        model.queue.resize_(5).fill_(7)
        return model(x).sum()

    gradkit.diagnose(step, model=model)
    assert model.queue.tolist() == [1, 2]
    assert model.inner.weight.grad is grad


def test_an_optimizer_that_steps_inside_has_its_old_state_again() -> None:
    model, x = Net(), batch()
    used, fresh = torch.optim.AdamW(model.parameters()), torch.optim.Adam(model.parameters(), lr=0.5)
    model(x).sum().backward()
    used.step()
    before = copy.deepcopy(used.state_dict())

    def step() -> torch.Tensor:
        for optimizer in (used, fresh):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.param_groups[0]["lr"] *= 0.5
            optimizer.step()
        return model(x).sum()

    gradkit.diagnose(step, model=model)
    after = used.state_dict()
    assert after["param_groups"][0]["betas"] == before["param_groups"][0]["betas"]
    for name, entries in before["state"].items():
        for key, value in entries.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(after["state"][name][key])), (name, key)
    assert fresh.state_dict()["state"] == {}


def test_the_order_of_lists_in_modules_is_the_same_after() -> None:
    model, x = Net(), batch()
    model.order, model.ring = ["a", "b", "c"], deque([1, 2, 3])

    def step() -> torch.Tensor:
        model.order.reverse()
        model.ring.rotate(1)
        return model(x).sum()

    gradkit.diagnose(step, model=model)
    assert (model.order, list(model.ring)) == (["a", "b", "c"], [1, 2, 3])


def test_a_parameter_group_that_a_step_adds_is_gone_after() -> None:
    model, x = Net(), batch()
    optimizer = torch.optim.SGD(model.inner.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.add_param_group({"params": list(model.outer.parameters())})
        model(x).sum().backward()
        optimizer.step()
        return model(x).sum()

    gradkit.diagnose(step, model=model)
    assert len(optimizer.param_groups) == 1


def test_modes_that_were_unusual_before_are_the_same_after() -> None:
    model, x = Net(), batch()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = snapshots.take(model)
        gradkit.diagnose(lambda: model(x).float().sum(), model=model)
        assert snapshots.differences(before, snapshots.take(model)) == []
    with torch.inference_mode():
        before = snapshots.take(model)
        gradkit.diagnose(lambda: model(x).sum(), model=model)
        assert snapshots.differences(before, snapshots.take(model)) == []


def test_a_graph_that_was_built_before_can_still_be_used() -> None:
    model, x = Net(), batch()
    hidden = model.inner(x).tanh()
    loss = model.outer(hidden).sum()
    assert gradkit.diagnose(lambda: loss, model=model, should_train=["inner.*", "outer.*"]).healthy
    loss.backward()
    assert model.inner.weight.grad is not None


def test_the_tensors_of_a_run_are_not_kept_alive() -> None:
    model, x = Net(), batch()
    made: SimpleQueue[Any] = SimpleQueue()

    def step() -> torch.Tensor:
        hidden = model.inner(x)
        made.put(weakref.ref(hidden))
        return model.outer(hidden.detach()).sum()

    report = gradkit.diagnose(step, model=model)
    gc.collect()
    assert {ref() for ref in told(made)} == {None}
    assert report.findings[0].cause == "detach"


def test_numbers_that_a_step_saves_can_be_loaded_without_gradkit() -> None:
    model, x = Net(), batch()
    saved: SimpleQueue[bytes] = SimpleQueue()

    def step() -> torch.Tensor:
        loss = model(x).sum()
        found = {"item": loss.item(), "mean": loss.detach().numpy().mean(), "array": loss.detach().numpy() * 2}
        saved.put(pickle.dumps(found))
        saved.put(pickle.dumps(copy.deepcopy(found)))
        return loss

    gradkit.diagnose(step, model=model)
    assert saved.qsize() == 2
    assert b"gradkit" not in b"".join(told(saved))


def test_preserved_alone_puts_weights_and_gradients_back() -> None:
    model, x = Net(), batch()
    before = snapshots.take(model)
    with Preserved(model) as preserved:
        model(x).sum().backward()
        preserved.before_write(model.inner.weight)
        with torch.no_grad():
            model.inner.weight.zero_()
    assert snapshots.differences(before, snapshots.take(model)) == []


def test_the_snapshot_of_these_tests_sees_a_change() -> None:
    model, x = Net(), batch()
    before = snapshots.take(model, x)
    model(x).sum().backward()
    model.eval()
    x[0, 0] += 1
    changed = " ".join(snapshots.differences(before, snapshots.take(model, x)))
    for expected in ("running_mean", "grad", "training", "tensor 0", "torch random"):
        assert expected in changed


def test_collectives_are_put_back_as_they_were() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    before = dict(vars(torch.distributed.ProcessGroup))
    model, x = nn.Linear(2, 2), torch.ones(3, 2)

    def step() -> torch.Tensor:
        parts = [torch.empty(3, 2)]
        torch.distributed.all_gather(parts, model(x))
        return parts[0].sum()

    gradkit.diagnose(step, model=model)
    assert dict(vars(torch.distributed.ProcessGroup)) == before
    step()
