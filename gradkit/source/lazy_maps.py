"""Where ``map`` is handed a function that runs later, when another line takes the values: ``map(torch.detach, kept)``.

Such a function is torch's own and has no frame of the user's. The line that runs says nothing of it; it unpacks what a
helper has returned, or loops over it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gradkit.core.records import Location
from gradkit.core.trace import Chain
from gradkit.source import dataflow, helpers, locations, syntax
from gradkit.source.helpers import Part

_LAZY = ("map", "starmap")


def mapped_at(chain: Chain, name: str, files: Iterable[str]) -> Location | None:
    """The call of ``map`` that a function ran for, where another line took the values from it.

    Args:
        chain: the frames in which the function ran, innermost first.
        name: torch's name of it, ``"detach"``.
        files: the user's, to look for what the line calls.

    Returns:
        None where the line says itself what it calls, or where several calls of ``map`` may be meant.

    Example:
        >>> mapped_at((), "detach", ()) is None
        True
    """
    name = name.strip("_")
    code, line = (chain[0][0], locations.line_of(chain[0])) if chain else (None, 0)
    statement = dataflow.statement_at(code, line) if code is not None else None
    if code is None or statement is None or any(name in ast.unparse(one) for one in _parts(statement)):
        return None
    owner, file = locations.qualified_name(code), code.co_filename
    own = [
        locations.place(file, one, owner)
        for other in dataflow.statements(code) if dataflow.flows_into(code, other.lineno, line)
        for one in _maps(dataflow.own_nodes(other), name)
    ]  # fmt: skip
    found = own or [Part(part.file, one).place() for part in _called(statement, files) for one in _mapped(part, name)]
    return found[0] if len(set(found)) == 1 else None


def _parts(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement says by itself, without the statements inside of it."""
    return (one for one in ast.iter_child_nodes(statement) if isinstance(one, ast.expr))


def _called(statement: ast.stmt, files: Iterable[str]) -> Iterator[Part]:
    files = tuple(files)
    for one in dataflow.own_nodes(statement):
        if isinstance(one, ast.Call):
            yield from helpers.named(syntax.call_name(one), files)


def _mapped(part: Part, name: str) -> list[ast.Call]:
    return list(_maps(ast.walk(part.node), name))


def _maps(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.Call]:
    """The calls of ``map`` that are handed a function of some name: ``torch.detach``, ``methodcaller("detach")``."""
    for one in nodes:
        if isinstance(one, ast.Call) and syntax.call_name(one) in _LAZY and one.args:
            given = one.args[0]
            said = {x.value for x in ast.walk(given) if isinstance(x, ast.Constant)}
            if name in said or ast.unparse(given).rpartition(".")[2].strip("_") == name:
                yield one
