"""What a forward makes anew in every step: a Parameter that is written out, or a layer, at the line that builds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain


def contrast(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    scale = nn.Parameter(torch.ones([]) * 2.0).exp()
    return F.cross_entropy(scale * left @ right.t(), torch.arange(len(left)))


class InALoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return contrast(self.left(x), self.right(x))


class OwnLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = Scale()(self.body(x))
        return out.square().mean()


class TorchLayer(OwnLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.Linear(3, 1)(self.body(x)).square().mean()


@pytest.mark.parametrize(
    ("build", "cause", "line"),
    [
        (InALoss, "params_replaced", "scale = nn.Parameter(torch.ones([]) * 2.0).exp()"),
        (OwnLayer, "built_in_forward", "out: torch.Tensor = Scale()(self.body(x))"),
        (TorchLayer, "built_in_forward", "return nn.Linear(3, 1)(self.body(x)).square().mean()"),
    ],
    ids=["parameter_in_a_loss", "layer_of_the_users", "layer_of_torch"],
)
def test_what_is_made_anew_is_named_where_the_forward_makes_it(
    build: Callable[[], nn.Module], cause: str, line: str
) -> None:
    torch.manual_seed(0)
    model = build()
    [found] = gradkit.diagnose(lambda: model(X), model=model).findings
    assert found.location is not None
    assert (found.cause, found.location.text.strip()) == (cause, line)


def test_a_parameter_that_no_optimizer_knows_is_not_said_to_stand_in_for_one() -> None:
    torch.manual_seed(0)
    model = InALoss()
    report = gradkit.diagnose(lambda: model(X), model=model)
    assert report.findings[0].variant == "unknown"
    assert "no optimizer knows it" in report.text("en")
    assert "没有优化器知道它" in report.text("zh")
