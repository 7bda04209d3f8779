"""Why a layer took no part in a run although the forward could have come to it: what it was not given, or ignores."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gradkit import arguments, classes, frames, guards, sources
from gradkit.evidence import Evidence
from gradkit.ran import Function, Ran
from gradkit.records import Location

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Reason:
    """Where the fault is; ``kind``: ``"argument"`` (``name`` is not given there), ``"slot"`` (is ignored there)."""

    kind: str
    location: Location
    name: str


def reason(e: Evidence, parameter: str, attribute: str) -> Reason | None:
    """Why a parameter that is held by way of ``attribute`` is idle; None if its definition is all that can be named."""
    owners = dict.fromkeys(e.classes.values())
    for guard in guards.of(owners, attribute, e.ran) if attribute else ():
        spot = arguments.ought(guard, e.ran, e.files)
        if spot is not None:
            return Reason("argument", spot, guard.key or guard.argument)
    return _ignored(e.way_to(parameter), e.ran)


def _ignored(way: Sequence[tuple[type, str]], ran: Ran) -> Reason | None:
    """A class declares a slot, empty until something is put there from outside, and its own ``forward`` ignores it."""
    for cls, attribute in reversed(way):
        bodies = list(classes.bodies(cls))
        given = [v for _, body in bodies for v in _given(body, attribute)]
        forward = next(((file, f) for file, body in bodies if (f := _method(body, "forward")) is not None), None)
        if not given or any(ast.unparse(v) != "None" for v in given) or forward is None or not ran(*forward):
            continue
        file, function = forward
        ends = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        if len(ends) == 1 and not classes.uses([cls], attribute):
            return Reason("slot", frames.place(file, ends[0], f"{cls.__name__}.forward"), attribute)
    return None


def _method(body: ast.ClassDef, name: str) -> Function | None:
    return next((node for node in body.body if isinstance(node, _FUNCTIONS) and node.name == name), None)


def _given(body: ast.ClassDef, attribute: str) -> list[ast.expr]:
    """What the ``__init__`` of a class gives ``self.<attribute>``."""
    init = _method(body, "__init__")
    told = [pair for node in (ast.walk(init) if init is not None else ()) for pair in sources.pairs(node)]
    return [value for target, value in told if isinstance(target, ast.Attribute) and target.attr == attribute]
