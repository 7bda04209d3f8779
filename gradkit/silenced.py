"""Hooks of the user's that put zeros, nan or nothing in the place of a gradient, and no error is raised."""

from __future__ import annotations

import ast
from types import CodeType

from gradkit import frames
from gradkit.evidence import Evidence
from gradkit.records import OBSERVED, PROVEN, Finding, Harmless, Location, Note
from gradkit.standins import HIDDEN
from gradkit.unhooked import Silencer


def name(e: Evidence) -> list[Finding]:
    """One finding for each hook that starves what should learn, in the order of the backward."""
    return [_finding(e, one) for one in e.shown.silencers if not _is_meant(e, one)]


def meant(e: Evidence) -> list[Harmless]:
    """Hooks of a parameter that silence that parameter alone: a way to freeze it."""
    found = ((one, location(one)) for one in e.shown.silencers if _is_meant(e, one))
    return [Harmless("hook", spot, "own_hook") for _, spot in found if spot is not None]


def _is_meant(e: Evidence, one: Silencer) -> bool:
    """Whether a hook may have been written to keep its own parameters as they are, wholly or in part.

    Not if nothing is left that learns, and not if the user has said that these should train.
    """
    if one.kind == HIDDEN or not set(one.parameters) <= one.owners:
        return False
    if all(call.partial for call in one.calls):
        return True
    silent = {name for other in e.shown.silencers for name in other.parameters}
    alive = [name for name in e.wanted if name not in silent and e.reached.norms.get(name)]
    return bool(alive) and not e.facts.explicit


def _finding(e: Evidence, one: Silencer) -> Finding:
    first, spot = one.calls[0], location(one)
    placed = {call.registered for call in one.calls if call.registered}
    notes = []
    at = frames.innermost(next(iter(placed))) if len(placed) == 1 else None
    if at is not None and spot is not None and (at.file, at.line) != (spot.file, spot.line):
        notes.append(Note("registered", at))
    variant = "emptied" if first.emptied and one.kind != HIDDEN else one.kind
    if one.kind == HIDDEN:
        call = e.trace.calls[one.spoiler] if 0 <= one.spoiler < len(e.trace.calls) else None
        source = frames.innermost(call.chain) if call is not None else None
        if call is not None and source is not None:
            notes.append(Note("nan_from", source, {"call": call.name}))
        return Finding("hook_misuse", spot, tuple(notes), OBSERVED, one.parameters, variant=variant)
    return Finding(
        "hook_misuse", spot, tuple(notes), PROVEN, one.parameters, revived=one.parameters, reruns=1, variant=variant
    )


def location(one: Silencer) -> Location | None:
    """The one line of the hook where the gradient was lost; its only ``return``; or the line that it begins on."""
    code = one.calls[0].code
    if code is None:
        return frames.innermost(one.calls[0].registered)
    points = {frames.line_of(call.point): call.point for call in one.calls if call.point is not None}
    if len(points) == 1 and all(call.point is not None for call in one.calls):
        return frames.locate(next(iter(points.values())))
    return _returning(code) or frames.whole_line(code, _head(code), frames.qualified_name(code))


def _returning(code: CodeType) -> Location | None:
    """What the function returns, if that is written in one place."""
    tree = frames.tree_at(code)
    lines = {line for *_, line in code.co_lines() if line}
    found: list[ast.expr] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            found.append(node.body)
        elif isinstance(node, ast.Return) and node.value is not None and node.lineno in lines:
            found.append(node.value)
    return frames.place(code.co_filename, found[0], frames.qualified_name(code)) if len(found) == 1 else None


def _head(code: CodeType) -> int:
    """The line of the ``def`` or ``lambda``, below any decorators."""
    tree = frames.tree_at(code)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno:
                return node.lineno
    return code.co_firstlineno
