"""Where the labels were taken out of a loss in which none counts, and where a selection was made that holds nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradkit.core.records import Location, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.rules.evidence import Evidence, line_of
from gradkit.source import frames, ignored_labels, locations

_PICKS = frozenset(("__getitem__", "masked_select", "index_select", "index", "take"))
_SHAPES = frozenset(
    "view reshape flatten unsqueeze squeeze expand expand_as to bool nonzero where view_as contiguous repeat "
    "__getitem__ detach clone".split()
)


def lines(e: Evidence, call: Call) -> tuple[Location, ...]:
    """The lines that may have taken the labels out of a loss, those that fit equally well.

    Args:
        call: of the loss function.
    """
    index = ignored_labels.ignored_index_of(call.chain[0] if call.chain else None, e.files)
    found = ignored_labels.ignored_label_lines(e.files, index, _widths(e, call))
    behind = {line_of(one) for one in e.trace.behind(call.inputs)}
    ran = tuple(one for one in found if (one.file, one.line) in behind)
    return ran or found


def written(
    e: Evidence, call: Call, spot: Location | None, notes: Sequence[Note]
) -> tuple[Location | None, list[Note]]:
    """Of a loss that no label counts in, where the labels were taken out, and notes; None if that cannot be told.

    Where they were cut to a length at which nothing but masked ones is left, it is where that length is given.
    """
    found = lines(e, call)
    if len(found) != 1:
        return None, [*notes, *(Note("ignored_here", other) for other in found[:3])]
    told = [Note("no_label", spot)] if spot is not None else []
    short = ignored_labels.cut_short(found[0], _widths(e, call), e.files)
    return (short, [Note("ignored_here", found[0]), *told]) if short is not None else (found[0], told)


def picked_with(e: Evidence, call: Call) -> Location | None:
    """The line of the user's that makes the mask or indices by which nothing was picked for a mean of no elements.

    None where they came from outside of the step; and where the loss has other terms: then it is as a rule the batch
    that holds nothing for this one.
    """
    values = e.trace.values
    if sum(term.added >= 0 for term in e.first.terms) > 1:
        return None
    for one in e.trace.behind(call.inputs):
        empty = any(math.prod(values[n].shape) == 0 for n in one.outputs)
        full = one.inputs and math.prod(values[one.inputs[0]].shape) > 0
        if one.name in _PICKS and empty and full:
            made = [_made(e, n) for n in one.inputs[1:] if not values[n].floating and not values[n].python]
            return next((spot for maker in made if maker is not None and (spot := _users(maker)) is not None), None)
    return None


def _made(e: Evidence, number: int) -> Call | None:
    """What made a mask, past what only gives it another form."""
    makers = map(e.trace.maker, reversed(e.trace.forms(number, _SHAPES)))
    return next(filter(None, makers), None)


def _users(call: Call) -> Location | None:
    spot = locations.innermost(call.chain)
    return spot if spot is not None and frames.is_user_file(spot.file) else None


def _widths(e: Evidence, call: Call) -> frozenset[int]:
    """How long the rows are of the data of whole numbers that flow into a loss."""
    values = (e.trace.values[n] for n in e.trace.sources(call.inputs))
    given = [one for one in values if one.maker < 0 and not one.floating and not one.python and not one.parameter]
    return frozenset(one.shape[-1] for one in given if one.shape)
