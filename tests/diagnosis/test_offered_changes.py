"""Every change that is offered for the faulty programs is written into a copy of them, and they are diagnosed again."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.source.changes import applied
from gradkit.types import Report
from tests.programs import cut
from tests.programs.shared import Built

OTHERWISE_WRONG = {
    "three_cuts_each_behind_a_layer": {"python_roundtrip"},
    "a_zero_derivative_hidden_behind_a_detach": {"zero_gradient"},
    "a_critic_behind_two_cuts_beside_an_advantage_that_is_detached_on_purpose": {"integer_cast", "numpy_roundtrip"},
}
"""What is still wrong with a program, where no change is offered for all of it."""
SAMPLE = 6
NAMES = [
    pytest.param(name, marks=[] if number % SAMPLE == 0 or name in OTHERWISE_WRONG else [pytest.mark.slow])
    for number, name in enumerate(cut.PROGRAMS)
]


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Callable[[str, str], Callable[[], Built]]]:
    """Imports a text as a module, and hands out one of its functions."""
    before = set(sys.modules)

    def load(text: str, name: str) -> Callable[[], Built]:
        file = tmp_path / f"offered_{len(sys.modules)}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)  # type: ignore[no-any-return]

    yield load
    for name in set(sys.modules) - before:
        if name.startswith("offered_"):
            del sys.modules[name]


def diagnosed(build: Callable[[], Built]) -> Report:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, step = build()
    given = {name: getattr(step, name) for name in ("should_train", "optimizer") if hasattr(step, name)}
    return gradkit.diagnose(step, model=model, **given)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_offered_cures_or_leaves_what_is_wrong_elsewhere(
    name: str, loaded: Callable[[str, str], Callable[[], Built]]
) -> None:
    text = Path(cut.PROGRAMS[name].file).read_text(encoding="utf-8")
    report = diagnosed(loaded(text, name))
    offered = (line for finding in report.findings if finding.tried is not None for line in finding.tried.changes)
    lines = list(dict.fromkeys(offered))  # in their order: several may stand for one line
    if not lines:
        return
    after = diagnosed(loaded(applied(text, sorted(lines, key=lambda one: (one.number, one.sign != "-"))), name))
    assert {finding.cause for finding in after.findings} == OTHERWISE_WRONG.get(name, set())
