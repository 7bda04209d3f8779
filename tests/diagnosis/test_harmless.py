"""Stop-gradients that starve nobody are listed, with the reason, and never among the findings."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.report.report import Report
from tests.programs import cut as cut_programs
from tests.programs import sound as sound_programs
from tests.programs.shared import Built, batch, pair, small


def report_of(built: Built) -> Report:
    model, step = built
    return gradkit.diagnose(step, model=model)


def reasons(report: Report) -> list[tuple[str, str]]:
    return [(one.kind, one.why) for one in report.harmless]


def a_loss_copied_for_the_log() -> Built:
    model, x, history = small(), batch(), []

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        history.append(loss.detach())
        return loss

    return model, step


def a_loss_logged_as_a_number() -> Built:
    model, x, history = small(), batch(), []

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        history.append(loss.item())
        return loss

    return model, step


def a_step_that_trains_and_returns_a_validation_loss() -> Built:
    model, x, held_out = small(), batch(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            return model(held_out).square().mean()

    return model, step


def a_step_that_trains_and_returns_its_loss_for_a_log() -> Built:
    model, x = small(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            return loss / 2

    return model, step


def a_frozen_encoder() -> Built:
    model, x = pair(), batch()
    model["inner"].requires_grad_(False)

    def step() -> torch.Tensor:
        with torch.no_grad():
            code = model["inner"](x)
        return model["outer"](code).sum()

    return model, step


def a_straight_through_estimate() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        return model["outer"](code + (code.round() - code).detach()).sum()

    return model, step


def a_moving_average() -> Built:
    model, x = small(), batch()
    average = nn.Linear(4, 8)

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        with torch.no_grad():
            average.weight.mul_(0.9).add_(0.1 * model[0].weight)
        return loss

    return model, step


def padding_with_zeros() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        code = torch.cat([model["inner"](x), torch.zeros(2, 4)])
        return model["outer"](code).sum()

    return model, step


@pytest.mark.parametrize(
    ("build", "kind", "why"),
    [
        (a_loss_copied_for_the_log, "detach", "log"),
        (a_loss_logged_as_a_number, "number", "left"),
        (a_frozen_encoder, "no_grad", "frozen"),
        (a_straight_through_estimate, "detach", "other_way"),
        (a_step_that_trains_and_returns_a_validation_loss, "no_grad", "returned"),
        (a_step_that_trains_and_returns_its_loss_for_a_log, "no_grad", "other_way"),
        (a_moving_average, "no_grad", "state"),
        (padding_with_zeros, "join", "constant"),
    ],
)
def test_it_is_listed_with_its_reason(build: Callable[[], Built], kind: str, why: str) -> None:
    report = report_of(build())
    assert report.healthy
    assert reasons(report) == [(kind, why)]


def test_a_program_without_any_lists_nothing() -> None:
    model, x = small(), batch()
    report = gradkit.diagnose(lambda: model(x).sum(), model=model)
    assert report.harmless == ()
    assert "harmless" not in report.text("en")


def test_a_line_that_is_blamed_is_never_called_harmless() -> None:
    for name in ("a_state_detached_in_a_loop", "two_ways_that_are_both_cut", "four_cuts_one_behind_the_other"):
        report = report_of(cut_programs.PROGRAMS[name].build())
        blamed = {finding.location.line for finding in report.findings if finding.location}
        assert blamed.isdisjoint(one.location.line for one in report.harmless), name


def test_what_a_library_does_inside_is_not_listed() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=1, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    ids = torch.randint(0, 20, (2, 6))
    assert gradkit.diagnose(model, {"input_ids": ids, "labels": ids}).harmless == ()


def test_a_line_that_runs_many_times_is_listed_once() -> None:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        total = torch.zeros(())
        shown = []
        for row in x:
            loss = F.mse_loss(model(row), torch.ones(1))
            shown.append(loss.detach())
            total = total + loss
        return total

    assert reasons(gradkit.diagnose(step, model=model)) == [("detach", "log")]


def test_a_handful_is_enough() -> None:
    report = report_of(sound_programs.PROGRAMS["logging_and_metrics"]())
    assert 1 < len(report.asides()) <= 6
    assert len(report.harmless) >= len(report.asides())


def test_the_text_names_line_and_reason_in_both_languages() -> None:
    report = report_of(a_frozen_encoder())
    line = report.harmless[0].location.line
    assert f"test_harmless.py:{line}  no_grad: nothing that should train comes before it" in report.text("en")
    assert "它之前没有应当训练的参数" in report.text("zh")


def test_the_page_folds_them_away() -> None:
    page = report_of(a_frozen_encoder()).html("en", with_picture=False)
    assert "<details" in page
    assert "nothing that should train comes before it" in page


def test_scripts_get_them_as_plain_data() -> None:
    data = json.loads(json.dumps(report_of(a_frozen_encoder()).data()))
    assert [(one["kind"], one["why"]) for one in data["harmless"]] == [("no_grad", "frozen")]


def a_layer_that_its_own_hooks_freeze() -> Built:
    model, x = pair(), batch()
    for parameter in model["inner"].parameters():
        parameter.register_hook(lambda grad: grad * 0)
    return model, lambda: model["outer"](model["inner"](x)).sum()


def test_a_hook_that_freezes_its_own_parameter_is_listed() -> None:
    report = report_of(a_layer_that_its_own_hooks_freeze())
    assert report.healthy
    assert reasons(report) == [("hook", "own_hook")]
    assert "hook: it keeps its own parameter from learning" in report.text("en")
    assert "这是冻结参数的一种写法" in report.text("zh")


def test_a_hook_that_freezes_what_was_said_to_train_is_blamed() -> None:
    model, step = a_layer_that_its_own_hooks_freeze()
    report = gradkit.diagnose(step, model=model, should_train=["inner.*"])
    assert [(f.cause, f.parameters) for f in report.findings] == [("hook_misuse", ("inner.weight", "inner.bias"))]
    assert report.harmless == ()
