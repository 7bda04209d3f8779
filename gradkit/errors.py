"""The one error class: one sentence, the offending thing named, and what to do."""

from __future__ import annotations

import textwrap

from gradkit import i18n, printable

WIDTH = 96


class GradkitError(Exception):
    """Something that a person can put right before a diagnosis can be made.

    The sentence is looked up in the catalogue under ``error.<key>`` when the error is shown,
    so the same object reads in English or in Chinese.

    Args:
        key: the error's id, for example ``"no_such_file"``.
        **facts: what the sentence names. Every value is shown with ``str``.

    Example:
        >>> print(GradkitError("no_such_file", path="train.py"))
        No such file: train.py. Check the path; relative paths start at the current folder.
    """

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = {name: str(value) for name, value in facts.items()}
        super().__init__(key)

    def __str__(self) -> str:
        return printable.fitted(self.text())

    def text(self, language: str | None = None) -> str:
        """The sentence in ``language`` (``"en"``, ``"zh"``, or None for the one in use)."""
        facts = {name: printable.shortened(value) for name, value in self.facts.items()}
        return i18n.words(f"error.{self.key}", language, **facts)

    def _render_traceback_(self) -> list[str]:
        return in_place_of_a_traceback(f"{type(self).__name__}: {self}")


def in_place_of_a_traceback(text: str) -> list[str]:
    """The lines that a notebook shows for an error whose sentences say it all, where the error's class hands them
    to IPython. They are broken between words; JupyterLab would break them anywhere.

    Example:
        >>> [len(line) for line in in_place_of_a_traceback("a line\\n" + "word " * 30)]
        [6, 94, 56]
    """
    return [part for line in text.splitlines() for part in _folded(line)]


def _folded(line: str) -> list[str]:
    inside = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, WIDTH, subsequent_indent=inside, break_long_words=False, break_on_hyphens=False) or [""]
