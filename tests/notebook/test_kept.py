"""The last report of a panel, in the output of the cell that shows the panel."""

from __future__ import annotations

import types
from typing import Any

import pytest

from gradkit.notebook import kept
from gradkit.notebook.kept import WIDGET
from gradkit.notebook.panel import Panel


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What a notebook is told to show, with how."""
    told: list[tuple[dict[str, Any], dict[str, Any]]] = []
    publisher = types.SimpleNamespace(publish=lambda data, **how: told.append((data, how)))
    shell = types.SimpleNamespace(kernel=True, display_pub=publisher)
    monkeypatch.setattr(kept, "frames", types.SimpleNamespace(notebook_shell=lambda: shell))
    return told


def diagnosed(panel: Panel) -> Panel:
    panel.form.source.names.value = "vision_memory_detached.title"
    panel.diagnose.click()
    assert panel.job is not None
    panel.job.wait(60)
    return panel


def test_beside_the_panel_its_cell_gets_an_output_that_later_holds_the_report(published: list[Any]) -> None:
    panel = Panel(language="en")
    bundle = panel._repr_mimebundle_()
    assert bundle[WIDGET]
    assert bundle["text/html"] == ""
    ((first, how),) = published
    assert "run this cell to use it" in first["text/html"]
    assert not how["update"]
    diagnosed(panel)
    last, later = published[-1]
    assert later == {**how, "update": True}
    assert last["text/plain"] == panel.report.text("en")
    assert panel.report.cell("en") in last["text/html"]
    assert 'class="gk-kept"' in last["text/html"]


def test_a_panel_that_comes_into_a_cell_after_its_diagnosis_is_kept_with_it(published: list[Any]) -> None:
    panel = diagnosed(Panel(language="en"))
    assert published == []
    panel._repr_mimebundle_()
    assert "iframe" in published[0][0]["text/html"]


def test_outside_of_a_notebook_nothing_is_published() -> None:
    panel = diagnosed(Panel(language="en"))
    assert not panel._kept.there
    assert "iframe" in panel._repr_mimebundle_()["text/html"]
