"""A stop that is right is not accused where the loss takes what it stopped in place of the same with its history."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.report.report import Report
from tests.programs.shared import Built, batch, pair


def report_of(built: Built) -> Report:
    model, step = built
    return gradkit.diagnose(step, model=model)


def a_metric_in_place_of_the_features() -> Built:
    model, x, seen = pair(), batch(), []

    def step() -> torch.Tensor:
        live = model["inner"](x)
        with torch.no_grad():
            stopped = model["inner"](x)
            seen.append(stopped.norm().item())
        del live
        return model["outer"](stopped).sum()  # here

    return model, step


def a_term_in_place_of_the_one_that_trains() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        fit = F.mse_loss(model["outer"](code), x[:, :1])
        with torch.no_grad():
            baseline = F.mse_loss(model["outer"](code), x[:, :1])
        del fit
        return baseline + code.pow(2).mean()  # here

    return model, step


def a_dictionary_that_holds_the_wrong_loss() -> Built:
    model, x = pair(), batch()

    def losses() -> dict[str, torch.Tensor]:
        code = model["inner"](x)
        with torch.no_grad():
            running = model["outer"](code).pow(2).mean()
        train = model["outer"](code).pow(2).mean()
        return {"loss": running, "train": train}  # here

    def step() -> torch.Tensor:
        return losses()["loss"]

    return model, step


@torch.no_grad()
def measured(model: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    return model["outer"](model["inner"](x)).pow(2).mean()


def objective(model: nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    return model["outer"](model["inner"](x)).pow(2).mean()


def what_an_evaluation_returns() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        fit = objective(model, x)
        shown = measured(model, x)
        del fit
        return shown * 2  # here

    return model, step


def one_of_two_views_under_no_grad() -> Built:
    model, x = pair(), batch()
    other = x + 1

    def step() -> torch.Tensor:
        code = model["inner"](x)
        seen = model["outer"](code)
        with torch.no_grad():
            one, two = model["inner"](x), model["inner"](other)
        del seen
        guess = model["outer"](one)  # here
        return F.mse_loss(guess, two.mean(1, keepdim=True))

    return model, step


TAKEN = [
    one_of_two_views_under_no_grad,
    a_metric_in_place_of_the_features,
    a_term_in_place_of_the_one_that_trains,
    a_dictionary_that_holds_the_wrong_loss,
    what_an_evaluation_returns,
]


@pytest.mark.parametrize("build", TAKEN)
def test_the_line_that_takes_the_stopped_one_is_named(build: Callable[[], Built]) -> None:
    found = report_of(build()).findings[0]
    assert (found.cause, found.variant, found.proof) == ("trainable_unused", "stopped", "likely")
    assert found.location is not None
    assert found.location.text.endswith("# here")


@pytest.mark.parametrize("build", TAKEN)
def test_the_stop_itself_is_not_accused_and_no_change_of_it_is_offered(build: Callable[[], Built]) -> None:
    for found in report_of(build()).findings:
        assert found.tried is None
        assert found.location is None or "no_grad" not in found.location.text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_both_variables_are_called_by_their_names(language: str) -> None:
    text = report_of(a_term_in_place_of_the_one_that_trains()).text(language)
    assert "baseline" in text
    assert "fit" in text


# -- where it could be meant otherwise --------------------------------------------------------------------------------


def a_guess_that_is_logged() -> Built:
    model, x, seen = pair(), batch(), []

    def step() -> torch.Tensor:
        guess = model["inner"](x)
        seen.append(guess.norm().item())
        with torch.no_grad():
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


def a_copy_for_the_log_in_the_loss() -> Built:
    model, x, seen = pair(), batch(), []

    def step() -> torch.Tensor:
        code = model["inner"](x)
        copy = code.detach()
        seen.append(copy.norm().item())
        return model["outer"](copy).sum()

    return model, step


def another_batch_without_use() -> Built:
    model, x = pair(), batch()
    other = x + 1

    def step() -> torch.Tensor:
        first = model["inner"](x)
        with torch.no_grad():
            second = model["inner"](other)
        del first
        return model["outer"](second).sum()

    return model, step


DOUBTED = [a_guess_that_is_logged, a_copy_for_the_log_in_the_loss, another_batch_without_use]


@pytest.mark.parametrize("build", DOUBTED)
def test_a_stop_beside_a_live_twin_is_no_more_than_likely(build: Callable[[], Built]) -> None:
    found = report_of(build()).findings[0]
    assert found.cause in ("no_grad_block", "detach")
    assert (found.proof, found.doubt) == ("likely", "twin")
    assert [note.kind for note in found.notes].count("live_twin") == 1


@pytest.mark.parametrize("build", DOUBTED)
def test_a_stop_beside_a_live_twin_is_not_offered_to_be_taken_out(build: Callable[[], Built]) -> None:
    assert report_of(build()).findings[0].tried is None


# -- what is no twin --------------------------------------------------------------------------------------------------


def a_call_that_is_kept_nowhere() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        model["inner"](x)
        with torch.no_grad():
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


def a_detach_and_nothing_else() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        copy = code.detach()
        return model["outer"](copy).sum()

    return model, step


def another_batch_that_is_logged() -> Built:
    model, x, seen = pair(), batch(), []
    other = x + 1

    def step() -> torch.Tensor:
        first = model["inner"](x)
        seen.append(first.norm().item())
        with torch.no_grad():
            second = model["inner"](other)
        return model["outer"](second).sum()

    return model, step


def a_copy_for_another_network() -> Built:
    model, x, seen = pair(), batch(), []

    def step() -> torch.Tensor:
        fake = model["inner"](x)
        seen.append(model["outer"](fake.detach()).mean())
        with torch.no_grad():
            again = model["inner"](x)
        return model["outer"](again).sum()

    return model, step


def two_passes_held_against_each_other() -> Built:
    model, x, seen = pair(), batch(), []

    def step() -> torch.Tensor:
        one = model["inner"](x)
        with torch.no_grad():
            two = model["inner"](x)
        seen.append(F.mse_loss(one, two))
        return model["outer"](two).sum()

    return model, step


@pytest.mark.parametrize(
    "build",
    [
        a_call_that_is_kept_nowhere,
        a_detach_and_nothing_else,
        another_batch_that_is_logged,
        a_copy_for_another_network,
        two_passes_held_against_each_other,
    ],
)
def test_a_stop_without_a_live_twin_stays_proven(build: Callable[[], Built]) -> None:
    found = report_of(build()).findings[0]
    assert found.cause in ("no_grad_block", "detach")
    assert found.proof == "proven"


def a_target_beside_what_trains() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        live = model["inner"](x)
        spare = model["inner"](x)
        with torch.no_grad():
            target = model["inner"](x)
        del spare
        return F.mse_loss(model["outer"](live), model["outer"](target).detach() + 1)

    return model, step


def test_a_target_beside_what_trains_is_left_alone() -> None:
    assert report_of(a_target_beside_what_trains()).findings == ()
