"""The wheel holds all that gradkit needs, and works where nothing else of the repository is."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gradkit.core import causes, i18n
from gradkit.teaching import book
from tests.report import test_page
from tools import readme

REPO = Path(__file__).parents[1]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-q", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(REPO)], check=True)
    (made,) = folder.glob("gradkit-*.whl")
    return made


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command of a venv that has the wheel and, from this Python, its dependencies; in an empty folder."""
    venv, empty = tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    scripts = venv / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--no-deps", "--no-index", "-q"]
    subprocess.run([*pip, wheel], check=True)
    dependencies = str(importlib.metadata.distribution("torch").locate_file(""))
    (packages,) = {path.parent for path in venv.rglob("gradkit") if (path / "__init__.py").is_file()}
    (packages / "dependencies.pth").write_text(f"import site; site.addsitedir({dependencies!r})")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", i18n.VARIABLE)}

    def run(name: str, *arguments: str, cwd: Path = empty, status: int = 0) -> str:
        ran = subprocess.run(
            [scripts / name, *arguments],
            cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8", check=False,
        )  # fmt: skip
        assert ran.returncode == status, ran.stderr
        assert list(empty.iterdir()) == []
        return ran.stdout

    return run


def in_wheel(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_it_holds_the_package_file_by_file_and_nothing_else(wheel: Path) -> None:
    files = {path.relative_to(REPO).as_posix() for path in (REPO / "gradkit").rglob("*") if path.is_file()}
    sources = {name for name in files if "__pycache__" not in name and not name.endswith((".pyc", ".DS_Store"))}
    assert {name for name in in_wheel(wheel) if ".dist-info/" not in name} == sources


def test_guides_catalogues_books_style_and_settings_are_in_it(wheel: Path) -> None:
    names = in_wheel(wheel)
    for cause in causes.causes():
        assert {f"gradkit/teaching/guides/{cause}/{part}" for part in ("case.py", "en.md", "zh.md")} <= names
    books = {path.relative_to(REPO).as_posix() for path in (REPO / "gradkit" / "teaching" / "books").rglob("*.py")}
    assert "gradkit/teaching/books/start.py" in books
    assert books <= names
    settings = "gradkit/notebook/jupyter/labconfig/default_setting_overrides.json"
    assert {"gradkit/py.typed", "gradkit/report/static/report.css", settings} <= names
    for language in i18n.LANGUAGES:
        catalogues = {path.name for path in (REPO / "gradkit" / "locales" / language).glob("*.toml")}
        assert {f"gradkit/locales/{language}/{name}" for name in catalogues} <= names


def test_it_names_its_licence_its_command_and_no_file_of_this_machine(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        assert archive.read(f"{folder}/entry_points.txt").decode().split() == [
            "[console_scripts]",
            "gradkit",
            "=",
            "gradkit.cli:main",
        ]
        assert archive.read(f"{folder}/licenses/LICENSE") == (REPO / "LICENSE").read_bytes()
        for name in archive.namelist():
            assert str(REPO).encode() not in archive.read(name), name


def test_it_is_the_wheel_that_runs(installed: Run, wheel: Path) -> None:
    told = installed("python", "-c", "import gradkit; print(gradkit.__file__, gradkit.__version__)").split()
    assert not Path(told[0]).is_relative_to(REPO)
    assert f"-{told[1]}-" in wheel.name


def test_the_command_helps_and_lists_every_guide(installed: Run) -> None:
    assert "diagnose" in installed("gradkit", "--help")
    listed = installed("gradkit", "guides")
    assert all(cause in listed for cause in causes.causes())
    assert "```" in installed("gradkit", "guide", "detach", "--language", "zh")


@pytest.mark.parametrize("language", readme.PAGES)
def test_it_diagnoses_the_program_of_the_readme(installed: Run, language: str, tmp_path: Path) -> None:
    page = readme.PAGES[language].read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(readme.block(page, "program: train.py"), encoding="utf-8")
    told = installed("gradkit", "diagnose", "train.py:step", "--language", language, cwd=tmp_path, status=1)
    assert told in page


def test_it_draws_and_saves_a_page(installed: Run, tmp_path: Path) -> None:
    program = readme.block(readme.PAGES["en"].read_text(encoding="utf-8"), "program: train.py")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    installed("gradkit", "diagnose", "train.py:step", "--save", "report.html", cwd=tmp_path, status=1)
    saved = (tmp_path / "report.html").read_text(encoding="utf-8")
    drawings = test_page.data(saved)["drawings"]
    assert drawings
    assert all("<svg" in test_page.parcel(one)["svg"] for one in drawings)


def test_its_examples_and_case_studies_run(installed: Run) -> None:
    told = installed("python", "-m", "gradkit.cases.multitask", "--fix", "skip", "--epochs", "1")
    assert told.startswith("epoch 1: train loss")
    code = "from gradkit.teaching import examples as it; print(*(one for one in it.BUILTINS if it.from_builtin(one)))"
    assert "resume_lora" in installed("python", "-c", code)


@pytest.mark.parametrize(("form", "start"), [("ipynb", '{\n "cells"'), ("py", "# ")])
def test_it_writes_every_notebook_in_both_languages(installed: Run, form: str, start: str, tmp_path: Path) -> None:
    installed("gradkit", "notebooks", str(tmp_path / "here"), "--language", "both", "--as", form)
    for language in i18n.LANGUAGES:
        committed = {
            path.relative_to(REPO / "notebooks" / language) for path in (REPO / "notebooks" / language).rglob("*.ipynb")
        }
        (folder,) = {path for path in (tmp_path / "here").rglob(language) if path.is_dir()}
        written = {path.relative_to(folder).with_suffix(".ipynb") for path in folder.rglob(f"*.{form}")}
        every = committed | {Path(f"{name}.ipynb") for name in book.book_names()}
        assert every - {path for path in every if path.name == "slides.ipynb"} <= written
        assert all(path.read_text(encoding="utf-8").startswith(start) for path in folder.rglob(f"*.{form}"))


@pytest.mark.slow
def test_its_start_notebook_runs_in_a_kernel_of_its_own(installed: Run, tmp_path: Path) -> None:
    installed("gradkit", "notebooks", str(tmp_path), "start", "--language", "zh")
    (notebook,) = tmp_path.rglob("start.ipynb")
    code = (
        "import sys, nbformat, nbclient\n"
        "book = nbformat.read(sys.argv[1], as_version=4)\n"
        "nbclient.NotebookClient(book, timeout=180, store_widget_state=False).execute()\n"
        "code = [cell for cell in book.cells if cell.cell_type == 'code']\n"
        "print(*(out.get('data', {}).get('text/plain') for cell in code for out in cell.outputs))"
    )
    assert "错误[detach]" in installed("python", "-c", code, str(notebook), cwd=notebook.parent)
