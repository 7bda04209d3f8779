"""What drops out of a loss that is made of derivatives is not asked to learn."""

from __future__ import annotations

import copy
from typing import Any

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
