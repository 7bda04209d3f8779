"""The guide to idle parameters quotes the report of its program on two ranks: both pages quote what is printed."""

from __future__ import annotations

import os
import re

import pytest

from gradkit.teaching.guide import guides_folder, load_case

CAUSE = "ddp_unused"
QUOTED = re.compile(r"^> `(?:\.\.\. )?(.+?)(?: ?\.\.\.)?`$", re.MULTILINE)


def quoted(language: str) -> list[str]:
    """What the page quotes of the report, without the ellipses; the first quote of all is torch's own error."""
    return QUOTED.findall((guides_folder(CAUSE) / f"{language}.md").read_text(encoding="utf-8"))[1:]


def test_the_english_page_quotes_the_lines_that_its_experiment_finds_in_the_report() -> None:
    assert quoted("en") == load_case(CAUSE).REPORT


@pytest.mark.skipif(os.name != "posix", reason="torchrun with gloo")
def test_the_chinese_page_quotes_what_the_same_run_prints_in_chinese() -> None:
    said = load_case(CAUSE).two_ranks(load_case(CAUSE).TRAIN, "zh")
    assert len(quoted("zh")) == len(quoted("en"))
    assert [line for line in quoted("zh") if line not in said] == []
