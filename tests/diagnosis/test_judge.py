"""A change is offered only if it cures: applied to a copy of the program, it gives the gradients that were meant."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import gradkit
from gradkit.core.records import Finding
from gradkit.report import fix
from gradkit.types import Report
from tests.programs import judged
from tests.programs.judged import Judged

COUNT = itertools.count()


def imported(file: Path) -> ModuleType:
    """A file as a module of its own, so that nothing of an earlier state of it is left."""
    copy = file.with_name(f"judged_{next(COUNT)}.py")
    shutil.copy(file, copy)
    spec = importlib.util.spec_from_file_location(copy.stem, copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[copy.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[ModuleType]:
    before = set(sys.modules)
    yield imported(Path(shutil.copy(judged.__file__, tmp_path / "programs.py")))
    for name in set(sys.modules) - before:
        if name.startswith("judged_"):
            del sys.modules[name]


def diagnosed(program: Judged) -> Report:
    return gradkit.diagnose(program.step, model=program.model, optimizer=program.optimizer)


def offered(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.tried is not None and finding.tried.changes]


def cured(programs: ModuleType, report: Report) -> ModuleType:
    """The program after every offered change was written into its file."""
    assert programs.__file__ is not None
    file = Path(programs.__file__)
    for finding in offered(report):
        assert finding.tried is not None
        fix.apply_edit(file, finding.tried.changes)
    return imported(file)


def gradients(program: Judged) -> dict[str, torch.Tensor | None]:
    """What each optimizer of the program would take after one step of its own, or one backward of its loss."""
    program.model.zero_grad()
    loss = program.step()
    if loss.grad_fn is not None and all(p.grad is None for p in program.model.parameters()):
        loss.backward()
    return {name: parameter.grad for name, parameter in program.model.named_parameters()}


def assert_alike(one: dict[str, torch.Tensor | None], other: dict[str, torch.Tensor | None]) -> None:
    assert one.keys() == other.keys()
    for name, grad in one.items():
        meant = other[name]
        assert (grad is None) == (meant is None), name
        if grad is not None and meant is not None:
            cosine = torch.cosine_similarity(grad.flatten().double(), meant.flatten().double(), 0)
            assert float(cosine) >= 0.99, name


CURED = (
    "generated_once", "handed_back", "a_block_round_frozen_and_trained", "kept_in_an_attribute", "a_decorated_method",
    "a_block_round_teacher_and_student", "a_carried_state", "detached_in_a_helper", "reentrant",
)  # fmt: skip


@pytest.mark.parametrize("name", CURED)
def test_the_offered_change_gives_the_gradients_that_were_meant(programs: ModuleType, name: str) -> None:
    report = diagnosed(getattr(programs, name)())
    assert offered(report)
    after = cured(programs, report)
    assert_alike(gradients(getattr(after, name)()), gradients(getattr(after, f"{name}_fixed")()))


@pytest.mark.parametrize("name", CURED)
def test_after_the_offered_change_nothing_is_found_any_more(programs: ModuleType, name: str) -> None:
    after = cured(programs, diagnosed(getattr(programs, name)()))
    assert diagnosed(getattr(after, name)()).findings == ()
