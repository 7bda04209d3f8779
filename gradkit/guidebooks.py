"""A guide as a book: its texts, and between them its program and its experiments, cell by cell, to run and change."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gradkit import casefiles, i18n
from gradkit.guide import DIRECTIVE, STEPS, Guide, outline
from gradkit.guidecode import Program, flat
from gradkit.i18n import words
from gradkit.pages import Page, stamp


def pages_of(cause: str) -> tuple[Page, ...]:
    """The pages of the book that is made from the guide for ``cause``.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> pages_of("detach")[0].says("en").splitlines()[0]
        '# detach() stands in the way of the loss'
    """
    return tuple(_Binder(cause).pages())


class _Binder:
    """Makes the pages of one guide, and knows which parts of its program the reader has run so far."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        self.program = Program(casefiles.source(cause))
        self.outlines = {language: outline(cause, language) for language in i18n.LANGUAGES}
        self.shown: set[str] = set()

    def pages(self) -> Iterator[Page]:
        yield _text({code: f"# {one.title}\n\n{one.summary}\n\n{_said('intro', code)}" for code, one in self._guides()})
        yield _text({code: _said("program", code) for code in i18n.LANGUAGES})
        yield _code(self.program.head)
        yield from self._needed("make", "SHOULD_TRAIN")
        for number, name in enumerate(STEPS):
            yield from self._step(number)
            if name == "symptom":
                yield _text({code: _said("ask", code) for code in i18n.LANGUAGES})
                yield _code(self._diagnosis("make"))
            elif name == "verify":
                yield _text({code: _said("ask_again", code) for code in i18n.LANGUAGES})
                yield _code(self._diagnosis("make_fixed"))

    def _guides(self) -> list[tuple[str, Guide]]:
        return list(self.outlines.items())

    def _step(self, number: int) -> Iterator[Page]:
        """The text of a step, cut where it calls for code, in both languages at once."""
        parts = {code: DIRECTIVE.split(_titled(one, number)) for code, one in self._guides()}
        texts = {code: [part.strip() for part in split[::3]] for code, split in parts.items()}
        kinds, facts = parts["en"][1::3], parts["en"][2::3]
        for place, (kind, fact) in enumerate(itertools.zip_longest(kinds, facts, fillvalue="")):
            said = {code: texts[code][place] for code in i18n.LANGUAGES}
            if kind == "diff":
                diff = f"```diff\n{casefiles.difference(self.cause, *fact.split())}\n```"
                said = {code: f"{text}\n\n{diff}".strip() for code, text in said.items()}
            elif kind == "code" and not self.program.whole(fact):
                fence = f"```python\n{casefiles.region(self.cause, fact)}\n```"
                said = {code: f"{text}\n\n{fence}".strip() for code, text in said.items()}
            if any(said.values()):
                yield _text(said)
            yield from self._cells(kind, fact)

    def _cells(self, kind: str, fact: str) -> Iterator[Page]:
        if kind == "experiment":
            name = f"experiment_{fact}"
            yield from self._needed(*self.program.needs(name))
            yield _code(flat(self.program.text(name)))
        elif kind == "diff":
            changed = self.program.around(fact.split()[1])
            self.shown -= set(changed)
            yield from self._needed("make_fixed", *changed)
        elif kind == "code" and self.program.whole(fact):
            self.shown -= set(self.program.around(fact))
            yield from self._needed(*self.program.around(fact))

    def _needed(self, *names: str) -> Iterator[Page]:
        """A cell with these definitions and all that they call for, without what has been run already."""
        there = [name for name in names if name in self.program.names]
        missing = [name for name in self.program.closure(there) if name not in self.shown]
        if missing:
            self.shown |= set(missing)
            yield _code(self.program.join(missing))

    def _diagnosis(self, maker: str) -> str:
        given = ["step", "model=model"]
        if "SHOULD_TRAIN" in self.program.names:
            given.append("should_train=SHOULD_TRAIN")
        if "step.optimizer =" in casefiles.source(self.cause):
            given.append("optimizer=step.optimizer")
        return f"model, step = {maker}()\ngradkit.diagnose({', '.join(given)})"


def _titled(one: Guide, number: int) -> str:
    step = one.steps[number]
    facts = {"number": number + 1, "step": words(f"guide.step.{step.id}", one.language), "title": step.title}
    return words("guide.heading", one.language, **facts) + "\n\n" + step.markdown


def _said(part: str, language: str) -> str:
    return words(f"guidebook.{part}", language)


def _text(said: dict[str, str]) -> Page:
    return Page("markdown", said, stamp(said["en"]))


def _code(source: str) -> Page:
    return Page("code", {"": source})
