"""The program of a guide, taken to pieces: its definitions, what each needs, and which stand in a marked region."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable

from gradkit import casefiles

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
        return casefiles.unmarked(self._lines[first - 1 : node.end_lineno])

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
        first, last = casefiles.span(self._lines, region)
        return tuple(
            name for name, node in self._nodes.items() if node.lineno <= last and first <= (node.end_lineno or 0)
        )

    def whole(self, region: str) -> bool:
        """Whether a region is made of whole definitions, so that it can be a cell."""
        first, _ = casefiles.span(self._lines, region)
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
