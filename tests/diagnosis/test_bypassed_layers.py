"""A layer whose weight is taken out of it and handed on: the line that reads the weight is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from tests.programs.shared import Built, batch, cut


class LowRank(nn.Module):
    """A frozen layer, and what is added to it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, base.in_features))
        self.up = nn.Parameter(torch.randn(base.out_features, 2))

    @property
    def weight(self) -> torch.Tensor:
        return self.base.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.base(x) + x @ self.down.T @ self.up.T
        return added


class Two(nn.Module):
    """Two adapted layers and a head; ``mixed`` says how the layers are computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = LowRank(nn.Linear(4, 3, bias=False)), LowRank(nn.Linear(4, 3, bias=False))
        self.head = nn.Linear(3, 1)

    def mixed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.gate(x)) * self.value(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.head(self.mixed(x)).square().mean()
        return loss


def _built(model: nn.Module) -> Built:
    x = batch()
    return model, lambda: model(x)


def _fused(x: torch.Tensor, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    first, second = F.linear(x, torch.cat([gate, value])).chunk(2, dim=-1)
    return torch.sigmoid(first) * second


def _times(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight.T


def _outer(x: torch.Tensor, *, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(_times(x, gate)) * _times(x, value)


@cut("trainable_unused")
def two_weights_that_a_function_of_its_own_is_given() -> Built:
    class Model(Two):
        def mixed(self, x: torch.Tensor) -> torch.Tensor:
            return _fused(x, self.gate.weight, self.value.weight)  # CUT

    return _built(Model())


@cut("trainable_unused")
def two_weights_that_are_handed_on_by_name_and_further() -> Built:
    class Model(Two):
        def mixed(self, x: torch.Tensor) -> torch.Tensor:
            return _outer(x, gate=self.gate.weight, value=self.value.weight)  # CUT

    return _built(Model())


@cut("trainable_unused")
def two_weights_that_get_names_at_once() -> Built:
    class Model(Two):
        def mixed(self, x: torch.Tensor) -> torch.Tensor:
            gate, value = self.gate.weight, self.value.weight  # CUT
            return torch.sigmoid(x @ gate.T) * (x @ value.T)

    return _built(Model())


@cut("trainable_unused")
def two_weights_in_a_list_that_is_gone_through_elsewhere() -> Built:
    def projected(x: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
        return [F.linear(x, one) for one in weights]

    class Model(Two):
        def mixed(self, x: torch.Tensor) -> torch.Tensor:
            gate, value = projected(x, [self.gate.weight, self.value.weight])  # CUT
            return torch.sigmoid(gate) * value

    return _built(Model())


@cut("trainable_unused")
def a_weight_that_is_read_where_it_is_used() -> Built:
    def projected(x: torch.Tensor, *layers: nn.Module) -> list[torch.Tensor]:
        return [F.linear(x, one.weight) for one in layers]  # type: ignore[arg-type]  # CUT

    class Model(Two):
        def mixed(self, x: torch.Tensor) -> torch.Tensor:
            gate, value = projected(x, self.gate, self.value)
            return torch.sigmoid(gate) * value

    return _built(Model())


BYPASSED = [
    two_weights_that_a_function_of_its_own_is_given,
    two_weights_that_are_handed_on_by_name_and_further,
    two_weights_that_get_names_at_once,
    two_weights_in_a_list_that_is_gone_through_elsewhere,
    a_weight_that_is_read_where_it_is_used,
]


@pytest.mark.parametrize("build", BYPASSED, ids=lambda one: one.__name__)
def test_the_line_that_reads_the_weight_out_of_the_layer_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.variant) == ("trainable_unused", "bypass")
    assert finding.location is not None
    assert {finding.location.line} == vars(build)["faulty"].lines
    assert set(finding.parameters) == {"gate.down", "gate.up", "value.down", "value.up"}


def test_a_weight_with_what_is_added_to_it_may_be_handed_on() -> None:
    class Merged(LowRank):
        @property
        def weight(self) -> torch.Tensor:
            return self.base.weight + self.up @ self.down

    class Model(Two):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.value = Merged(self.gate.base), Merged(self.value.base)

        def mixed(self, x: torch.Tensor) -> torch.Tensor:
            return _fused(x, self.gate.weight, self.value.weight)

    model, step = _built(Model())
    assert gradkit.diagnose(step, model=model).healthy


def test_a_frozen_weight_may_be_used_once_more_beside_its_layer() -> None:
    class Model(Two):
        def mixed(self, x: torch.Tensor) -> torch.Tensor:
            return super().mixed(x) + _times(x, self.gate.weight)

    model, step = _built(Model())
    assert gradkit.diagnose(step, model=model).healthy
