"""Every notebook runs from top to bottom, in both languages, quietly; those of the guides show what they promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradkit.core.i18n import LANGUAGES, words
from gradkit.teaching import book, guide
from tests.forks import Forks, Run

# Warnings of torch's own that belong to what a notebook shows:
TO_NUMBER = "Converting a tensor with requires_grad=True to a scalar"
COPIED = "To copy construct from a tensor"
WARNS = {
    "cases/device_aware_amp": ("torch.cuda.amp.", "CUDA is not available"),  # what the old code says on a CPU
    "guides/checkpoint_reentrant": ("None of the inputs have requires_grad=True",),
    "guides/custom_function": ("Using backward() with create_graph=True",),
    "guides/ddp_unused": ("find_unused_parameters=True was specified",),
    "guides/new_leaf": (TO_NUMBER, COPIED),
    "guides/python_roundtrip": (TO_NUMBER,),
    "guides/rewrap_tensor": (TO_NUMBER, COPIED),
}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as running:
        yield running


def quiet(run: Run, name: str) -> list[str]:
    """What was written to standard error, but for warnings that belong to the notebook."""
    warned = [line for line in run.noise.splitlines() if "Warning:" in line]
    if not warned:
        return run.noise.splitlines()
    return [line for line in warned if not any(known in line for known in WARNS.get(name, ()))]


@pytest.mark.parametrize("name", book.book_names())
@pytest.mark.parametrize("language", [pytest.param(code, marks=pytest.mark.xdist_group(code)) for code in LANGUAGES])
def test_a_notebook_runs_from_top_to_bottom_without_a_word_on_standard_error(
    forks: Forks, notebooks: Path, name: str, language: str
) -> None:
    run = forks.run(notebooks / language / f"{name}.ipynb")
    assert [(cell.source, cell.error) for cell in run.cells if cell.error and not cell.may_raise] == []
    assert quiet(run, name) == []
    if name.startswith(book.GUIDES):
        shows_what_a_guide_promises(run, name.removeprefix(book.GUIDES), language)


def shows_what_a_guide_promises(run: Run, cause: str, language: str) -> None:
    """The wrong program's report names the line of the cell, with a picture; the cured one's is a clean bill."""
    displayed = [shown for cell in run.cells for shown in cell.displayed]
    wrong, cured = (shown for shown in displayed if "gk-verdict" in shown.get("text/html", ""))
    assert "gk-verdict ok" in cured["text/html"]
    assert f"[{cause}]" in wrong["text/plain"].splitlines()[0]
    pages = [shown["text/html"] for shown in (wrong, cured)]
    assert all("data:image/png" in page and f'lang="{language}' in page for page in pages)
    if cause != "unknown":
        assert f"--> {words('report.cell', language)} [" in wrong["text/plain"]
        lines = [guide.case_source(cause).splitlines()[number - 1] for number in guide.cut_lines(cause)]
        assert any(line.removesuffix("# CUT").strip() in wrong["text/plain"] for line in lines)
