"""The API page: written from the docstrings, and never behind the code."""

from __future__ import annotations

import pytest

import gradkit
from gradkit import types
from tools import api


@pytest.mark.parametrize("language", api.PAGES)
def test_the_page_says_what_the_docstrings_say(language: str) -> None:
    page = api.PAGES[language].read_text(encoding="utf-8")
    assert api.fresh(page, language) == page, "run python tools/api.py"


def test_all_that_the_package_offers_is_on_the_page() -> None:
    named = {name for names in api.PUBLIC.values() for name in names}
    assert {f"gradkit.{name}" for name in gradkit.__all__} - named - {"gradkit.__version__"} == set()
    assert {f"gradkit.types.{name}" for name in types.__all__} - named == set()


def test_a_section_of_a_docstring_becomes_a_list() -> None:
    def double(number: int) -> int:
        """Twice ``number``.

        Args:
            number: any number;
                a large one too.

        Returns:
            The double.

        Example:
            >>> double(2)
            4
        """
        return 2 * number

    assert api._text(double) == (
        "Twice `number`.\n\n**Args:**\n\n- `number`: any number; a large one too.\n\n**Returns:** The double.\n\n"
        "```python\n>>> double(2)\n4\n```\n\n"
    )
