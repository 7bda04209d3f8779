"""A change is written where the person works, never into what is installed; the next diagnosis runs what is written."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core import package
from gradkit.core.errors import GradkitError
from gradkit.core.records import Change
from gradkit.notebook.panel import Panel
from gradkit.notebook.parts import shown
from gradkit.report import fix
from gradkit.teaching import examples
from tests.notebook.test_panel import press, text_of


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(name: str) -> Panel:
    panel = Panel()
    panel.form.kind.value = "builtin"
    panel.form.source.names.value = f"{name}.title"
    press(panel, panel.diagnose)
    return panel


def step_in(file: str) -> Panel:
    panel = Panel()
    panel.form.kind.value = "file"
    panel.form.source.mode.value = "step"
    panel.form.source.step.control.value = file
    press(panel, panel.diagnose)
    return panel


def write_and_diagnose(panel: Panel) -> None:
    walk = panel.results.guide
    walk.go(3)
    assert shown(walk.change.write)
    walk.change.write.click()
    assert not shown(walk.change.problem)
    press(panel, walk.change.again)


@pytest.mark.parametrize("name", ["resume_lora", "vision_memory_detached"])
def test_an_example_is_copied_mended_there_and_found_sound(name: str, work: Path) -> None:
    shipped = {path: path.read_bytes() for path in (package.FOLDER / "cases").rglob("*.py")}
    panel = example(name)
    copy = work / "gradkit-examples" / name
    assert panel.report.findings[0].location.file.startswith(str(copy))
    write_and_diagnose(panel)
    assert panel.report.healthy
    assert list(copy.rglob("*.before-gradkit"))
    assert shipped == {path: path.read_bytes() for path in (package.FOLDER / "cases").rglob("*.py")}


def test_a_copy_that_a_person_changed_is_left_as_it_is(work: Path) -> None:
    file = examples.copied("resume_lora", work) / "resume_lora.py"
    mine = file.read_text(encoding="utf-8") + "\n# mine\n"
    file.write_text(mine, encoding="utf-8")
    examples.copied("resume_lora", work)
    assert file.read_text(encoding="utf-8") == mine


def test_a_copy_imports_its_own_neighbours(work: Path) -> None:
    step = examples.from_copy("vision_memory_detached", work)
    copy = work / "gradkit-examples" / "vision_memory_detached"
    assert step.files
    assert all(Path(file).is_relative_to(copy) for file in step.files)
    assert not any(b"gradkit.cases" in path.read_bytes() for path in copy.rglob("*.py"))


def test_a_module_of_the_persons_by_the_name_of_an_example_stays_theirs(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = ModuleType("resume_lora")
    monkeypatch.setitem(sys.modules, "resume_lora", theirs)
    assert examples.from_copy("resume_lora_fixed", work).run() is not None
    assert sys.modules["resume_lora"] is theirs


def test_where_no_copy_can_be_made_the_example_runs_and_nothing_is_offered_to_be_written(work: Path) -> None:
    (work / "gradkit-examples").write_text("in the way", encoding="utf-8")
    panel = example("vision_memory_detached")
    walk = panel.results.guide
    walk.go(3)
    assert not shown(walk.change.write)
    assert "belongs to an installed package" in text_of(walk.change.note.value)


def test_neither_gradkit_nor_an_installed_package_is_written_to() -> None:
    change = [Change("-", 1, "x = 1"), Change("+", 1, "x = 2")]
    for file in (gradkit.__file__, nn.__file__, torch.__file__):
        before = Path(file).read_bytes()
        assert not fix.edit_possible(file, change)
        with pytest.raises(GradkitError) as raised:
            fix.apply_edit(file, change)
        assert raised.value.key == "edit_installed"
        assert Path(file).read_bytes() == before


HELPER = """def features(x):
    return x.detach()
"""
TRAIN = """import torch
from torch import nn
from {helper} import features

net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def step():
    return net[1](features(net[0](torch.ones(3, 4)))).square().mean()
"""


@pytest.mark.parametrize("helper", ["helper", "parts.helper"])
def test_a_change_to_a_neighbour_is_what_the_next_diagnosis_runs(helper: str, work: Path) -> None:
    file = work.joinpath(*helper.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    file.write_text(HELPER, encoding="utf-8")
    (work / "train.py").write_text(TRAIN.format(helper=helper), encoding="utf-8")
    panel = step_in("train.py:step")
    assert panel.report.findings[0].location.file == str(file)
    write_and_diagnose(panel)
    assert panel.report.healthy
    assert "detach" not in file.read_text(encoding="utf-8")
    panel.results.guide.change.undo.click()
    press(panel, panel.diagnose)
    assert [finding.cause for finding in panel.report.findings] == ["detach"]


def test_a_change_to_a_folder_beside_that_of_the_program_is_what_the_next_diagnosis_runs(work: Path) -> None:
    file, program = work / "lib" / "features_beside.py", work / "scripts" / "train.py"
    for one in (file, program):
        one.parent.mkdir()
    file.write_text(HELPER, encoding="utf-8")
    path = f"import sys\nsys.path.insert(0, {str(file.parent)!r})\n"
    program.write_text(path + TRAIN.format(helper="features_beside"), encoding="utf-8")
    panel = step_in("scripts/train.py:step")
    write_and_diagnose(panel)
    assert panel.report.healthy
