"""Under ``python -W error`` a diagnosis runs and causes no warning of its own; those of the step are left to it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import gradkit
from gradkit import testing
from gradkit.core.errors import GradkitError

PROGRAM = """
import sys
before = list(sys.path)
import torch
import gradkit
model = torch.nn.Linear(2, 1)
report = gradkit.diagnose(lambda: model(torch.ones(1, 2)).detach().sum(), model=model)
assert [one.cause for one in report.findings] == ["detach"]
assert report.text() and report.svg() and report.html()
assert report.graph(view="torchviz")
assert "torchviz" in sys.modules and "distutils" not in sys.modules
assert sys.path == before, sys.path
"""


@pytest.fixture
def _every_warning_is_an_error() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


strict = pytest.mark.usefixtures("_every_warning_is_an_error")


def pair() -> nn.ModuleDict:
    return nn.ModuleDict({"inner": nn.Linear(3, 4), "outer": nn.Linear(4, 1)})


def causes(report: gradkit.Report) -> list[str]:
    return [finding.cause for finding in report.findings]


def test_a_diagnosis_runs_where_every_warning_is_an_error() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@strict
def test_what_is_no_leaf_in_the_place_of_a_parameter_is_asked_for_its_gradient_without_a_warning() -> None:
    model, x = pair(), torch.ones(5, 3)
    weight = model["inner"].weight
    model["inner"]._parameters["weight"] = weight * 1  # as second-order meta-learning does
    assert causes(gradkit.diagnose(lambda: model["outer"](model["inner"](x).detach()).sum(), model=model)) == ["detach"]


@strict
def test_a_compiled_module_is_not_warned_of_hooks_that_are_not_the_users() -> None:
    model, x = pair(), torch.ones(5, 3)
    compiled = torch.compile(model["inner"], backend="eager")
    assert causes(gradkit.diagnose(lambda: model["outer"](compiled(x).detach()).sum(), model=model)) == ["detach"]


def test_a_compiled_module_is_warned_of_hooks_that_are_the_users() -> None:
    model, x = pair(), torch.ones(5, 3)
    compiled = torch.compile(model["inner"], backend="eager")
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, made: None)
    try:
        with pytest.warns(UserWarning, match="global hooks on modules"):
            gradkit.diagnose(lambda: model["outer"](compiled(x)).sum(), model=model)
    finally:
        handle.remove()


def hooked() -> tuple[nn.ModuleDict, torch.Tensor]:
    """Torch warns in the backward of this model: a full hook of a module whose input needs no gradient."""
    model = pair()
    model["inner"].register_full_backward_hook(lambda module, into, out: None)
    return model, torch.ones(5, 3)


@strict
def test_a_warning_in_backward_does_not_end_the_diagnosis_and_is_told() -> None:
    model, x = hooked()
    report = gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model)
    assert report.healthy
    assert [one.what for one in report.untried] == ["warning"]
    assert "Full backward hook is firing" in report.text("en")
    assert "Full backward hook is firing" in report.text("zh")


def test_where_warnings_are_no_errors_one_in_backward_is_shown_as_ever() -> None:
    model, x = hooked()
    with pytest.warns(UserWarning, match="Full backward hook is firing"):
        report = gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model)
    assert report.untried == ()


def test_beside_an_error_filter_for_others_a_warning_in_backward_is_shown_as_ever() -> None:
    model, x = hooked()

    def diagnosed() -> gradkit.Report:
        warnings.filterwarnings("error", category=FutureWarning)
        return gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model)

    with pytest.warns(UserWarning, match="Full backward hook is firing"):
        report = diagnosed()
    assert report.untried == ()


@strict
def test_a_model_that_warns_in_backward_passes_as_one_that_learns() -> None:
    model, x = hooked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert testing.assert_learns(model, lambda: model["outer"](model["inner"](x)).sum(), optimizer=optimizer).healthy


@strict
def test_a_warning_that_the_step_raises_is_an_error_of_the_step() -> None:
    model, x = pair(), torch.ones(5, 3)

    def step() -> torch.Tensor:
        warnings.warn("old", FutureWarning, stacklevel=1)
        return model["outer"](model["inner"](x)).sum()

    with pytest.raises(GradkitError, match="FutureWarning: old"):
        gradkit.diagnose(step, model=model)


@strict
def test_the_filters_are_afterwards_as_before() -> None:
    model, x = hooked()
    before = list(warnings.filters)
    gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model)
    assert list(warnings.filters) == before


def test_a_step_that_compiles_leaves_the_compiler_as_it_was() -> None:
    compiler = importlib.import_module("torch._dynamo.eval_frame")
    model, before = nn.Linear(2, 1), compiler._stance
    report = gradkit.diagnose(
        lambda: torch.compile(model, backend="eager")(torch.ones(1, 2)).detach().sum(), model=model
    )
    assert causes(report) == ["detach"]
    assert compiler._stance is before


def test_what_a_step_is_the_first_in_the_process_to_compile_is_run_as_it_was_written() -> None:
    program = """
import sys, torch, gradkit
model = torch.nn.Linear(2, 1)
assert "torch._dynamo" not in sys.modules
step = lambda: torch.compile(model, backend="eager")(torch.ones(1, 2)).detach().sum()
print(gradkit.diagnose(step, model=model).findings[0].cause, torch._dynamo.eval_frame._stance.stance)
print(len(torch._dynamo.utils.counters["frames"]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["detach", "default", "0"], run.stderr
