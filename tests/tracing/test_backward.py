"""Where a real backward hands out gradients, and what a model says of its parameters."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from gradkit.core.errors import GradkitError
from gradkit.diagnosis.facts import inventory
from gradkit.state.preserve import Preserved
from gradkit.tracing import backward


def reached(model: nn.Module, loss: torch.Tensor) -> backward.Reached:
    with Preserved(model) as preserved:
        return backward.backward(loss, preserved)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))


X = torch.ones(2, 4)


def test_every_parameter_behind_the_loss_is_reached_with_its_norm() -> None:
    model = small()
    found = reached(model, model(X).sum())
    assert list(found.norms) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert found.norms["1.bias"] == 2.0
    assert (found.runs, found.error, found.elements) == (True, "", 1)


def test_a_parameter_behind_a_detach_is_not_reached() -> None:
    model = small()
    assert list(reached(model, model[1](model[0](X).detach()).sum()).norms) == ["1.weight", "1.bias"]


def test_a_gradient_of_zeros_arrives_too() -> None:
    model = small()
    assert reached(model, model(X).sum() * 0.0).norms["0.weight"] == 0.0


def test_a_loss_without_history_has_nothing_to_start_from() -> None:
    found = reached(small(), torch.ones(()))
    assert (found.norms, found.runs) == ({}, False)


def test_a_loss_of_several_elements_starts_from_ones_and_says_so() -> None:
    model = small()
    found = reached(model, model(X))
    assert found.elements == 2
    assert found.norms["1.bias"] == 2.0


def test_gradients_that_were_there_do_not_count_and_are_there_again() -> None:
    model = small()
    model[0].weight.grad = before = torch.full((3, 4), 7.0)
    assert "0.weight" not in reached(model, model[1](torch.ones(2, 3)).sum()).norms
    assert model[0].weight.grad is before
    assert before.unique().tolist() == [7.0]
    assert model[1].weight.grad is None


def test_a_graph_from_before_the_step_is_not_freed() -> None:
    model = small()
    loss = model(X).sum()
    with Preserved(model) as preserved:
        since = torch._C._autograd._get_sequence_nr()
        backward.backward(loss * 2, preserved, since)
    loss.backward()


def test_an_error_in_backward_is_told_and_does_not_come_through() -> None:
    model = small()
    hidden = model[0](X)
    out = hidden.exp()
    with torch.no_grad():
        hidden.data.add_(1)
        out.add_(1)
    found = reached(model, model[1](out).sum())
    assert "modified by an inplace operation" in found.error


def test_a_parameter_that_is_reached_under_two_names_is_told_under_both() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 1)})
    model["b"] = model["a"]
    assert set(reached(model, model["a"](X).sum()).norms) == {"a.weight", "a.bias", "b.weight", "b.bias"}


@pytest.mark.parametrize(
    ("gradient", "norm"),
    [
        (torch.tensor([3.0, 4.0]), 5.0),
        (torch.tensor([3e30, 4e30]), 5e30),
        (torch.tensor([3e200, 4e200], dtype=torch.float64), 4e200),
        (torch.tensor([3e-30, 4e-30]), 5e-30),
        (torch.tensor([3.0, 4.0], dtype=torch.bfloat16), 5.0),
        (torch.tensor([3.0 + 4.0j]), 5.0),
        (torch.eye(2).to_sparse() * 3, math.sqrt(18)),
        (torch.zeros(0), 0.0),
        (torch.tensor([1.0, math.inf]), math.inf),
    ],
    ids=["plain", "big", "bigger", "little", "bfloat16", "complex", "sparse", "empty", "infinite"],
)
def test_the_norm_of_a_gradient(gradient: torch.Tensor, norm: float) -> None:
    parameter = nn.Parameter(torch.zeros(gradient.shape, dtype=gradient.dtype))
    parameter.grad = gradient
    found = backward.norms({"p": parameter})["p"]
    assert found == pytest.approx(norm, rel=0.3 if norm > 1e100 else 1e-5)
    assert backward.not_finite({"p": found}, ["p"]) == (("p",) if math.isinf(norm) else ())


def test_a_gradient_with_nan_is_not_finite() -> None:
    assert backward.not_finite({"a": math.nan, "b": 1.0, "c": None}, ["a", "b", "c", "d"]) == ("a",)


def test_the_node_that_makes_a_gradient_nan_is_found_by_its_sequence_number() -> None:
    model = small()
    with Preserved(model) as preserved:
        square = (model(X) - model(X)).pow(2).sum()
        before = torch._C._autograd._get_sequence_nr()
        root = square.sqrt()
        assert backward.not_finite_at(root * 2, preserved) == (before,)


def test_where_all_is_finite_no_node_is_found() -> None:
    model = small()
    with Preserved(model) as preserved:
        assert backward.not_finite_at(model(X).sum(), preserved) == ()


def test_a_very_deep_graph_is_walked_without_recursion() -> None:
    weight = nn.Parameter(torch.ones(1))
    loss: Any = weight
    for _ in range(20_000):
        loss = loss + 1
    assert backward.leaves_of(loss) == [weight]


# -- what should train ------------------------------------------------------------------------------------------------


def test_by_default_all_that_require_grad_should_train_each_once() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 1)})
    model["b"] = model["a"]
    model["a"].bias.requires_grad_(False)
    assert inventory.wanted(model, None) == ("a.weight",)


def test_names_and_globs_choose_also_what_is_frozen() -> None:
    model = small().requires_grad_(False)
    assert inventory.wanted(model, ["0.*", "1.bias"]) == ("0.weight", "0.bias", "1.bias")


def test_a_pattern_that_matches_nothing_is_an_error_that_lists_names() -> None:
    with pytest.raises(GradkitError) as caught:
        inventory.wanted(small(), ["0.weight", "nope.*"])
    assert "nope.*" in str(caught.value)
    assert "1.bias" in str(caught.value)


def test_tensors_that_are_named_and_no_parameters_are_told_with_their_way() -> None:
    model = small()
    model.layers, model.scale = [nn.Linear(2, 2)], {"a": torch.ones(1)}
    found = inventory.unregistered(model, ["layers.0.weight", "scale.a", "0.*"])
    assert [hidden.name for hidden in found] == ["layers.0.weight", "scale.a"]
    assert found[0].way == ((nn.Sequential, "layers"), (nn.Linear, "weight"))


def test_the_table_has_a_row_for_every_name() -> None:
    model = small()
    model[1].eval()
    model[1].bias.requires_grad_(False)
    rows = inventory.table(model, ["0.weight"], ["0.weight"], backward.Reached({"0.weight": 2.0}, True))
    assert [row.name for row in rows] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    first, last = rows[0], rows[-1]
    assert (first.shape, first.numel, first.dtype, first.grad_norm) == ((3, 4), 12, "float32", 2.0)
    assert (first.should_train, first.used, first.reached, first.training) == (True, True, True, True)
    assert (last.requires_grad, last.should_train, last.reached, last.training) == (False, False, False, False)
    assert first.module == "Linear"
