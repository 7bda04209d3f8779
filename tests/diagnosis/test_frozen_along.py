"""Parameters that were frozen along with others: what says that they were not meant, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.records import Finding


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base, self.extra = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x).tanh() + self.extra(x)


class Net(nn.Module):
    def __init__(self, depth: int = 12) -> None:
        super().__init__()
        self.first, self.layers, self.head = Block(), nn.ModuleList(Block() for _ in range(depth)), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).pow(2).mean()


Freeze = Callable[[nn.Module], None]
Parts = Callable[[nn.Module], list[nn.Module]]


def found_after(freeze: Freeze, parts: Parts | None = None, depth: int = 12) -> tuple[Finding, ...]:
    with gradkit.watch():
        model, x = Net(depth), torch.randn(4, 3)
        freeze(model)
    groups = [{"params": list(part.parameters())} for part in parts(model)] if parts is not None else []
    optimizer = torch.optim.SGD(groups, lr=0.1) if groups else None
    return gradkit.diagnose(lambda: model(x), model=model, optimizer=optimizer).findings


# -- by a number ------------------------------------------------------------------------------------------------------


def by_a_beginning(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.startswith(("first", "layers.0", "layers.1")):
            parameter.requires_grad = False


def by_a_text_in_the_name(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if any(f"layers.{number}" in name for number in (1, 2)):
            parameter.requires_grad_(False)


@pytest.mark.parametrize("freeze", [by_a_beginning, by_a_text_in_the_name])
def test_layers_whose_number_begins_like_one_that_was_meant_are_told_at_the_line_that_freezes(freeze: Freeze) -> None:
    (finding,) = found_after(freeze)
    assert (finding.cause, finding.variant) == ("frozen_all", "number")
    assert {name.split(".")[1] for name in finding.parameters} == {"10", "11"}


def by_the_whole_number(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.startswith(("first.", "layers.0.", "layers.1.")):
            parameter.requires_grad = False


def all_but_the_first(model: nn.Module) -> None:
    for number in range(1, 12):
        for name, parameter in model.named_parameters():
            if name.startswith(f"layers.{number}."):
                parameter.requires_grad = False


def the_upper_half(model: nn.Module) -> None:
    for number in range(6, 12):
        model.get_submodule(f"layers.{number}").requires_grad_(False)


def every_second(model: nn.Module) -> None:
    for number in range(1, 12, 2):
        model.get_submodule(f"layers.{number}").requires_grad_(False)


@pytest.mark.parametrize("freeze", [by_the_whole_number, all_but_the_first, the_upper_half, every_second])
def test_layers_that_are_frozen_by_their_whole_number_are_meant(freeze: Freeze) -> None:
    assert found_after(freeze) == ()


# -- what an optimizer was handed -------------------------------------------------------------------------------------


def all_but_the_last(model: nn.Module) -> None:
    for layer in (model.first, *model.layers[:-1]):  # type: ignore[index, misc]
        layer.requires_grad_(False)


def by_a_word(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if "layers" in name or "base" in name:
            parameter.requires_grad = False


def last_two(model: nn.Module) -> list[nn.Module]:
    return [*model.layers[-2:], model.head]  # type: ignore[list-item, index, misc]


def extras(model: nn.Module) -> list[nn.Module]:
    return [model.first.extra, *(one.extra for one in model.layers), model.head]  # type: ignore[list-item, union-attr]


@pytest.mark.parametrize(("freeze", "parts", "count"), [(all_but_the_last, last_two, 4), (by_a_word, extras, 8)])
def test_what_an_optimizer_was_handed_apart_from_what_is_frozen_beside_it_is_told(
    freeze: Freeze, parts: Parts, count: int
) -> None:
    (finding,) = found_after(freeze, parts, depth=4)
    assert (finding.cause, finding.variant, len(finding.parameters)) == ("frozen_all", "picked", count)
    assert finding.location is not None
    assert finding.location.function == freeze.__name__


def everything(model: nn.Module) -> list[nn.Module]:
    return [model]


def layers_and_head(model: nn.Module) -> list[nn.Module]:
    return [model.layers, model.head]  # type: ignore[list-item]


def a_part_of_each_layer(model: nn.Module) -> None:
    model.first.requires_grad_(False)  # type: ignore[union-attr]
    for layer in model.layers:  # type: ignore[union-attr]
        layer.base.requires_grad_(False)


@pytest.mark.parametrize(
    ("freeze", "parts"),
    [(all_but_the_last, everything), (by_a_word, everything), (a_part_of_each_layer, layers_and_head)],
)
def test_what_an_optimizer_was_handed_with_all_around_it_may_stay_frozen(freeze: Freeze, parts: Parts) -> None:
    assert found_after(freeze, parts, depth=4) == ()


def test_what_should_learn_is_asked_of_nothing_else_where_it_is_named() -> None:
    model, x = Net(), torch.randn(4, 3)
    by_a_beginning(model)
    assert gradkit.diagnose(lambda: model(x), model=model, should_train=["head.*"]).healthy
