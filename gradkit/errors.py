"""The one error class: one sentence, the offending thing named, and what to do."""

from __future__ import annotations

from gradkit import i18n


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
        return self.text()

    def text(self, language: str | None = None) -> str:
        """The sentence in ``language`` (``"en"``, ``"zh"``, or None for the one in use)."""
        return i18n.words(f"error.{self.key}", language, **self.facts)
