"""A piece of a program as it would be with a changed text: what was cut out of a frame is cut out of that instead.

Statements that are the same in both texts stay as they are, with their places; so no more than the change is new.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gradkit.source import units

Block = list[ast.stmt]
_BLOCKS = ("body", "orelse", "finalbody")


def statements(kept: Iterable[ast.stmt], before: ast.Module, text: str) -> Block | None:
    """Statements of a tree as they stand in a changed text; None if none of them is changed, or that is not plain.

    Args:
        kept: statements of ``before``, or copies of them that are cut short.
        before: the tree of the text as it is.
        text: the changed one.

    Example:
        >>> tree = ast.parse("a = b.detach()\\nwith f():\\n    c = a\\nd = c")
        >>> made = statements(tree.body[:2], tree, "a = b\\nc = a\\nd = c")
        >>> [ast.unparse(one) for one in made]
        ['a = b', 'c = a']
        >>> statements(tree.body[2:], tree, "a = b\\nc = a\\nd = c") is None
        True
    """
    try:
        after = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    instead = {id(was): now for was, now in _differing(before, after)}
    met: set[int] = set()
    found = _replaced(list(kept), instead, met)
    return found if met else None


def _differing(before: Any, after: Any) -> Iterator[tuple[ast.stmt, Block]]:
    """The innermost statements that differ, each with what stands in its place; what is put in comes before another."""
    for mine, its in zip(_blocks(before), _blocks(after), strict=False):
        same = [ast.dump(one) == ast.dump(other) for one, other in zip(mine, its, strict=False)]
        first = same.index(False) if False in same else len(same)
        if len(mine) == len(its):
            for one, other in zip(mine[first:], its[first:], strict=True):
                yield from _of_one(one, other)
        else:
            ends = zip(mine[first:][::-1], its[first:][::-1], strict=False)
            back = [ast.dump(one) == ast.dump(other) for one, other in ends]
            last = back.index(False) if False in back else len(back)
            gone, new = mine[first : len(mine) - last], its[first : len(its) - last]
            if len(gone) == 1:
                yield gone[0], new
            elif not gone and first < len(mine):
                yield mine[first], [*new, mine[first]]


def _of_one(one: ast.stmt, other: ast.stmt) -> Iterator[tuple[ast.stmt, Block]]:
    if ast.dump(one) == ast.dump(other):
        return
    inside = list(_differing(one, other)) if type(one) is type(other) and _head(one) == _head(other) else []
    yield from inside or [(one, [other])]


def _head(statement: ast.stmt) -> str:
    """A statement without its blocks, as text to compare."""
    bare: Any = copy.copy(statement)
    for name in (*_BLOCKS, "handlers", "cases"):
        if hasattr(bare, name):
            setattr(bare, name, [])
    return ast.dump(bare)


def _blocks(node: Any) -> Iterator[Block]:
    return (block for block in units.blocks(node) if not isinstance(node, ast.Lambda))


def _replaced(block: Block, instead: dict[int, Block], met: set[int]) -> Block:
    found: Block = []
    for one in block:
        if id(one) in instead:
            met.add(id(one))
            found += instead[id(one)]
        else:
            found.append(_with_its_blocks(one, lambda inner: _replaced(inner, instead, met)))
    return found


def _with_its_blocks(statement: ast.stmt, change: Callable[[Block], Block]) -> ast.stmt:
    """A statement, or a copy of it where something in its blocks is changed."""
    made = statement
    for name in _BLOCKS:
        block = getattr(statement, name, None)
        if isinstance(block, list) and not isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            new = change(block)
            if len(new) != len(block) or any(a is not b for a, b in zip(new, block, strict=True)):
                made = copy.copy(statement) if made is statement else made
                setattr(made, name, new or [ast.copy_location(ast.Pass(), statement)])
    return made
