"""The published copies of the notebooks: those that are built, run, with still pictures, and small."""

from __future__ import annotations

import re

import nbformat
import pytest

from gradkit.core import i18n
from tools import publish

OF_A_MACHINE = re.compile(r"(?<![\w.])/(?:home|root|Users|usr)/")


def test_published_notebooks_are_up_to_date_small_and_show_their_pictures() -> None:
    assert publish.everything_wrong() == [], "python -m tools.publish"


@pytest.mark.parametrize("language", i18n.LANGUAGES)
@pytest.mark.parametrize("name", publish.NAMES)
def test_a_published_notebook_says_nothing_of_the_machine_that_it_ran_on(name: str, language: str) -> None:
    page = nbformat.read(publish.published(name, language), as_version=4)
    outputs = [output for cell in page.cells for output in cell.get("outputs", ())]
    said = [str(output.get("text", "")) for output in outputs]
    said += [text for output in outputs for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    assert [text[:200] for text in said if OF_A_MACHINE.search(text)] == []


def test_freezing_takes_away_widgets_warnings_and_paths_and_leaves_the_rest() -> None:
    v4 = nbformat.v4
    shown = v4.new_output("display_data", data={publish.WIDGET: {"model_id": "1"}, "text/plain": "still"})
    only_widget = v4.new_output("display_data", data={publish.WIDGET: {"model_id": "1"}})
    panel = v4.new_output("display_data", data={publish.WIDGET: {"model_id": "2"}, "text/html": "", "text/plain": "a"})
    warned = v4.new_output("stream", name="stderr", text="warning")
    printed = v4.new_output("stream", text="/home/me/gradkit/cases/a.py:3 and /tmp/ipykernel_12/345.py")
    book = v4.new_notebook(cells=[v4.new_code_cell("f()", outputs=[shown, only_widget, panel, warned, printed])])
    book.metadata["widgets"] = {}
    page = publish.frozen(book)
    (still, text) = page.cells[0].outputs
    assert (still.data, text.text) == ({"text/plain": "still"}, "gradkit/cases/a.py:3 and 345.py")
    assert "widgets" not in page.metadata
