"""Adapted weights that one part of a model is not handed: the line that leaves them out, where the originals go in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

import gradkit
from tests.programs.shared import Built, cut, sound

X, Y = torch.linspace(-1, 1, 6)[:, None], torch.linspace(-1, 1, 6)[:, None].sin()


class Dense(nn.Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(o, i) * 0.4), nn.Parameter(torch.zeros(o))

    def forward(self, x: torch.Tensor, weights: Any = None) -> torch.Tensor:
        if weights is None:
            weights = {"w": self.w, "b": self.b}
        return F.linear(x, weights["w"], weights["b"])


def part(weights: Any, name: str) -> Any:
    return None if weights is None else {k[len(name) + 1 :]: v for k, v in weights.items() if k.startswith(f"{name}.")}


class Block(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.up, self.down = Dense(n, 2 * n), Dense(2 * n, n)

    def forward(self, x: torch.Tensor, weights: Any = None) -> torch.Tensor:
        out: torch.Tensor = self.down(torch.tanh(self.up(x, part(weights, "up"))), part(weights, "down"))
        return x + out


class Net(nn.Module):
    """``middle`` says whether the block is handed its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.last = Dense(1, 4), Block(4), nn.Linear(4, 1)

    def middle(self, h: torch.Tensor, weights: Any) -> torch.Tensor:
        out: torch.Tensor = self.block(h, part(weights, "block"))
        return out

    def end(self, h: torch.Tensor, weights: Any) -> torch.Tensor:
        return F.linear(h, weights["last.weight"], weights["last.bias"])

    def forward(self, x: torch.Tensor, weights: Any = None) -> torch.Tensor:
        h = self.middle(self.first(x, part(weights, "first")), weights)
        return self.end(h, weights)


def _adapting(net: nn.Module, predict: Callable[[dict[str, torch.Tensor], torch.Tensor], torch.Tensor]) -> Built:
    def step() -> torch.Tensor:
        weights: dict[str, torch.Tensor] = dict(net.named_parameters())
        for _ in range(2):
            loss = F.mse_loss(predict(weights, X), Y)
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), grads, strict=True)}
        return F.mse_loss(predict(weights, X), Y)

    return net, step


def _of(net: nn.Module) -> Built:
    return _adapting(net, lambda weights, x: net(x, weights=weights))


@cut("unused_input")
def a_block_that_is_handed_no_weights() -> Built:
    class Model(Net):
        def middle(self, h: torch.Tensor, weights: Any) -> torch.Tensor:
            out: torch.Tensor = self.block(h)  # CUT
            return out

    return _of(Model())


@cut("unused_input")
def a_layer_of_torchs_that_takes_no_weights() -> Built:
    class Model(Net):
        def end(self, h: torch.Tensor, weights: Any) -> torch.Tensor:
            out: torch.Tensor = self.last(h)  # CUT
            return out

    return _of(Model())


@cut("unused_input")
def a_head_beside_a_functional_call() -> Built:
    net = nn.ModuleDict({"body": nn.Sequential(nn.Linear(1, 6), nn.Tanh()), "head": nn.Linear(6, 1)})

    def predict(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        h = functional_call(net["body"], part(weights, "body"), (x,))
        out: torch.Tensor = net["head"](h)  # CUT
        return out

    return _adapting(net, predict)


@cut("unused_input")
def a_whole_model_that_is_handed_no_weights() -> Built:
    class Model(Net):
        def end(self, h: torch.Tensor, weights: Any) -> torch.Tensor:
            return Net.end(self, h, weights or dict(self.named_parameters()))

    net = Model()

    def predict(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = net(x)  # CUT
        return out

    return _adapting(net, predict)


@cut("unused_input")
def a_layer_that_nothing_calls() -> Built:
    class Model(Net):
        def middle(self, h: torch.Tensor, weights: Any) -> torch.Tensor:
            return h

    return _of(Model())


@cut("unused_input")
def a_layer_left_out_after_adapting_beside_a_penalty_on_all_parameters() -> Built:
    net, first = Net(), [True]

    def predict(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        h = net.first(x, part(weights, "first"))
        h = net.block(h, part(weights, "block")) if first.pop() else h
        first.append(False)
        return net.end(h, weights) + 1e-3 * sum(p.square().sum() for p in net.parameters())

    return _adapting(net, predict)


def _asked_of(run: Callable[[nn.Module, list[torch.Tensor]], torch.Tensor]) -> Built:
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def step() -> torch.Tensor:
        fast = [p * 1.0 for p in net.parameters()]
        return torch.stack([g.sum() for g in torch.autograd.grad(run(net, fast), fast, create_graph=True)]).sum()

    return net, step


@cut("unused_input")
def weights_that_only_a_loop_has() -> Built:
    def run(net: nn.Module, fast: list[torch.Tensor]) -> torch.Tensor:
        for p, weight in zip(net.parameters(), fast, strict=True):
            p = weight  # noqa: F841  # CUT
        return F.mse_loss(net(X), Y)

    return _asked_of(run)


@cut("unused_input")
def weights_that_a_helper_gives_to_its_loop() -> Built:
    def load(net: nn.Module, fast: list[torch.Tensor]) -> None:
        for i, (_, p) in enumerate(net.named_parameters()):
            p = fast[i]  # noqa: F841  # CUT

    def run(net: nn.Module, fast: list[torch.Tensor]) -> torch.Tensor:
        load(net, fast)
        return F.mse_loss(net(X), Y)

    return _asked_of(run)


def weights_that_a_loop_reads() -> Built:
    def run(net: nn.Module, fast: list[torch.Tensor]) -> torch.Tensor:
        size = torch.zeros(())
        for p, weight in zip(net.parameters(), fast, strict=True):
            p = weight.detach()
            size = size + p.square().sum()
        return F.mse_loss(net(X), Y) + size

    return _asked_of(run)


@sound
def weights_that_are_handed_on_everywhere() -> Built:
    return _of(Net())


HANDED = [
    a_block_that_is_handed_no_weights,
    a_layer_of_torchs_that_takes_no_weights,
    a_head_beside_a_functional_call,
    a_whole_model_that_is_handed_no_weights,
]


@pytest.mark.parametrize("build", HANDED, ids=lambda one: one.__name__)
def test_the_line_that_hands_no_adapted_weights_on_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.variant) == ("unused_input", "original")
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines
    assert finding.notes[-1].kind == "asked_here"


@pytest.mark.parametrize("build", [weights_that_only_a_loop_has, weights_that_a_helper_gives_to_its_loop])
def test_the_line_that_gives_weights_to_the_variable_of_a_loop_alone_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    report = gradkit.diagnose(step, model=model)
    (finding,) = report.findings
    assert (finding.cause, finding.variant) == ("unused_input", "loop")
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines
    assert "gives p another value; the model keeps what it has" in report.text()


def test_a_variable_of_a_loop_that_is_read_is_not_blamed() -> None:
    torch.manual_seed(0)
    model, step = weights_that_a_loop_reads()
    assert "loop" not in [one.variant for one in gradkit.diagnose(step, model=model).findings]


@pytest.mark.parametrize(
    "build", [a_layer_that_nothing_calls, a_layer_left_out_after_adapting_beside_a_penalty_on_all_parameters]
)
def test_where_a_layer_takes_no_part_no_line_is_blamed_for_not_handing_it_on(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.variant != "original"


def test_a_program_that_hands_them_on_everywhere_gets_a_clean_bill() -> None:
    torch.manual_seed(0)
    model, step = weights_that_are_handed_on_everywhere()
    assert gradkit.diagnose(step, model=model).healthy
