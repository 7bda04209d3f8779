"""The lines of the user's source that put a value where it is kept: an attribute, a variable, a list, a dictionary."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from gradkit import classes, flows, frames, sources, words
from gradkit.creation import ADDING, EMPTY
from gradkit.records import Location
from gradkit.traces import Chain

_OUTERMOST = 6
_ANY = ".__dict__"  # an attribute whose name is worked out: self.__dict__[key], vars(self)[key], setattr(self, key, x)


def at(chain: Chain, name: str) -> Location | None:
    """Where what was computed at the innermost of some frames is stored under ``name``, in one of these frames."""
    for point in chain[:_OUTERMOST]:
        code, line = point[0], frames.line_of(point)
        storing = [s for s in flows.statements(code) if {name, f".{name}", _ANY} & _targets(s, code)]
        here = [s for s in storing if s.lineno <= line <= (s.end_lineno or line) and not _body(s)]
        later = [s for s in storing if s.lineno > line and flows.leads(code, line, s.lineno)]
        for statement in (*here, *later):
            return frames.place(code.co_filename, statement, frames.qualified_name(code))
    return None


def _body(statement: ast.stmt) -> bool:
    return isinstance(getattr(statement, "body", None), list)


def _targets(statement: ast.stmt, code: CodeType | None = None) -> set[str]:
    """What a statement stores into: ``"a"`` for a name, ``".a"`` for an attribute.

    With ``code``, the function that it stands in, only names that outlive its run.
    """
    found: set[str] = set()
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = [*statement.targets]
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
        targets = [statement.target]
    while targets:
        target = targets.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        elif isinstance(target, ast.Name):
            lasting = code is None or code.co_name == "<module>" or target.id not in code.co_varnames
            found |= {target.id} if lasting else set()
        else:
            found |= _name(target)
    for node in ast.walk(statement) if not _body(statement) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
            found |= _name(node.func.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
            key = node.args[1]
            found.add(f".{key.value!s}" if isinstance(key, ast.Constant) else _ANY)
    return found


def _name(target: ast.expr) -> set[str]:
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Call) and ast.unparse(target.func) == "vars":
        return {_ANY}
    if isinstance(target, ast.Attribute):
        return {f".{target.attr}"}
    return {target.id} if isinstance(target, ast.Name) else set()


def remembered(code: CodeType, files: Iterable[str] = ()) -> Location | None:
    """The decorator that makes a function remember its results; else the call that does: ``cache(function)``."""
    tree, name = frames.tree_at(code), frames.qualified_name(code)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, words.FUNCTIONS) and node.name == code.co_name:
            marks = [mark for mark in node.decorator_list if "cache" in ast.unparse(mark).lower()]
            if marks and code.co_firstlineno in {node.lineno, *(d.lineno for d in node.decorator_list)}:
                return frames.place(code.co_filename, marks[0], name)
    for file in dict.fromkeys((code.co_filename, *files)):
        for statement, around in sources.statements(file):
            if isinstance(statement, ast.Call) and "cache" in ast.unparse(statement.func).lower():
                if any(ast.unparse(arg).rpartition(".")[2] == code.co_name for arg in statement.args):
                    return frames.place(file, statement, sources.function_of(around))
    return None


def computed_once(owner: type, name: str) -> Location | None:
    """The decorator of a ``cached_property``."""
    for file, body in classes.bodies(owner):
        for node in body.body:
            if isinstance(node, words.FUNCTIONS) and node.name == name:
                marks = [mark for mark in node.decorator_list if "cached" in ast.unparse(mark)]
                return frames.place(file, marks[0], f"{owner.__name__}.{name}") if marks else None
    return None


def lines(
    name: str, files: Iterable[str], owner: type | None = None, reader: CodeType | None = None
) -> Iterator[tuple[Location, set[str]]]:
    """The statements that store something computed under a name, and the words of what they store.

    The words are the attributes and functions that what is stored is computed by, and the keys of what is called
    (``model["inner"](x)``, ``model[0](x)``), in the function itself and in those of the user's that it calls.

    Args:
        owner: of an attribute, the class of the object that has it: if its own methods store it, only these count.
        reader: of a variable, a function that uses it: only the scope that it belongs to counts.
    """
    files, found = tuple(files), list[tuple[str, ast.AST, list[ast.AST]]]()
    name = name if reader is not None else f".{name}"
    spans = list(classes.bodies(owner)) if owner is not None else [_scope(reader, name)] if reader is not None else []
    for file, top in spans:
        found += _storing(name, file, top, [])
    if not found and reader is None:
        found = [one for file in files if (tree := frames.tree_of(file)) for one in _storing(name, file, tree, [])]
    for file, statement, around in found:
        spot = frames.place(file, statement, sources.function_of(around))
        yield spot, words.Reader(files).words(statement.value, around, file)  # type: ignore[attr-defined]


def _storing(name: str, file: str, node: Any, around: list[Any]) -> Iterator[tuple[str, ast.AST, list[ast.AST]]]:
    inner = [*around, node] if isinstance(node, ast.stmt) else around
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and not _body(child) and name in _targets(child):
            value = getattr(child, "value", None)
            if value is not None and not isinstance(value, ast.Constant) and ast.unparse(value) not in EMPTY:
                yield file, child, inner
        yield from _storing(name, file, child, inner)


def _scope(reader: CodeType, name: str) -> tuple[str, Any]:
    """The function that a variable belongs to, by one that uses it; the module for a global."""
    file, line = reader.co_filename, reader.co_firstlineno
    tree = frames.tree_of(file) or ast.Module([], [])
    own = [
        f
        for f in words.named(tree).get(reader.co_name, ())
        if line in {f.lineno, *(d.lineno for d in f.decorator_list)}
    ]
    if own and name in reader.co_varnames:
        return file, own[0]
    if name not in reader.co_freevars:
        return file, tree
    holding = [
        f for f in ast.walk(tree) if isinstance(f, words.FUNCTIONS) and f.lineno < line <= (f.end_lineno or line)
    ]
    binding = [f for f in holding if any(_binds(node, name) for node in ast.walk(f))]
    return file, max(binding, key=lambda f: f.lineno, default=tree)


def may_be_missing(name: str, reader: CodeType) -> bool:
    """Whether the code provides for a variable that holds nothing yet: it is set by inner functions, or asked for."""
    _, scope = _scope(reader, name)
    return any(_asks(node, name) for node in ast.walk(scope))


def _asks(node: ast.AST, name: str) -> bool:
    if isinstance(node, (ast.Nonlocal, ast.Global)):
        return name in node.names
    if isinstance(node, ast.Compare):
        return any(isinstance(side, ast.Name) and side.id == name for side in (node.left, *node.comparators))
    tests: list[ast.expr] = node.values if isinstance(node, ast.BoolOp) else []
    tests = [node.test] if isinstance(node, (ast.If, ast.IfExp)) else tests
    return any(isinstance(x, ast.Name) and x.id == name for test in tests for x in ast.walk(test))


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.arg):
        return node.arg == name
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
