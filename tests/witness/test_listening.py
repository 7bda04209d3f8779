"""Listening begins and ends, changes nothing, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.autograd import grad_mode
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.overrides import TorchFunctionMode

from gradkit.witness import deeds
from gradkit.witness.histories import deeds_of
from gradkit.witness.listening import listening, paused

CLASSES = (
    torch.Tensor, nn.Parameter, type(nn.Parameter), torch.optim.Optimizer, grad_mode.no_grad, grad_mode.enable_grad,
    grad_mode.set_grad_enabled, grad_mode.inference_mode,
)  # fmt: skip
HOOKS: tuple[Any, ...] = (
    torch_module._global_parameter_registration_hooks,
    torch_module._global_module_registration_hooks,
    torch_optimizer._global_optimizer_post_hooks,
)


def state() -> list[dict[Any, Any]]:
    return [dict(vars(one)) for one in CLASSES] + [dict(one) for one in HOOKS]


def steps(layer: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        layer(torch.ones(2)).sum().backward()
        optimizer.step()


def program() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    nn.init.orthogonal_(model[2].weight)
    optimizer = torch.optim.Adam(copy.deepcopy(model).parameters(), lr=0.1)
    optimizer.add_param_group({"params": model.parameters()})
    steps_of = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval()
    with torch.no_grad():
        fast = steps_of(torch.ones(1, 3, 4))
    for _ in range(3):
        model(torch.randn(4)).sum().backward()
        optimizer.step()
    return [*model.state_dict().values(), fast, torch.get_rng_state()]


def test_nothing_is_left_in_torch_afterwards() -> None:
    before = state()
    with listening():
        assert state() != before
        layer = nn.Linear(2, 1)
        steps(layer, torch.optim.SGD(layer.parameters(), lr=0.1), 1)
    assert state() == before


def test_nothing_is_left_after_an_exception() -> None:
    before = state()
    with contextlib.suppress(KeyboardInterrupt), listening():
        raise KeyboardInterrupt
    assert state() == before


def test_two_may_listen_at_once_and_end_in_any_order() -> None:
    before = state()
    first, second = listening().open(), listening().open()
    first.close()
    layer = nn.Linear(2, 1)
    assert deeds_of(layer.weight)
    second.close()
    second.close()
    assert state() == before
    assert deeds_of(nn.Linear(2, 1).weight) == ()


def test_what_was_heard_outlives_the_listening() -> None:
    with listening():
        layer = nn.Linear(2, 1)
    assert deeds_of(layer.weight)[0].kind == "registered"


def test_it_ends_by_itself_after_the_second_step_of_an_optimizer() -> None:
    before = state()
    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    heard = listening(until_steps=2).open()
    steps(one, torch.optim.SGD(one.parameters(), lr=0.1), 1)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    steps(other, optimizer, 1)
    assert heard.is_open
    steps(other, optimizer, 1)
    assert not heard.is_open
    assert state() == before


def test_another_hook_after_ours_is_called_all_the_same() -> None:
    layer, calls = nn.Linear(2, 1), list[int]()
    heard = listening(until_steps=2).open()
    handle = torch_optimizer.register_optimizer_step_post_hook(lambda *_: calls.append(1))
    try:
        steps(layer, torch.optim.SGD(layer.parameters(), lr=0.1), 3)
    finally:
        handle.remove()
        heard.close()
    assert calls == [1, 1, 1]
    assert not HOOKS[2]


def test_a_pause_hears_nothing_and_leaves_torchs_classes_alone() -> None:
    before = state()[: len(CLASSES)]
    with listening():
        with paused():
            assert state()[: len(CLASSES)] == before
            layer = nn.Linear(2, 1).requires_grad_(False)
        assert deeds_of(layer.weight) == ()
        layer.requires_grad_(True)
        assert [deed.kind for deed in deeds_of(layer.weight)] == ["thawed"]


def test_a_program_computes_the_same_bits() -> None:
    plain = program()
    with listening():
        heard = program()
    assert all(torch.equal(one, other) for one, other in zip(plain, heard, strict=True))


def test_a_fault_of_ours_never_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(deeds, "seen_from", fails)
    with listening():
        layer = copy.deepcopy(nn.Linear(2, 1).requires_grad_(False))
        layer.weight.requires_grad = True
        layer.weight.data.zero_()
        torch.optim.SGD(layer.parameters(), lr=0.1)
        with torch.no_grad():
            layer.half()
    assert deeds_of(layer.weight) == ()


class Tagged(torch.Tensor):
    """Asks what it is called with, as libraries of quantized tensors do."""

    called: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.called.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Recording(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(func)
        return func(*args, **(kwargs or {}))


def touch(tensor: torch.Tensor) -> None:
    tensor.zero_()
    tensor.copy_(torch.Tensor.detach(tensor))
    tensor.requires_grad_()
    tensor.requires_grad = False
    tensor.data = tensor.data


def called_with(run: Callable[[], list[Any]]) -> tuple[list[Any], list[Any]]:
    plain = run()
    with listening():
        return plain, run()


def test_a_subclass_of_tensor_is_called_with_the_functions_that_it_knows() -> None:
    def run() -> list[Any]:
        Tagged.called = []
        touch(torch.ones(2).as_subclass(Tagged))
        return Tagged.called

    plain, heard = called_with(run)
    assert torch.Tensor.zero_ in heard
    assert heard == plain


def test_a_function_mode_is_called_with_the_functions_that_it_knows() -> None:
    def run() -> list[Any]:
        with Recording() as mode:
            touch(torch.ones(2))
        return mode.called

    plain, heard = called_with(run)
    assert heard == plain


def test_a_device_context_makes_its_tensors_where_it_says() -> None:
    with listening(), torch.device("meta"):
        layer = nn.Linear(2, 1).requires_grad_(False)
    assert layer.weight.is_meta
    assert deeds_of(layer.weight)[-1].kind == "frozen"


def test_the_default_device_may_change_while_somebody_listens() -> None:
    with listening():
        torch.set_default_device("meta")
        try:
            layer = nn.Linear(2, 1)
        finally:
            torch.set_default_device(None)
    assert layer.weight.is_meta
    assert not nn.Linear(2, 1).weight.is_meta


def test_a_compiled_model_is_compiled_whole_and_to_the_same_graph() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.fill_(1.0)
            with torch.no_grad():
                masked = self.layer(x).zero_()
            return self.layer(x) + masked + x.data.sum()

    def run() -> list[Any]:
        torch._dynamo.reset()
        graphs: list[Any] = []

        def backend(graph: torch.fx.GraphModule, _: object) -> Any:
            graphs.append(graph.code)
            return graph.forward

        with torch.compiler.set_stance("default"):
            torch.compile(Net(), backend=backend, fullgraph=True)(torch.ones(2))
        return graphs

    plain, heard = called_with(run)
    assert len(plain) == 1
    assert heard == plain


def test_a_script_a_trace_and_a_transform_hear_nothing_of_it() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.clone().zero_() + x)

    with listening():
        net, x = Net(), torch.ones(1, 2)
        expected = net(x)
        assert torch.equal(torch.jit.script(net)(x), expected)
        assert torch.equal(torch.jit.trace(net, x)(x), expected)
        assert torch.equal(torch.func.vmap(net)(x), expected)
        assert torch.fx.symbolic_trace(net).code.count("clone.zero_()") == 1
