"""Parameters whose values do no more than decide which of several things the loss is computed from.

A decision has no derivative. Where the loss has a history besides, it is enough that what they decide enters it
(``findings``). Where it is a constant, they are to blame only if each of the things to choose from is one
(``among_constants``): else the condition may be there to skip a batch, and the constant that stands in is the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradkit.core.records import LIKELY, Finding
from gradkit.core.trace import Call, Key, Point
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import conditions, constant_choices, dataflow, locations
from gradkit.source.conditions import Choice

BRANCH = "branch"
_Test = Callable[[Choice], bool]


def findings(e: Evidence, names: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """The conditions that they decide, and the parameters that decide none."""
    return _told(e, names, lambda choice: choice.returns or _enters(e, choice))


def among_constants(e: Evidence, names: Sequence[str], ends: Sequence[Point] = ()) -> tuple[list[Finding], list[str]]:
    """The conditions by which they choose the constant that the loss is, and the parameters that decide none.

    Args:
        ends: where what took the place of a loss was handed over, if that is no tensor.
    """

    def chooses(choice: Choice) -> bool:
        enters = _enters(e, choice) or (choice.returns and _returned_into(e, choice)) or _handed_over(choice, ends)
        return enters and constant_choices.among_constants(choice, lambda first, last: _learns(e, choice, first, last))

    return _told(e, names, chooses)


def _told(e: Evidence, names: Sequence[str], is_one: _Test) -> tuple[list[Finding], list[str]]:
    groups: dict[Key, tuple[Choice, Call, list[str]]] = {}
    for name in names:
        for choice, call in _chosen(e, name):
            if is_one(choice):
                groups.setdefault((choice.code, choice.node.lineno), (choice, call, []))[2].append(name)
                break
    found = [
        Finding(
            "python_roundtrip", choice.place, tuple(called_by(call.chain)), proof=LIKELY, parameters=tuple(group),
            call=call.name, variant=BRANCH,
        )
        for choice, call, group in groups.values()
    ]  # fmt: skip
    told = {name for _, _, group in groups.values() for name in group}
    return found, [name for name in names if name not in told]


def _chosen(e: Evidence, name: str) -> list[tuple[Choice, Call]]:
    """What is decided by what was computed of a parameter and is used by no other call."""
    ends = [call for call in e.flow_from([name]) if call.chain and not e.trace.using(call.outputs)]
    found = [(conditions.chosen_by(call.chain), call) for call in ends]
    return [(choice, call) for choice, call in found if choice is not None]


def _enters(e: Evidence, choice: Choice) -> bool:
    """Whether what is chosen comes to be used in the loss."""
    used = _used(e, choice.code)
    return any(line in used or _flows(choice, line, used) for line in choice.lines)


def _used(e: Evidence, code: object) -> set[int]:
    """The lines of a function that computed something which flows into the loss."""
    return {
        locations.line_of(point)
        for call in e.trace.calls if e.verdict.reaching.intersection(call.outputs)
        for point in call.chain if point[0] is code
    }  # fmt: skip


def _flows(choice: Choice, line: int, used: set[int]) -> bool:
    return any(dataflow.flows_into(choice.code, line, at) for at in used)


def _returned_into(e: Evidence, choice: Choice) -> bool:
    """Whether what a function returns by choice enters the loss: it is computed there, or used where it was called."""
    node = choice.node
    here = _used(e, choice.code)
    if any(node.lineno <= line for line in here):
        return True
    for point in e.trace.callers(choice.code):
        line, used = locations.line_of(point), _used(e, point[0])
        if line in used or any(dataflow.flows_into(point[0], line, at) for at in used):
            return True
    return False


def _handed_over(choice: Choice, ends: Sequence[Point]) -> bool:
    """Whether what is chosen is what a function hands over for the loss."""
    at = [locations.line_of(point) for point in ends if point[0] is choice.code]
    return any(
        choice.node.lineno <= line <= (choice.node.end_lineno or line) or _flows(choice, one, {line})
        for line in at for one in choice.lines
    )  # fmt: skip


def _learns(e: Evidence, choice: Choice, first: int, last: int) -> bool:
    """Whether anything computed in some lines of the function has a parameter that should train behind it."""
    made = (
        call for call in e.trace.calls for point in call.chain
        if point[0] is choice.code and first <= locations.line_of(point) <= last
    )  # fmt: skip
    return any(e.behind([call]) for call in made)
