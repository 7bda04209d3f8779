"""Faults of the loss itself: it has several elements, or its gradient is nan."""

from __future__ import annotations

import math
import re
from types import CodeType

from gradkit.core.operations import ADDS, JOINS, SCALES
from gradkit.core.records import LIKELY, OBSERVED, READ, Finding, Note
from gradkit.core.trace import Call, Chain, spot
from gradkit.diagnosis.rules.evidence import Evidence, by_line, called_by, same_line
from gradkit.source import locations

MASKED = "masked"
_SOFT = re.compile(r"_?(log_)?softmax|logsumexp")
_MASKS = re.compile(r"masked_fill_?|where|__setitem__|index_fill_?|masked_scatter_?")
_TO_INFINITY = frozenset("log log_ log2".split())
_FEW = 6


def findings(e: Evidence) -> list[Finding]:
    """Faults of the loss itself: several elements, or a gradient that is nan."""
    found = []
    if e.reached.elements != 1 and not e.starved:
        maker = e.trace.values[e.trace.loss].maker if e.trace.loss >= 0 else -1
        chain = _reduced_at(e, _large_addend(e, e.trace.calls[maker])) if maker >= 0 else ()
        place = locations.innermost(chain)
        facts = {"elements": str(e.reached.elements), "shape": str(e.trace.values[e.trace.loss].shape)}
        found.append(Finding("non_scalar", place, tuple(called_by(chain)), proof=OBSERVED, facts=facts))
    if e.open.not_finite:
        found += _nan_made(e)
    return found


def _nan_made(e: Evidence) -> list[Finding]:
    """One finding for each line that makes nan by itself; the first one tells of all parameters."""
    names, calls = e.open.not_finite, e.trace.calls
    made = [calls[i] for i in e.shown.gradients.spoilers if 0 <= i < len(calls)]
    if not made:
        return [Finding("nan_gradient", None, (), proof=LIKELY, parameters=names)]
    told = {made[0]: names, **{call: tuple(n for n in names if n in e.behind([call])) for call in made[1:]}}
    return by_line(_nan_at(e, call, behind) for call, behind in told.items() if behind)


def _nan_at(e: Evidence, call: Call, names: tuple[str, ...]) -> Finding:
    """The line that makes nan; of a softmax over rows that are masked throughout, the line that masks them."""
    place, mask = locations.innermost(call.chain), _masked_at(e, call)
    there = locations.innermost(mask.chain) if mask is not None else None
    if mask is None or there is None or place is None or same_line(there, place):
        notes = tuple(called_by(call.chain))
        return Finding("nan_gradient", place, notes, proof=OBSERVED, parameters=names, call=call.name)
    notes = (*called_by(mask.chain), Note("nan_here", place, {"call": call.name}))
    return Finding(
        "nan_gradient", there, notes, proof=LIKELY, doubt=READ, parameters=names, call=mask.name, variant=MASKED
    )


def _masked_at(e: Evidence, call: Call) -> Call | None:
    """The call that masked what a softmax is taken of: in this order, or a constant that was added to it."""
    numbers = call.inputs[:1] if _SOFT.fullmatch(call.name) else ()
    for _ in range(_FEW):
        made = e.trace.maker(numbers[0]) if numbers else None
        if made is None or _MASKS.fullmatch(made.name):
            return made
        learn = [n for n in made.inputs if e.trace.values[n].requires_grad]
        added = [n for n in made.inputs if n not in learn] if made.name in ADDS else []
        mask = next(filter(None, (_mask(e, n) for n in added)), None)
        if mask is not None:
            return mask
        numbers = tuple(learn) if len(learn) == 1 else ()
    return None


def _mask(e: Evidence, number: int) -> Call | None:
    """The call by which a constant may have become -inf in places, looking through what only gives it another shape."""
    for _ in range(_FEW):
        made = e.trace.maker(number)
        if made is None or _MASKS.fullmatch(made.name) or made.name in _TO_INFINITY:
            return made
        if len(made.inputs) != 1:
            return None
        number = made.inputs[0]
    return None


def _reduced_at(e: Evidence, maker: Call) -> Chain:
    """Where a loss of several elements ought to have been reduced: where it was made.

    A wrapper in the manner of ``DataParallel`` calls the whole model several times, and joins whatever that returns:
    it has no say in what that is, and the line that called the wrapper is meant.
    """
    made = [one for n in maker.inputs if (one := _returned_by(e, n, maker.module)) is not None]
    codes = set.intersection(*({code for code, _ in one.chain} for one in made)) if made else set()
    at = next((i for i, (code, _) in enumerate(maker.chain) if code in codes and _wraps(code)), -1)
    paths = {e.trace.modules[one.module] for one in made}
    whole = len(paths) == 1 and all(_within(name, path) for name in e.wanted for path in paths)
    replicas = whole and len(made) == len(maker.inputs) > 1
    return maker.chain[at + 1 :] if maker.name in JOINS and replicas and at >= 0 else maker.chain


def _large_addend(e: Evidence, maker: Call) -> Call:
    """Of a loss that is a sum or a multiple, the call that made what is no scalar, as far as there is one such place.

    ``fit + 0.1 * F.l1_loss(a, b, reduction="none")`` has its elements from ``l1_loss``. What a part with parameters of
    its own has made is no loss yet, and stays as it is; what another function has made, that one ought to reduce.
    """
    todo, found = [maker], dict[object, Call]()
    while todo:
        call = todo.pop()
        made = _made_large(e, call) if call.name in ADDS | SCALES and _in_one_function(call, maker) else []
        todo += made
        if not made:
            found[spot(call.chain)] = call
    return next(iter(found.values())) if len(found) == 1 else maker


def _in_one_function(call: Call, other: Call) -> bool:
    return bool(call.chain and other.chain) and call.chain[0][0] is other.chain[0][0]


def _made_large(e: Evidence, call: Call) -> list[Call]:
    """What made the arguments of several elements; none where one of them is given, or of a part with weights."""
    large = [value for n in call.inputs if math.prod((value := e.trace.values[n]).shape) > 1]
    made = [e.trace.calls[value.maker] for value in large if value.maker >= 0]
    return made if len(made) == len(large) and not any(_has_weights(e, one) for one in made) else []


def _has_weights(e: Evidence, call: Call) -> bool:
    path = e.trace.modules[call.module] if call.module >= 0 else None
    return path is not None and any(_within(row.name, path) for row in e.rows)


def _returned_by(e: Evidence, number: int, module: int) -> Call | None:
    """The call in another module that handed a value to this one, as it was or in another shape."""
    maker = e.trace.values[number].maker
    while maker >= 0 and e.trace.calls[maker].module == module and len(e.trace.calls[maker].inputs) == 1:
        maker = e.trace.values[e.trace.calls[maker].inputs[0]].maker
    call = e.trace.calls[maker] if maker >= 0 else None
    return call if call is not None and call.module not in (-1, module) else None


def _wraps(code: CodeType) -> bool:
    return code.co_name in ("__call__", "forward") and code.co_varnames[:1] == ("self",)


def _within(parameter: str, module: str) -> bool:
    return not module or parameter.startswith(f"{module}.")
