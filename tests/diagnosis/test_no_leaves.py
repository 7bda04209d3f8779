"""A step that asks for the ``.grad`` of what is no leaf, or hands it to an optimizer: the line that computed it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from tests.programs.shared import Built, batch, cut, small


@cut("grad_on_non_leaf")
def the_gradient_of_a_clone() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        moved = x.clone().requires_grad_()
        moved = moved.clone()  # CUT
        model(moved).sum().backward()
        moved = moved - 0.1 * moved.grad
        loss: torch.Tensor = model(moved).square().mean()
        return loss

    return model, step


@cut("grad_on_non_leaf")
def the_gradient_of_a_reshaped_mask_that_a_helper_makes() -> Built:
    model, x = small(), batch()

    def mask() -> torch.Tensor:
        flat = torch.full((24,), 0.5, requires_grad=True)
        return flat.reshape(6, 4)  # CUT

    def step() -> torch.Tensor:
        kept = mask()
        model(x * kept).sum().backward()
        with torch.no_grad():
            kept -= 0.1 * kept.grad
        loss: torch.Tensor = model(x * kept).square().mean()
        return loss

    return model, step


@cut("grad_on_non_leaf")
def the_gradient_of_an_attribute_that_was_cast() -> Built:
    class Latent:
        code: torch.Tensor

    model, latent = small(), Latent()

    def step() -> torch.Tensor:
        latent.code = torch.randn(6, 4, requires_grad=True).double()  # CUT
        model(latent.code.float()).sum().backward()
        change = latent.code.grad.abs().mean()  # type: ignore[union-attr]
        loss: torch.Tensor = model(latent.code.float()).square().mean() * float(change)
        return loss

    return model, step


@cut("grad_on_non_leaf")
def an_optimizer_over_one_of_two_latents_whose_makers_have_one_name() -> Built:
    class Pose:
        def start(self) -> torch.Tensor:
            return torch.zeros(6, 4, requires_grad=True) + 0.1  # CUT

    class Shape:
        def start(self) -> torch.Tensor:
            return torch.zeros(6, 4, requires_grad=True)

    model = small()

    def fitted(value: torch.Tensor) -> torch.Tensor:
        optimizer = torch.optim.SGD([{"params": [value]}], lr=0.1)
        model(value).sum().backward()
        optimizer.step()
        loss: torch.Tensor = model(value).square().mean()
        return loss

    return model, lambda: fitted(Shape().start()) + fitted(Pose().start())


@cut("grad_on_non_leaf")
def an_optimizer_over_what_the_model_computes_anew() -> Built:
    class Points(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.raw, self.net = nn.Parameter(torch.randn(6, 4)), nn.Linear(4, 1)

        @property
        def points(self) -> torch.Tensor:
            return torch.tanh(self.raw)

    model = Points()

    def step() -> torch.Tensor:
        optimizer = torch.optim.SGD([model.points], lr=0.1)  # CUT
        model.net(model.points).sum().backward()
        optimizer.step()
        loss: torch.Tensor = model.net(model.points).square().mean()
        return loss

    return model, step


COMPUTED = [
    the_gradient_of_a_clone,
    the_gradient_of_a_reshaped_mask_that_a_helper_makes,
    the_gradient_of_an_attribute_that_was_cast,
    an_optimizer_over_one_of_two_latents_whose_makers_have_one_name,
    an_optimizer_over_what_the_model_computes_anew,
]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("build", COMPUTED, ids=lambda one: one.__name__)
def test_the_line_that_computed_what_is_no_leaf_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.proof) == ("grad_on_non_leaf", "observed")
    assert finding.location is not None
    assert {finding.location.line} == vars(build)["faulty"].lines


def test_a_none_of_another_kind_is_told_as_what_the_step_raised() -> None:
    model, x = small(), batch()
    kept = {"scale": None}

    def step() -> torch.Tensor:
        loss: torch.Tensor = (model(x) * kept["scale"]).mean()
        return loss

    with pytest.raises(gradkit.GradkitError, match="NoneType"):
        gradkit.diagnose(step, model=model)


def test_the_gradient_of_a_leaf_that_no_backward_has_filled_is_told_as_what_the_step_raised() -> None:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        points = x.clone().requires_grad_()
        loss: torch.Tensor = model(points - 0.1 * points.grad).mean()
        return loss

    with pytest.raises(gradkit.GradkitError, match="NoneType"):
        gradkit.diagnose(step, model=model)


def test_a_value_that_retains_its_gradient_may_be_asked() -> None:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        doubled = x.clone().requires_grad_() * 2
        doubled.retain_grad()
        model(doubled).sum().backward()
        model.zero_grad()
        loss: torch.Tensor = model(x - 0.1 * doubled.grad).square().mean()
        return loss

    assert gradkit.diagnose(step, model=model).healthy


@cut("unused_input")
def a_derivative_by_a_copy_that_a_helper_made() -> Built:
    class Sampler:
        def __init__(self, model: nn.Module) -> None:
            self.model = model

        def prepared(self, x: torch.Tensor) -> torch.Tensor:
            return x.double()

        def loss(self, x: torch.Tensor) -> torch.Tensor:
            copy = self.prepared(x)
            energy = self.model(x).sum()
            (slope,) = torch.autograd.grad(energy, copy, create_graph=True)  # CUT
            return slope.square().sum()

    model, x = small(), batch()
    return model, lambda: Sampler(model).loss(x.clone().requires_grad_())


def test_where_a_copy_is_asked_for_by_whom_a_helper_made_it_the_line_that_asks_is_named() -> None:
    build = a_derivative_by_a_copy_that_a_helper_made
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model, should_train=["0.weight", "2.weight"]).findings
    assert finding.cause == "unused_input"
    assert finding.location is not None
    assert {finding.location.line} == vars(build)["faulty"].lines
