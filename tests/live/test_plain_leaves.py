"""Plain tensors that require grad and that a module holds: which of them were meant to be Parameters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradkit
from gradkit.core.records import Finding


class Planar(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(1, width))
        self.u = torch.randn(1, width).requires_grad_()  # MADE

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z + self.u * torch.tanh(z @ self.w.t())


class Pooled(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.key = nn.Linear(width, width)
        query = torch.ones(width, requires_grad=True)  # MADE
        self.query = query

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.key(x) @ self.query).tanh()


class Prompted(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.body = nn.Linear(width, width)
        self.prompts = [torch.randn(1, width, requires_grad=True) for _ in range(2)]  # MADE

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x + torch.cat(self.prompts).mean(0))


class Flagged(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.body = nn.Linear(width, width)
        self.gain = torch.ones(width)  # MADE
        self.gain.requires_grad = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.gain


class Temperature:
    def __init__(self) -> None:
        self.log = torch.tensor(0.0, requires_grad=True)  # MADE

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x / self.log.exp()


class Calibrated(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.body, self.temperature = nn.Linear(width, width), Temperature()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.temperature(self.body(x))


class Centers(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.state = {"centers": torch.randn(5, width).clone().requires_grad_(True)}  # MADE
        self.out = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.exp(-(torch.cdist(x, self.state["centers"]) ** 2)))


def train(model: nn.Module, and_then: Callable[[], object] = lambda: None) -> list[Finding]:
    """What is found of a model that an optimizer trains as far as ``parameters()`` goes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with gradkit.watch(tell=lambda told: None) as watch:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(6, 3)).pow(2).mean().backward()
            optimizer.step()
            and_then()
    return [finding for report in watch.reports for finding in report.findings]


@pytest.mark.parametrize("kind", [Planar, Pooled, Prompted, Flagged, Calibrated, Centers])
def test_a_plain_tensor_that_serves_as_a_weight_is_told_at_the_line_that_makes_it(kind: type[nn.Module]) -> None:
    (finding,) = train(kind())
    assert finding.cause == "unregistered_parameters"
    assert finding.location is not None
    assert finding.location.text.endswith("# MADE")


def test_several_of_one_kind_are_told_together() -> None:
    (finding,) = train(nn.Sequential(Planar(), Planar()))
    assert finding.parameters == ("0.u", "1.u")


def test_diagnose_tells_it_where_an_optimizer_trains_the_rest() -> None:
    model, x = Planar(), torch.randn(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    report = gradkit.diagnose(lambda: model(x).pow(2).mean(), model=model, optimizer=optimizer)
    assert [finding.parameters for finding in report.findings] == [("u",)]


# -- what requires grad and is not to learn ----------------------------------------------------------------------------


class Points(nn.Module):
    """The points of an equation, and its data, which require grad by habit."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        self.x, self.t = torch.rand(6, 1, requires_grad=True), torch.rand(6, 1, requires_grad=True)
        self.known = torch.rand(6, 1, requires_grad=True)

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        u = self.net(torch.cat([self.x, self.t], 1))
        (slope,) = torch.autograd.grad(u.sum(), self.x, create_graph=True)
        return slope + u - self.known


class Written(nn.Module):
    """The same with layers that are written out."""

    def __init__(self) -> None:
        super().__init__()
        self.points = torch.rand(6, 2, requires_grad=True)
        self.low = self.points.detach().min(0).values
        self.w, self.b = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(1, 4))

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return torch.tanh(2 * (self.points - self.low) @ self.w + self.b)


class Begun(nn.Module):
    """A state that a recurrence begins with."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.begin = nn.GRUCell(3, 4), torch.zeros(1, 4, requires_grad=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x, self.begin.expand(len(x), -1))


class Probed(nn.Module):
    """A probe that the gradient is read from, and a switch for checkpoints that must not run without one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.probe, self.switch = torch.zeros(3, requires_grad=True), torch.ones(1, requires_grad=True)

    def run(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return self.body(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.run, x, self.switch, use_reentrant=True) + self.probe + 0.0 * self.switch

    def seen(self) -> float:
        probe = self.probe
        return float(probe.grad.norm()) if probe.grad is not None else 0.0


class Attended(nn.Module):
    """An input that each pass makes a leaf of."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.given = x.mean(0).detach().requires_grad_()
        return self.body(x) * self.given


@pytest.mark.parametrize("kind", [Points, Written, Begun, Probed, Attended])
def test_what_requires_grad_and_is_no_weight_is_left_alone(kind: type[nn.Module]) -> None:
    assert train(kind()) == []


class Stepped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.scale = torch.ones(3, requires_grad=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.scale


def moved(tensors: list[torch.Tensor]) -> None:
    for one in tensors:
        given, one.grad = one.grad, None
        if given is not None:
            one.data -= 0.1 * given


def test_what_the_program_steps_by_hand_is_left_alone() -> None:
    model = Stepped()
    assert train(model, lambda: moved(list(filter(torch.is_tensor, vars(model).values())))) == []


def test_what_another_optimizer_holds_is_left_alone() -> None:
    model = Stepped()
    other = torch.optim.SGD([vars(model)["scale"]], lr=0.1)
    assert train(model, other.step) == []


def test_where_no_optimizer_trains_the_model_yet_diagnose_accuses_nothing() -> None:
    model, x = Stepped(), torch.randn(6, 3)
    assert gradkit.diagnose(lambda: model(x).pow(2).mean(), model=model).healthy
