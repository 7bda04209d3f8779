"""A guide as a book: its texts, and between them its program and its experiments, cell by cell, to run and change."""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Iterable, Iterator

from gradkit.core import i18n
from gradkit.core.i18n import speaking, words
from gradkit.teaching import guide
from gradkit.teaching.guide import DIRECTIVE, STEPS, Guide, outline
from gradkit.teaching.pages import Page, stamp

_Definition = ast.FunctionDef | ast.ClassDef | ast.Assign


class Program:
    """A guide's ``case.py``.

    Attributes:
        head: its docstring and imports, and gradkit's, as one cell.
        names: what it defines, in its order.
    """

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        body = ast.parse(source).body
        imports = [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        ours = [] if "import gradkit" in imports else ["", "import gradkit"]
        self._nodes = {name: node for node in body if isinstance(node, _Definition) for name in _named(node)}
        self.names = tuple(self._nodes)
        self.head = "\n".join([self._lines[0], "", *imports, *ours])

    def text(self, name: str) -> str:
        """A definition as a reader sees it, without marks."""
        node = self._nodes[name]
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        return guide.unmarked(self._lines[first - 1 : node.end_lineno])

    def needs(self, name: str) -> tuple[str, ...]:
        """The other definitions that one uses itself."""
        used = {node.id for node in ast.walk(self._nodes[name]) if isinstance(node, ast.Name)}
        return tuple(other for other in self.names if other in used and other != name)

    def closure(self, names: Iterable[str]) -> tuple[str, ...]:
        """These definitions and all that they need, and so on, in the program's order."""
        found, todo = set[str](), list(names)
        while todo:
            if (name := todo.pop()) not in found:
                found.add(name)
                todo += self.needs(name)
        return tuple(name for name in self.names if name in found)

    def join(self, names: Iterable[str]) -> str:
        """Definitions as one cell: two empty lines round functions and classes, none between plain values."""
        blocks: list[str] = []
        plain = False
        for text, node in {self.text(name): self._nodes[name] for name in names}.items():
            joint = "\n" if plain and isinstance(node, ast.Assign) else "\n\n\n"
            blocks += [joint, text] if blocks else [text]
            plain = isinstance(node, ast.Assign)
        return "".join(blocks)

    def around(self, region: str) -> tuple[str, ...]:
        """The definitions that a marked region is made of, or that it lies in."""
        first, last = guide.span(self._lines, region)
        return tuple(
            name for name, node in self._nodes.items() if node.lineno <= last and first <= (node.end_lineno or 0)
        )

    def whole(self, region: str) -> bool:
        """Whether a region is made of whole definitions, so that it can be a cell."""
        first, _ = guide.span(self._lines, region)
        return not self._lines[first - 2].startswith(" ")


def _named(node: _Definition) -> list[str]:
    if isinstance(node, ast.Assign):
        return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return [node.name]


def flat(function: str) -> str:
    """The body of an experiment as a cell, which also shows what it has found: the error, or what it compares last.

    Example:
        >>> print(flat("def experiment_sum():\\n    n = 1\\n    assert n + 1 == 2"))
        n = 1
        found = n + 1
        assert found == 2
        found
    """
    (node,) = ast.parse(function).body
    assert isinstance(node, ast.FunctionDef)
    body = textwrap.dedent("\n".join(function.splitlines()[node.body[0].lineno - 1 :]))
    last = ast.parse(body).body[-1]
    if isinstance(last, ast.Try) and last.handlers[-1].name:
        return _with_error_printed(body, last.handlers[-1])
    if isinstance(last, ast.Assert) and isinstance(last.test, ast.Compare) and len(last.test.ops) == 1:
        return _with_value_shown(body, last, last.test)
    return body


def _with_error_printed(body: str, handler: ast.ExceptHandler) -> str:
    lines, last = body.splitlines(), handler.body[-1]
    lines.insert(last.end_lineno or last.lineno, f"{' ' * last.col_offset}print({handler.name})")
    return "\n".join(lines)


def _with_value_shown(body: str, last: ast.Assert, test: ast.Compare) -> str:
    before = body.splitlines()[: last.lineno - 1]
    left, right = (ast.get_source_segment(body, side) for side in (test.left, test.comparators[0]))
    if isinstance(test.ops[0], ast.Eq):
        return "\n".join([*before, f"found = {left}", f"assert found == {right}", "found"])
    if isinstance(test.ops[0], ast.In) and isinstance(test.comparators[0], ast.Call):
        return "\n".join([*before, f"found = {right}", f"assert {left} in found", "print(found)"])
    return body


def pages_of(cause: str) -> tuple[Page, ...]:
    """The pages of the book that is made from the guide for ``cause``.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> pages_of("detach")[0].says("en").splitlines()[0]
        '# detach() lies on the path to the loss'
    """
    return tuple(_Binder(cause).pages())


class _Binder:
    """Makes the pages of one guide, and knows which parts of its program the reader has run so far."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        self.program = Program(guide.case_source(cause))
        self.outlines = {language: outline(cause, language) for language in i18n.LANGUAGES}
        self.shown: set[str] = set()

    def pages(self) -> Iterator[Page]:
        intro = _in_both("intro")
        yield _text({code: f"# {one.title}\n\n{one.summary}\n\n{intro[code]}" for code, one in self._guides()})
        yield _text(_in_both("program"))
        yield _code(self.program.head)
        yield from self._needed("make", "SHOULD_TRAIN")
        for number, name in enumerate(STEPS):
            yield from self._step(number)
            if name == "symptom":
                yield _text(_in_both("ask"))
                yield _code(self._diagnosis("make"))
            elif name == "verify":
                yield _text(_in_both("ask_again"))
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
                diff = f"```diff\n{guide.difference(self.cause, *fact.split())}\n```"
                said = {code: f"{text}\n\n{diff}".strip() for code, text in said.items()}
            elif kind == "code" and not self.program.whole(fact):
                fence = f"```python\n{guide.region(self.cause, fact)}\n```"
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
        if "step.optimizer =" in guide.case_source(self.cause):
            given.append("optimizer=step.optimizer")
        return f"model, step = {maker}()\ngradkit.diagnose({', '.join(given)})"


def _titled(one: Guide, number: int) -> str:
    step = one.steps[number]
    with speaking(one.language):
        said = words(f"guide.step.{step.id}")
        return words("guide.heading", number=number + 1, step=said, title=step.title) + "\n\n" + step.markdown


def _in_both(part: str) -> dict[str, str]:
    return {code: words(f"guidebook.{part}", code) for code in i18n.LANGUAGES}


def _text(said: dict[str, str]) -> Page:
    return Page("markdown", said, stamp(said["en"]))


def _code(source: str) -> Page:
    return Page("code", {"": source})
