"""The list of all causes below the panel: eight families, and the guide to the one that was clicked."""

from __future__ import annotations

import pytest

from gradkit.core import causes, i18n
from gradkit.notebook.families import Families
from gradkit.notebook.panel import Panel
from gradkit.notebook.parts import shown


@pytest.mark.parametrize("language", i18n.LANGUAGES)
def test_every_cause_stands_under_its_family(language: str) -> None:
    listed = Families()
    listed.speak(language)
    listed.toggle()
    page = listed.list.html
    assert page.count("<h4>") == len(causes.FAMILIES) == 8
    assert [name for name in causes.causes() if page.count(f'data-press="{name}"') != 1] == []
    for family, found in causes.families().items():
        title = page.index(f"<h4>{i18n.words(f'guide.family.{family}', language)}</h4>")
        assert all(page.index(f'data-press="{name}"') > title for name in found)


def test_a_click_opens_the_guide_and_a_change_of_language_translates_it() -> None:
    listed = Families()
    listed.speak("en")
    listed.toggle()
    listed.list.press("detach")
    assert "detach() lies on the path to the loss" in listed.page.value
    listed.speak("zh")
    assert "现象" in listed.page.value
    listed.list.press("no such cause")
    assert listed.cause == "detach"


def test_folded_it_reads_no_guide_and_folded_again_it_is_gone() -> None:
    listed = Families()
    assert listed.list.html == ""
    listed.toggle()
    listed.list.press("detach")
    listed.toggle()
    assert not shown(listed.list)
    assert not shown(listed.page)


def test_the_panel_has_the_list() -> None:
    panel = Panel(language="zh")
    assert panel.families in panel.children
    assert panel.families.button.description == f"全部 {len(causes.causes())} 种原因及其指南"
