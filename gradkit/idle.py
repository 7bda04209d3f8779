"""Why a layer took no part in a run although the forward could have come to it: what it was not given, or ignores."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from gradkit import arguments, classes, frames, guards, sources
from gradkit.evidence import Evidence
from gradkit.ran import Function, Ran
from gradkit.records import Location
from gradkit.words import FUNCTIONS


@dataclass(frozen=True)
class Reason:
    """Where the fault is.

    Attributes:
        kind: ``"argument"`` (``name`` is not given there) or ``"slot"`` (it is ignored there).
        use: the line that would have used the layer, and did not run.
    """

    kind: str
    location: Location
    name: str
    use: Location | None = None


def reason(e: Evidence, parameter: str) -> Reason | None:
    """Why a parameter is idle; None if its definition is all that can be named."""
    way = [(cls, attribute) for cls, attribute in reversed(e.way_to(parameter)) if any(classes.bodies(cls))]
    owners = dict.fromkeys(e.facts.classes.values())
    asked = (guards.of(owners, attribute, e.ran) for _, attribute in way)
    for guard in next((found for found in asked if found is not None), ()):
        spot = arguments.ought(guard, e.ran, e.files)
        if spot is not None:
            return Reason("argument", spot, guard.key or guard.argument, guard.use)
    return next((found for one in way if (found := _ignored(*one, e.ran)) is not None), None)


def _ignored(cls: type, attribute: str, ran: Ran) -> Reason | None:
    """A class declares a slot, empty until something is put there from outside, and its own ``forward`` ignores it."""
    bodies = list(classes.bodies(cls))
    given = [v for _, body in bodies for v in _given(body, attribute)]
    forward = next(((file, f) for file, body in bodies if (f := _method(body, "forward")) is not None), None)
    if not given or any(ast.unparse(v) != "None" for v in given) or forward is None or not ran(*forward):
        return None
    file, function = forward
    ends = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    if len(ends) != 1 or classes.uses([cls], attribute):
        return None
    return Reason("slot", frames.place(file, ends[0], f"{cls.__name__}.forward"), attribute)


def _method(body: ast.ClassDef, name: str) -> Function | None:
    return next((node for node in body.body if isinstance(node, FUNCTIONS) and node.name == name), None)


def _given(body: ast.ClassDef, attribute: str) -> list[ast.expr]:
    """What the ``__init__`` of a class gives ``self.<attribute>``."""
    init = _method(body, "__init__")
    told = [pair for node in (ast.walk(init) if init is not None else ()) for pair in sources.pairs(node)]
    return [value for target, value in told if isinstance(target, ast.Attribute) and target.attr == attribute]
