"""Where an attribute was read that an expression takes in by a name: ``table = layer.weight``, ``fused(x, q.weight)``.

A name is followed to what it was given before, through lists and loops, and to what the callers hand over for it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from gradkit.core.records import Location
from gradkit.core.trace import Chain
from gradkit.source import came_from, locations, syntax

_DEEPEST = 6
_HOLDING = (ast.List, ast.Tuple, ast.Starred, ast.Subscript, ast.IfExp, ast.ListComp, ast.GeneratorExp, ast.Dict)
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def read_at(chain: Chain, attributes: Collection[str]) -> Location | None:
    """The expression that reads one of some attributes, for what the innermost of some frames takes in by a name.

    None where that is read by the expression itself, or cannot be told.

    Args:
        chain: the user's frames, innermost first.
        attributes: their names.
    """
    node = locations.node_at(chain[0]) if chain else None
    if node is None or _reads(node, attributes):
        return None
    named = (at for at, (code, _) in enumerate(chain) if code.co_name == "<module>" or not code.co_name.startswith("<"))
    chain = chain[next(named, 0) :]
    names = sorted(syntax.names_in(node))
    values = (ast.copy_location(ast.Name(name, ast.Load()), node) for name in names)
    return next(filter(None, (_followed(chain, one, attributes, _DEEPEST) for one in values)), None)


def _reads(value: ast.AST, attributes: Collection[str]) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr in attributes for one in ast.walk(value))


def _followed(chain: Chain, value: ast.expr, attributes: Collection[str], left: int) -> Location | None:
    """Where one of the attributes is read for a value that stands in the innermost of some frames."""
    if _is_plain(value) and _reads(value, attributes):
        return locations.place(chain[0][0].co_filename, value, locations.qualified_name(chain[0][0]))
    if left <= 0 or not isinstance(value, (ast.Name, *_HOLDING)):
        return None
    ways = _given(chain, value) if isinstance(value, ast.Name) else ((chain, part) for part in _names(value))
    return next(filter(None, (_followed(*way, attributes, left - 1) for way in ways)), None)


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression computes nothing: it reads, or puts together."""
    return isinstance(value, (ast.Attribute, *_HOLDING)) and not any(isinstance(x, ast.Call) for x in ast.walk(value))


def _names(value: ast.expr) -> Iterator[ast.expr]:
    yield from (one for one in ast.walk(value) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def _given(chain: Chain, name: ast.Name) -> Iterator[tuple[Chain, ast.expr]]:
    """What a name stands for: an element of what is gone through, what it was given last, what a caller gave for it."""
    yield from ((chain, one) for one in _gone_through(chain, name.id))
    statement = came_from.binding(chain[0], name.id)
    pairs = syntax.pairs(statement) if statement is not None else []
    yield from ((chain, value) for target, value in pairs if name.id in syntax.names_in(target))
    handed = list(came_from.handed(chain, name))[1:]
    yield from ((one.chain, one.value) for one in handed if one.value is not None)


def _gone_through(chain: Chain, name: str) -> Iterator[ast.expr]:
    """What a loop around the line, or a comprehension on it, goes through by a name."""
    line = locations.line_of(chain[0])
    for statement in came_from.statements_around(chain[0]):
        if not statement.lineno <= line <= (statement.end_lineno or line):
            continue
        loops: list[ast.For | ast.AsyncFor | ast.comprehension]
        loops = [statement] if isinstance(statement, (ast.For, ast.AsyncFor)) else []
        inner = (one for one in ast.walk(statement) if isinstance(one, _COMPREHENSIONS))
        loops += [loop for one in inner for loop in one.generators]
        yield from (loop.iter for loop in loops if name in syntax.names_in(loop.target))
