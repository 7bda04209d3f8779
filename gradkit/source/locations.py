"""From a point in code, or a node of a syntax tree, to a line, its text and the very expression on it."""

from __future__ import annotations

import ast
import bisect
import functools
import io
import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

import executing

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import imported


class _Frozen:
    """What ``executing`` reads off a frame, after the frame has gone."""

    def __init__(self, code: CodeType, lasti: int) -> None:
        self.f_code, self.f_lasti, self.f_lineno = code, lasti, line_of((code, lasti))
        self.f_globals: dict[str, object] = {}
        self.f_locals: dict[str, object] = {}


def node_at(point: Point) -> ast.AST | None:
    """The syntax node that was running at ``point``; None if it cannot be told."""
    code, _ = point
    source = imported.read(code.co_filename, code).source
    return _nodes(source.file, source.text).node(point) if source is not None else None


class _Nodes:
    """Tells which syntax node of a text is running."""

    def __init__(self, file: str, text: str) -> None:
        lines = io.StringIO(text).readlines()
        whole = executing.Source(file, lines)
        self._found: dict[Point, ast.AST | None] = {}

        class Reader(executing.Source):  # what ``executing`` remembers is by code alone: here it is for one text
            @classmethod
            def for_frame(cls, *_: object, **__: object) -> executing.Source:
                return whole

        self._reader = Reader

    def node(self, point: Point) -> ast.AST | None:
        if point not in self._found:
            self._found[point] = self._node(point)
        return self._found[point]

    def _node(self, point: Point) -> ast.AST | None:
        try:
            found = self._reader.executing(_Frozen(*point)).node  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001  executing promises nothing for exotic bytecode; a line is still known
            return None
        return found if isinstance(found, ast.AST) else None


@functools.lru_cache(maxsize=64)
def _nodes(file: str, text: str) -> _Nodes:
    return _Nodes(file, text)


def called_at(chain: Chain) -> str:
    """What the innermost line of a chain calls, as it is written: ``"torch.FloatTensor"``; ``""`` if it is no call."""
    node = node_at(chain[0]) if chain else None
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def word_at(chain: Chain) -> str:
    """The last word of what stands at the innermost line of a chain: ``"detach"`` of ``x.detach()``; ``""`` if none."""
    node = node_at(chain[0]) if chain else None
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def holds(outer: Point, inner: Point) -> bool:
    """Whether the expression running at ``inner`` is part of the one running at ``outer``, in the same function."""
    whole, part, line = node_at(outer), node_at(inner), line_of(inner)
    if part is not None:
        return whole is not None and any(node is part for node in ast.walk(whole))
    # Python 3.10 does not tell a comprehension from its line.
    parts = [node for node in ast.walk(whole) if type(node) in _NAMELESS] if whole is not None else []
    return any(node.lineno <= line <= (node.end_lineno or line) for node in parts if isinstance(node, ast.expr))


def line_of(point: Point) -> int:
    """The line that was running at ``point``."""
    code, lasti = point
    begins, rows = _lines(code, code.co_linetable)
    at = bisect.bisect_right(begins, lasti) - 1
    return rows[at][1] if at >= 0 and lasti < rows[at][0] else code.co_firstlineno


@functools.lru_cache(maxsize=64)
def _lines(code: CodeType, _table: bytes) -> tuple[list[int], list[tuple[int, int]]]:
    """Where the instructions of each line begin; and where they end, with the line.

    Args:
        _table: before Python 3.11, code on other lines may be equal.
    """
    rows = [(start, end, line) for start, end, line in code.co_lines() if line is not None and start < end]
    return [start for start, _, _ in rows], [(end, line) for _, end, line in rows]


def qualified_name(code: CodeType) -> str:
    """``Class.method`` where Python knows it (3.11 and later), else found in the file's syntax tree."""
    if sys.version_info >= (3, 11):
        name = code.co_qualname
    else:
        name = _names(tree_at(code)).get((code.co_firstlineno, code.co_name), code.co_name)
    return name.replace("<locals>.", "")


_NAMELESS = {
    ast.Lambda: "<lambda>",
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}


@functools.lru_cache(maxsize=64)
def _names(tree: ast.Module | None) -> dict[tuple[int, str], str]:
    found: dict[tuple[int, str], str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = f"{prefix}{child.name}."
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found[(first, child.name)] = f"{prefix}{child.name}"
            elif type(child) in _NAMELESS:
                name = _NAMELESS[type(child)]
                inner = f"{prefix}{name}."
                found.setdefault((child.lineno, name), f"{prefix}{name}")  # type: ignore[attr-defined]
            visit(child, inner)

    if tree is not None:
        visit(tree, "")
    return found


def tree_of(filename: str) -> ast.Module | None:
    """The syntax tree of a source file (or notebook cell) to be searched; None if it cannot be read or parsed, or if
    the file was changed since it was imported."""
    read = imported.read(filename)
    return read.source.tree if read.source is not None and read.whole else None


def tree_at(code: CodeType) -> ast.Module | None:
    """The syntax tree of the source that ``code`` was compiled from; None if that is not known."""
    source = imported.read(code.co_filename, code).source
    return source.tree if source is not None else None


def place(
    filename: str, node: ast.AST, function: str = "", *, anchor: bool = False, lines: Sequence[str] | None = None
) -> Location:
    """The location of a syntax node. With ``anchor``, of a call ``a.b()`` only the part ``.b()``.

    Args:
        lines: the source, where it is not to be read from the file.
    """

    def text_of(number: int) -> str:
        return _line(filename, number) if lines is None else lines[number - 1].rstrip("\n")

    line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
    end_line, end_column = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    target = node.func if isinstance(node, ast.Call) else node
    if anchor and isinstance(target, ast.Attribute):
        line, column = target.value.end_lineno or line, target.value.end_col_offset or column
        text = text_of(line)
        comment = text.encode().find(b"#", column)
        dot = text.encode().find(b".", column, comment if comment >= 0 else None)
        if dot < 0 and end_line and end_line > line:
            line, column = target.end_lineno or line, _indent(text_of(target.end_lineno or line))
        elif dot >= 0:
            column = dot
    text = text_of(line)
    stop = end_column if end_line == line else len(text.encode())
    spot = Location(filename, line, _chars(text, column), _chars(text, stop), function, text, end_line or line)
    return _of_source(spot) if lines is None else spot


def head(filename: str, node: ast.AST, function: str) -> Location:
    """The location of the first line of a statement that holds others, such as a ``def``."""
    spot = place(filename, node, function)
    return replace(spot, end_line=spot.line)


def _line(filename: str, line: int) -> str:
    source = imported.read(filename).source
    return source.line(line) if source is not None else ""


def _of_source(spot: Location) -> Location:
    """The location with what is known of the source that it was found in."""
    read = imported.read(spot.file)
    return replace(spot, changed=read.changed, digest=read.source.digest if read.source is not None else "")


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _chars(text: str, offset: int) -> int:
    """Syntax trees count UTF-8 bytes from 0; people count characters from 1."""
    return len(text.encode()[:offset].decode(errors="replace")) + 1


def locate(point: Point, *, whole: bool = False) -> Location:
    """The location of the expression that was running at ``point``, as narrow as it can be told.

    Args:
        whole: of a call ``a.b()`` all of it, and not the part ``.b()`` alone.
    """
    code, _ = point
    with imported.looking():
        node, function = node_at(point) or _with_at(point), qualified_name(code)
        if node is not None and hasattr(node, "lineno"):
            if isinstance(node, (ast.With, ast.AsyncWith)):
                node = _item(node, point)
            return place(code.co_filename, node, function, anchor=not whole)
        return whole_line(code, line_of(point), function)


def innermost(chain: Chain) -> Location | None:
    """The location of the innermost of some frames, None if there is none."""
    return locate(chain[0]) if chain else None


def whole_line(code: CodeType, line: int, function: str = "") -> Location:
    """The location of a whole line of a function, without its indentation."""
    with imported.looking():
        imported.codes_ran([code])
        text = _line(code.co_filename, line)
        body = text.split("  #")[0].rstrip() if text.lstrip() else text
        column, end = _indent(text) + 1, max(len(body), 1) + 1
        return _of_source(Location(code.co_filename, line, column, end, function, text, line))


def _with_at(point: Point) -> ast.AST | None:
    """The ``with`` whose head is running: Python 3.10 tells no more of it than a line."""
    line, tree = line_of(point), tree_at(point[0])
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno <= line < node.body[0].lineno:
            return node
    return None


def _item(node: ast.With | ast.AsyncWith, point: Point) -> ast.expr:
    """Of several context managers in one ``with``, the one being entered: by position where Python tells it."""
    found = [item.context_expr for item in node.items]
    code, lasti = point
    positions: Iterable[Any] = getattr(code, "co_positions", tuple)()
    spot = next(itertools.islice(positions, lasti // 2, None), None)
    at = [x for x in found if spot is not None and (x.lineno, x.col_offset) == (spot[0], spot[2])]
    return next(iter([*at, *(x for x in found if SWITCHES.search(ast.unparse(x)))]), found[0])


SWITCHES = re.compile(r"\b(no_grad|inference_mode|set_grad_enabled)\b")


def locate_code(code: CodeType, names: Mapping[str, object] | None = None) -> Location:
    """The decorator that switches grad mode for a function; if there is none to be seen, its first line.

    Args:
        names: the globals of the function, to look up what a decorator's name stands for.
    """
    tree, function = tree_at(code), qualified_name(code)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
            continue
        if code.co_firstlineno in {node.lineno, *(d.lineno for d in node.decorator_list)}:
            for mark in node.decorator_list:
                if SWITCHES.search(ast.unparse(mark)) or _stands_for_switch(mark, names or {}, tree):
                    spot = place(code.co_filename, mark, function)
                    return replace(spot, column=max(spot.column - 1, 1))
    wrapper = _wrapped(tree, code)
    if wrapper is not None:
        return place(code.co_filename, wrapper, function)
    return whole_line(code, code.co_firstlineno, function)


def _wrapped(tree: ast.Module | None, code: CodeType) -> ast.Call | None:
    """``f = torch.no_grad()(f)``, after the ``def f`` and in the same scope."""
    for scope in ast.walk(tree) if tree is not None else ():
        body = [node for node in ast.iter_child_nodes(scope) if getattr(node, "name", "") == code.co_name]
        if not any(getattr(node, "lineno", 0) == code.co_firstlineno for node in body):
            continue
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and node.lineno > code.co_firstlineno:
                named = [ast.unparse(arg).rpartition(".")[2] for arg in node.args]
                if code.co_name in named and SWITCHES.search(ast.unparse(node.func)):
                    return node
    return None


def around(point: Point, wanted: re.Pattern[str] = SWITCHES) -> Location | None:
    """The innermost ``with`` around ``point`` whose head matches ``wanted``: as a rule, that switches grad mode."""
    code, _ = point
    line, tree, found = line_of(point), tree_at(code), None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno <= line <= (node.end_lineno or line):
            items = [i.context_expr for i in node.items if wanted.search(ast.unparse(i.context_expr))]
            if items and node.body[0].lineno <= line:
                found = place(code.co_filename, items[0], qualified_name(code), anchor=True)
    return found


def _stands_for_switch(mark: ast.expr, names: Mapping[str, object], tree: ast.Module | None) -> bool:
    """Whether a decorator's name stands for a switch: by what it is now, or by what the file gives that name."""
    named = mark.func if isinstance(mark, ast.Call) else mark
    if not isinstance(named, ast.Name):
        return False
    if named.id in names:
        value = names[named.id]
        kind = value if isinstance(value, type) else type(value)
        return kind.__module__ == "torch.autograd.grad_mode"
    return any(_is_another_name(node, named.id) for node in (ast.walk(tree) if tree is not None else ()))


def _is_another_name(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a switch another name: ``frozen = torch.no_grad()``, ``import no_grad as frozen``."""
    if isinstance(node, ast.ImportFrom):
        return any(alias.asname == name and SWITCHES.fullmatch(alias.name) for alias in node.names)
    targets = node.targets if isinstance(node, ast.Assign) else []
    value = node.value if isinstance(node, ast.Assign) else None
    called = value.func if isinstance(value, ast.Call) else value
    same = any(isinstance(target, ast.Name) and target.id == name for target in targets)
    return same and called is not None and bool(SWITCHES.search(ast.unparse(called)))
