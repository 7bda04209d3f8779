"""Layers that a function or method builds anew in every forward: named is who has them built, not the factory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.errors import GradkitError
from tests.marks import line_ending

X = torch.linspace(-1, 1, 12).view(4, 3)


def head(n: int, out: int) -> nn.Module:
    return nn.Linear(n, out)


def mlp(*sizes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for n, out in itertools.pairwise(sizes):
        layers += [head(n, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Model(nn.Module):
    norm: Callable[[], nn.Module] = partial(nn.LayerNorm, 3)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 3)

    def built(self) -> nn.Module:
        made = nn.Linear(3, 2)
        nn.init.normal_(made.weight)
        return made


class ByAFunction(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return head(3, 2)(self.stem(x))  # by a function


class ByFunctions(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return mlp(3, 4, 2)(self.stem(x))  # by functions


class ByAMethod(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.built()  # by a method
        return out(self.stem(x))


class ByAPartial(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm()(self.stem(x))  # by a partial


@pytest.mark.parametrize(
    ("model", "mark"),
    [
        (ByAFunction, "by a function"),
        (ByFunctions, "by functions"),
        (ByAMethod, "by a method"),
        (ByAPartial, "by a partial"),
    ],
)
def test_a_layer_that_a_factory_builds_in_forward_is_named_where_it_is_asked_for(
    model: type[nn.Module], mark: str
) -> None:
    made = model()
    found = gradkit.diagnose(lambda: made(X).square().mean(), model=made).findings
    assert {one.cause for one in found} == {"built_in_forward"}
    assert {one.location.line for one in found if one.location} == {line_ending(__file__, mark)}


class FixedFilter(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blur = nn.Linear(3, 3, bias=False)
        nn.init.constant_(blur.weight, 1 / 3)
        return blur.requires_grad_(False)(self.stem(x))


def test_a_fixed_filter_that_forward_makes_anew_is_sound() -> None:
    model = FixedFilter()
    assert not gradkit.diagnose(lambda: model(X).square().mean(), model=model).findings


def test_a_layer_of_any_function_is_named_where_should_train_names_what_the_model_does_not_have() -> None:
    model = Model()

    def step() -> torch.Tensor:
        return head(3, 2)(model.stem(X)).square().mean()  # in a step

    found = gradkit.diagnose(step, model=model, should_train=["decoder.weight"]).findings
    assert [one.cause for one in found] == ["built_in_forward"]
    assert {one.location.line for one in found if one.location} == {line_ending(__file__, "in a step")}


def test_a_name_that_nothing_has_is_an_error_where_nothing_else_explains_it() -> None:
    model = Model()

    def step() -> torch.Tensor:
        fixed = nn.Parameter(torch.ones(3), requires_grad=False)
        return (model.stem(X) * fixed).square().mean()

    with pytest.raises(GradkitError):
        gradkit.diagnose(step, model=model, should_train=["decoder.weight"])


class Idle(nn.Module):
    """Two layers of one factory, of which one takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.used = head(3, 2)
        self.idle = head(3, 2)  # idle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_an_idle_layer_of_a_factory_that_made_others_too_is_named_where_it_was_asked_for() -> None:
    model = Idle()
    (found,) = gradkit.diagnose(lambda: model(X).square().mean(), model=model).findings
    assert (found.cause, found.parameters) == ("trainable_unused", ("idle.weight", "idle.bias"))
    assert found.location is not None
    assert found.location.line == line_ending(__file__, "idle")
