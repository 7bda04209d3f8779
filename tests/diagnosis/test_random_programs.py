"""Random programs: the lines that are named are those that autograd itself needs undone, and no others."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings

import gradkit
from tests.programs import random as random_programs
from tests.programs.random import RandomProgram

# How many to try, each time others, and a miss made smaller: GRADKIT_RANDOM_PROGRAMS=5000 pytest tests/test_random_...
EXAMPLES = int(os.environ.get("GRADKIT_RANDOM_PROGRAMS", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 80,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],  # making a miss smaller takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
_numbers = itertools.count()


def judged(program: RandomProgram, folder: Path) -> list[str]:
    """What is wrong with the diagnosis of a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = random_programs.truth(program, folder / "oracle.py")
        if not known.trainable.intersection(known.connected):
            raise random_programs.UnusableError("nothing trains")
        model, step = program.load(folder / f"program_{next(_numbers)}.py")
        report = gradkit.diagnose(step, model=model)
    return random_programs.complaints(program, known, report.findings)


@pytest.mark.timeout(3600)
@SETTINGS
@given(program=random_programs.programs())
def test_the_lines_named_are_those_that_must_be_undone(program: RandomProgram, tmp_path: Path) -> None:
    try:
        wrong = judged(program, tmp_path)
    except random_programs.UnusableError as error:
        note(str(error))
        assume(False)
    assert wrong == [], program
