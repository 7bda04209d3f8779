"""What is computed and then lost: by a function that ignores an argument, or under a name given anew or never read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Finding
from tests.marks import line_ending

X = torch.linspace(-1, 1, 12).view(4, 3)


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.gate = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)


def half_and_half(left: torch.Tensor, right: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    both = left * 0.5 + right * 0.5  # ignores the gate
    return both.tanh()


class Ignoring(Towers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return half_and_half(self.left(x), self.right(x), gate=self.gate(x).sigmoid())


class IgnoringFurtherIn(Towers):
    """The function that is handed it hands it on to one that ignores it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.gate(x).sigmoid()
        self.seen = weight[:1].detach()
        return self.join(self.left(x), self.right(x), weight)

    def join(self, one: torch.Tensor, other: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return half_and_half(one, other, weight)


class Overwriting(Towers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.left(x)
        for _ in range(2):
            h = h + self.gate(x)
        h = self.left(x).relu()  # overwrites
        return h + self.right(x)


class Unread(Towers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x)  # noqa: F841
        return (self.left(x) + self.right(x)).tanh()  # goes on without


class Unassigned(Towers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.left(x) + self.right(x)
        torch.add(h, self.gate(x))  # thrown away
        return h


class Pairs:
    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def weighed(self, by: torch.Tensor) -> Pairs:
        return Pairs(self.values * by)


class UnassignedObject(Towers):
    """A method that returns another object is called as if it changed its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = Pairs(self.left(x) + self.right(x))
        pairs.weighed(self.gate(x).sigmoid())  # thrown away too
        return pairs.values


def only(model: nn.Module) -> Finding:
    (found,) = gradkit.diagnose(lambda: model(X).square().mean(), model=model).findings
    return found


@pytest.mark.parametrize(
    ("model", "kind", "mark"),
    [
        (Ignoring(), "ignored", "ignores the gate"),
        (IgnoringFurtherIn(), "ignored", "ignores the gate"),
        (Overwriting(), "overwritten", "overwrites"),
        (Unread(), "unread", "goes on without"),
        (Unassigned(), "unassigned", "thrown away"),
        (UnassignedObject(), "unassigned", "thrown away too"),
    ],
    ids=["ignored argument", "ignored further in", "overwritten", "never read", "not assigned", "object not assigned"],
)
def test_a_result_that_gets_lost_is_named_at_the_line_that_goes_on_without_it(
    model: nn.Module, kind: str, mark: str
) -> None:
    found = only(model)
    assert (found.cause, found.variant, found.proof) == ("trainable_unused", kind, "likely")
    assert set(found.parameters) == {"gate.weight", "gate.bias"}
    assert found.location is not None
    assert found.location.line == line_ending(__file__, mark)


class Branching(Towers):
    """Read on a branch that this run does not take: nothing is overwritten there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.gate(x)
        if x.shape[0] == 1:
            return h
        return self.left(x) + self.right(x)


def test_a_name_that_is_read_somewhere_is_told_by_the_layer_as_before() -> None:
    assert only(Branching()).variant == "dropped"


class SideBySide(nn.Module):
    """The batch and what makes the layers stand in one assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter, self.head = nn.Linear(3, 3), nn.Linear(3, 2)


def attached(model: SideBySide) -> SideBySide:
    model.head.register_forward_pre_hook(lambda module, args: (args[0], model.adapter(args[0]))[:1])
    return model


def test_a_batch_that_is_assigned_beside_a_model_is_no_cache() -> None:
    def program() -> tuple[SideBySide, Callable[[], torch.Tensor]]:
        net, x, _ = attached(SideBySide()), torch.linspace(0, 1, 6).view(2, 3), 0
        return net, lambda: net.head(x).square().mean()

    model, step = program()
    assert [found.cause for found in gradkit.diagnose(step, model=model).findings] == ["trainable_unused"]
