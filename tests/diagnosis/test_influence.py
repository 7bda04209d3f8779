"""What drops out of a loss that is made of derivatives is not asked to learn."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from gradkit import diagnose


def slopes_of(model: nn.Module) -> torch.Tensor:
    x = torch.ones(3, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return (slope + 1).square().mean()


def test_a_bias_that_drops_out_of_the_derivatives_is_not_asked_to_learn() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    report = diagnose(lambda: slopes_of(model), model=model)
    assert report.healthy
    assert report.meant.without_influence == ("2.bias",)
    assert "2.bias drops out" in report.text("en")
    assert [row.name for row in report.parameters if not row.should_train] == ["2.bias"]


def test_a_weight_that_a_function_loses_on_its_way_to_a_second_derivative_is_still_missed() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            ctx.scale = scale.item()
            return x * scale

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
            return grad * ctx.scale, None

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = nn.Linear(2, 1), nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Scaled.apply(self.inner(x).tanh(), self.scale)

    model = Net()
    report = diagnose(lambda: slopes_of(model), model=model)
    assert not report.healthy
    assert "scale" not in report.meant.without_influence


def test_trying_whether_a_loss_depends_on_a_parameter_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    before = copy.deepcopy(model.state_dict())
    diagnose(lambda: slopes_of(model), model=model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


class Potential(nn.Module):
    """An energy of two parts, of which only the derivative by the place enters the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Linear(2, 1), nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def width(self, x: torch.Tensor) -> torch.Tensor:
        return x.square().sum(1, keepdim=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        energy: torch.Tensor = self.near(x).tanh() + self.far(self.width(x))
        return energy


class InBlock(Potential):
    def width(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return super().width(x)


class Detached(Potential):
    def width(self, x: torch.Tensor) -> torch.Tensor:
        return super().width(x.detach())


class Decorated(Potential):
    @torch.no_grad()
    def width(self, x: torch.Tensor) -> torch.Tensor:
        return super().width(x)


class Scaled(Potential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        energy: torch.Tensor = self.near(x) / self.width(x).detach() + self.far(self.width(x))
        return energy


class ByCount(Potential):
    def width(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return (x > 0).sum(1, keepdim=True).float()


@pytest.mark.parametrize(
    ("build", "cause", "line"),
    [
        (InBlock, "no_grad_block", "with torch.no_grad():"),
        (Detached, "detach", "return super().width(x.detach())"),
        (Decorated, "no_grad_decorator", "@torch.no_grad()"),
    ],
)
def test_a_part_that_a_cut_before_the_derivative_leaves_out_is_missed(
    build: type[Potential], cause: str, line: str
) -> None:
    torch.manual_seed(0)
    model = build()
    report = diagnose(lambda: slopes_of(model), model=model)
    told = [(one.cause, one.location.text.strip() if one.location else "") for one in report.findings]
    assert told == [(cause, line)]
    assert report.findings[0].parameters == ("far.0.weight", "far.0.bias", "far.2.weight")
    assert report.findings[0].proof == "proven"
    assert report.meant.without_influence == ("far.2.bias",)


class Shared(Potential):
    """One bias is added to what depends on the place, and to what does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        energy: torch.Tensor = self.near(x) + self.near(x.detach()) + self.far(self.width(x))
        return energy


class OfTime(Potential):
    """The second part is handed the time, which no derivative is taken by."""

    def width(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return torch.ones(3, 1) * 0.5


@pytest.mark.parametrize("build", [Potential, Scaled, ByCount, Shared, OfTime])
def test_what_drops_out_by_its_nature_is_acquitted_beside_a_stop_that_is_none_of_its(build: type[Potential]) -> None:
    torch.manual_seed(0)
    model = build()
    assert diagnose(lambda: slopes_of(model), model=model).healthy
