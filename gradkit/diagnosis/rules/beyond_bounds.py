"""A parameter that lies outside of the bounds it is held to itself: its slope there is zero in every step, for no
batch and no other parameter takes part in what goes into the bound.

A penalty that is satisfied is no such thing: its result only adds to the loss, and nothing is computed with it.
"""

from __future__ import annotations

import re

from gradkit.core.operations import ADDS, FROM_PLAIN
from gradkit.core.trace import Call
from gradkit.diagnosis.experiments import zero_gradients as asked
from gradkit.diagnosis.experiments.zero_gradients import Flat
from gradkit.diagnosis.rules.evidence import Evidence

_BOUNDS = re.compile(r"(clamp|clip|hardtanh|relu|threshold|maximum|minimum)")
_DRAWS = re.compile(r"rand|normal|bernoulli|dropout|multinomial|poisson|uniform|exponential_|sample|gumbel")
_CONSTANTS = FROM_PLAIN | {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_full"}


def parameter_of(e: Evidence, flat: Flat, call: Call) -> str:
    """The name of the parameter that lies beyond what ``call`` lets through, for ever; ``""`` if it may come back.

    Args:
        flat: why the gradient of some parameters is zero.
        call: the bound: the call itself, or the one that made the zero which something is multiplied by.
    """
    if not flat.beyond or not _BOUNDS.match(call.name):
        return ""
    names = _only_parameters(e, call)
    dead = bool(names) and all(e.reached.norms.get(name) == 0 for name in names)
    if not dead or any(name not in e.wanted for name in names):
        return ""
    return names[0] if _is_computed_with(e, call) and all(_ends_at_bounds(e, name) for name in names) else ""


def _only_parameters(e: Evidence, call: Call) -> list[str]:
    """The parameters that go into a call; none if anything else does, but for what stays the same."""
    names = dict[str, None]()
    behind = e.trace.behind(call.inputs)
    if any(_DRAWS.search(one.name) for one in behind):
        return []
    for number in e.trace.sources(call.inputs):
        value = e.trace.values[number]
        if value.parameter:
            names[e.trace.named(value.parameter)] = None
        elif value.maker < 0 and not value.buffer:
            return []
        elif value.maker >= 0 and not e.trace.calls[value.maker].inputs:
            if e.trace.calls[value.maker].name not in _CONSTANTS:
                return []
    return list(names)


def _is_computed_with(e: Evidence, call: Call) -> bool:
    """Whether something else is computed with what a call hands out, other than by adding to it."""
    flowing = set(call.outputs)
    for after in e.trace.ahead(call.outputs):
        if after.name not in ADDS and any(n not in flowing for n in after.inputs):
            return True
        flowing.update(after.outputs)
    return False


def _ends_at_bounds(e: Evidence, name: str) -> bool:
    """Whether all ways of a parameter's gradient end at bounds that it alone goes into."""
    ends = [flat for flat in e.shown.zeros.flat if name in flat.parameters]
    slopes = (asked.INACTIVE, asked.CLAMPED)
    return all(one.kind in slopes and one.beyond and _only_parameters(e, one.call) for one in ends)
