"""Every program stands in the file of its cause."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import gradkit
from tests import programs
from tests.programs import cut, sound, state

CAUSES = {
    folder.name
    for folder in (Path(gradkit.__file__).parent / "teaching" / "guides").iterdir()
    if (folder / "en.md").exists()
}
# Sound programs that look like no cause in particular.
OTHERS = {"tests.programs.sound": {"ordinary"}}
PACKAGES = ("tests.programs.cut", "tests.programs.sound", "tests.programs.state")
FILES = [pytest.param(file, id=file.__name__) for package in PACKAGES for file in programs.files(package)]


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_programs_has_the_name_of_a_cause(file: ModuleType) -> None:
    package, _, name = file.__name__.rpartition(".")
    assert name in CAUSES | OTHERS.get(package, set())


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_programs_can_be_read_at_one_sitting(file: ModuleType) -> None:
    assert file.__file__ is not None
    assert len(Path(file.__file__).read_text(encoding="utf-8").splitlines()) <= 500


@pytest.mark.parametrize("name", [*cut.PROGRAMS, *state.FAULTY])
def test_a_faulty_program_stands_in_the_file_of_its_cause(name: str) -> None:
    program = cut.PROGRAMS.get(name) or state.FAULTY[name]
    assert Path(program.file).stem == program.cause


@pytest.mark.parametrize("file", FILES)
def test_every_function_that_is_entered_is_collected(file: ModuleType) -> None:
    assert file.__file__ is not None
    lines = Path(file.__file__).read_text(encoding="utf-8").splitlines()
    entered = sum(line.startswith(("@cut(", "@faulty(", "@sound")) for line in lines)
    known = [program.file for program in (*cut.PROGRAMS.values(), *state.FAULTY.values())]
    known += [build.__code__.co_filename for build in (*sound.PROGRAMS.values(), *state.SOUND.values())]
    assert entered == known.count(file.__file__) > 0
