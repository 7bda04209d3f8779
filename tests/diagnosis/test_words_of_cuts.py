"""What is said of a cut speaks of what stands on its line, of who called it, and of what the rerun undid."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.func import stack_module_state

import gradkit
from gradkit.core.records import Finding

LAYER = nn.Linear(3, 3)
X = torch.ones(2, 3)


@torch.no_grad()
def hidden(x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = LAYER(x)
    return out


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = LAYER(x)
        return out

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return grad


def through_a_decorator(x: torch.Tensor) -> torch.Tensor:
    return hidden(x)


def through_a_function(x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = Twice.apply(x.clone().requires_grad_(True))  # type: ignore[no-untyped-call]
    return out


def first(step: Callable[[], torch.Tensor], model: nn.Module = LAYER) -> Finding:
    return gradkit.diagnose(step, model=model).findings[0]


def said(step: Callable[[], torch.Tensor], model: nn.Module = LAYER) -> str:
    return gradkit.diagnose(step, model=model).text("en")


@pytest.mark.parametrize("outer", [through_a_decorator, through_a_function])
def test_called_by_names_the_very_frame_that_called_the_function_of_the_cut(
    outer: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    found = first(lambda: outer(X).sum())
    (caller,) = [note.location for note in found.notes if note.kind == "called_by"]
    assert caller is not None
    assert caller.function == outer.__name__


def test_a_history_lost_within_a_library_function_is_not_told_as_a_detach_of_the_line() -> None:
    models = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])

    def step() -> torch.Tensor:
        params, _ = stack_module_state(list(models))
        return torch.as_tensor((params["weight"] * X).sum())

    text = said(step, models)
    assert "stack_module_state() returns values without their history" in text
    assert "detach()" not in text


def test_a_detach_on_the_line_is_told_by_its_name() -> None:
    assert "detach() takes the value out of the graph" in said(lambda: LAYER(X).detach().sum())


TWO = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])


def on_one_line() -> torch.Tensor:
    hidden = TWO[0](X).detach().requires_grad_(False)
    return torch.sum(TWO[1](hidden))


def on_a_copy() -> torch.Tensor:
    hidden = TWO[0](X).detach().clone().requires_grad_(False)
    return torch.sum(TWO[1](hidden))


def on_a_line_of_its_own() -> torch.Tensor:
    hidden = TWO[0](X).detach()
    hidden.requires_grad_(False)
    return torch.sum(TWO[1](hidden))


@pytest.mark.parametrize("step", [on_one_line, on_a_copy, on_a_line_of_its_own])
def test_a_flag_that_only_a_leaf_takes_is_said_to_go_with_the_detach(step: Callable[[], torch.Tensor]) -> None:
    text = said(step, TWO)
    assert "remove detach() together with the requires_grad_(False) of its result" in text
    assert "proven: in a rerun without it" in text
    assert "raised" not in text


def test_a_detach_of_something_else_says_nothing_of_a_flag() -> None:
    def step() -> torch.Tensor:
        TWO[1].requires_grad_(True)
        mask = torch.ones(3).requires_grad_(False)
        return torch.sum(TWO[1](TWO[0](X).detach() * mask))

    assert "requires_grad_(False)" not in said(step, TWO).partition("help:")[2]


def test_values_that_become_the_data_of_a_tensor_are_not_said_to_be_returned() -> None:
    made, net = nn.Linear(2, 3), nn.Linear(2, 1)
    both = nn.ModuleList([made, net])

    def step() -> torch.Tensor:
        nn.utils.vector_to_parameters(made(torch.ones(2)), net.parameters())
        return torch.sum(net(torch.ones(2)))

    text = said(step, both)
    assert "stored as the data of another tensor" in text
    assert "functional_call" in text
    assert "returns values" not in text


def test_the_values_of_a_sparse_tensor_are_to_be_taken_with_their_history() -> None:
    def step() -> torch.Tensor:
        edges = torch.sparse_coo_tensor(torch.arange(3).view(1, 3), LAYER.bias, (3,)).coalesce()
        return edges._values().sum() + LAYER.weight.sum()

    assert "coalesce().values()" in said(step)


def test_two_cuts_in_series_are_proven_together() -> None:
    def step() -> torch.Tensor:
        out = LAYER(X).detach()
        return torch.tensor(out.tolist()).sum()

    text = said(step)
    assert text.count("and the other cuts") == 2
    assert "proven: in a rerun without it," not in text


def test_a_parameter_made_of_bare_values_has_a_note_of_the_cut_below_it() -> None:
    def step() -> torch.Tensor:
        weight = nn.Parameter(LAYER.weight.data.clamp(min=0))
        return (X @ weight).sum() + LAYER.bias.sum()

    found = first(step)
    assert found.cause == "parameter_rewrap"
    assert "cuts_too" in [note.kind for note in found.notes]
    assert "and the other cuts" in said(step)


def test_a_leaf_that_is_written_while_autograd_records_is_not_helped_by_a_new_name() -> None:
    def step() -> torch.Tensor:
        LAYER.weight += 1
        return torch.sum(LAYER(X))

    text = said(step)
    assert "torch.no_grad() block" in text
    assert "x = x + y" not in text


@pytest.mark.filterwarnings("ignore")
def test_the_operation_that_anomaly_mode_stops_at_is_named_by_its_line() -> None:
    def step() -> torch.Tensor:
        out = LAYER(X) * 0
        return torch.where(out > 0, torch.log(out), out).sum()

    with torch.autograd.set_detect_anomaly(True):
        found = first(step)
    assert (found.cause, found.call) == ("nan_gradient", "log")


def test_a_detach_that_is_told_to_need_no_gradient_goes_with_that() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), torch.randn(4, 3)

    def step() -> torch.Tensor:
        hidden = model[0](x).detach().requires_grad_(False)
        loss: torch.Tensor = model[1](hidden).square().mean()
        return loss

    (found,) = gradkit.diagnose(step, model=model).findings
    assert found.tried is not None
    assert [one.text.strip() for one in found.tried.changes if one.sign == "+"] == ["hidden = model[0](x)"]
