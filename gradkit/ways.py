"""By which lines a run could have come to a layer that it did not use, and on what condition."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit import classes, frames, guards
from gradkit.ran import Ran
from gradkit.records import Location, Note

_DEEPEST = 3
_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp)


@dataclass(frozen=True)
class Way:
    """A line that uses a layer, and that functions which ran would have led to.

    Attributes:
        use: the line.
        conditions: what stands on the way there, in the function that ran: the place, and whether it has to hold.
    """

    use: Location
    conditions: tuple[tuple[Location, bool], ...]


def passed_by(owners: Iterable[type], attribute: str, defined: Location | None, ran: Ran) -> list[Note]:
    """The lines that use a layer; and, where there is one way to it, the conditions on which it is taken.

    Args:
        owners: the classes whose methods may read ``.<attribute>``.
        defined: the line that made the layer; it is no use.
    """
    owners, facts = tuple(owners), {"attribute": attribute}
    places = [use for use in classes.uses(owners, attribute) if defined is None or use.line != defined.line]
    found = [way for way in to(owners, attribute, ran) if way.use in places]
    places = list(dict.fromkeys(way.use for way in found)) or places
    notes = [Note("left_out" if ran.around(place) else "not_run", place, facts) for place in places[:2]]
    asked = found[0].conditions if len(found) == 1 and notes[0].kind == "not_run" else ()
    return notes + [Note("only_if" if holds else "only_if_not", place, facts) for place, holds in asked]


def to(owners: Iterable[type], attribute: str, ran: Ran) -> list[Way]:
    """The ways to every line of ``owners`` that reads ``.<attribute>``, from functions that ran.

    A method that did not run is looked for where it would have been called. What nothing leads to, such as a method
    that prints a summary, is left out.
    """
    return list(_ways(tuple(owners), attribute, ran))


def _ways(owners: tuple[type, ...], attribute: str, ran: Ran, depth: int = 0) -> Iterator[Way]:
    for file, owner, function, path in guards.reads(owners, attribute, ran):
        use = frames.place(file, path[-1], f"{owner}.{function.name}")
        if ran(file, function):
            asked = ((frames.place(file, test, use.function), wanted) for test, wanted in _tests(path))
            yield Way(use, tuple(asked))
        elif depth < _DEEPEST and function.name != attribute:
            yield from (Way(use, one.conditions) for one in _ways(owners, function.name, ran, depth + 1))


def _tests(path: list[ast.AST]) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions on the way down to a node, as they are written, and whether each has to hold."""
    for outer, inner in itertools.pairwise(path):
        met = guards.conditions(outer, inner)
        block = isinstance(outer, ast.stmt) and not isinstance(outer, ast.If) and isinstance(inner, ast.stmt)
        if isinstance(outer, _BRANCHES):
            yield from met
        elif block:
            yield from ((test, wanted) for test, wanted in met if not wanted)
