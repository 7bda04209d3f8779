"""Lookups in an Embedding of which every index is ``padding_idx``: its row never gets a gradient, so that nothing does.

Where the table has that one row, no batch changes it. Else another batch may look up other rows: an optional field that
is empty here, the indices of a second segment that stand for themselves where none are given.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
"""

from __future__ import annotations

from torch import nn

from gradkit.core.records import OBSERVED, Finding, Location, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.experiments import zero_gradients as asked
from gradkit.diagnosis.experiments.zero_gradients import Flat
from gradkit.diagnosis.rules.evidence import Evidence, called_by, same_line
from gradkit.source import locations

PADDING, PADDED = "padding", "padded"
"""The variants: no batch changes it, and this batch alone is known to be so."""


def told(e: Evidence, flat: Flat) -> Finding:
    """The finding for a lookup that hands on zeros, or for what is multiplied by the zeros of its row.

    Named is the line that defines the Embedding; of a table that is none, that of the lookup.

    Args:
        flat: one of the kind ``PADDED``, or a factor that is ``padded``.

    Returns:
        A finding of the variant ``PADDING`` or ``PADDED``; the latter may pass with another batch.
    """
    call = flat.call if flat.kind == asked.PADDED else e.trace.calls[e.trace.values[flat.origin].maker]
    here, name = locations.innermost(call.chain), _table(e, call)
    spot = _defined(e, name) or here
    notes = [Note("all_padding", here)] if here is not None and spot is not None and not same_line(here, spot) else []
    return Finding(
        "zero_gradient", spot, (*notes, *called_by(call.chain)), proof=OBSERVED, parameters=flat.parameters,
        call=call.name, variant=PADDING if _has_one_row(e, name) else PADDED, facts={"name": name},
    )  # fmt: skip


def _table(e: Evidence, call: Call) -> str:
    """The name of the parameter that rows are looked up in."""
    held = (e.trace.values[number].parameter for number in call.inputs)
    return next((e.trace.named(one) for one in held if one), "")


def _defined(e: Evidence, name: str) -> Location | None:
    """The line that defines the Embedding whose table it is; None of a plain Parameter."""
    owner = e.facts.classes.get(name.rpartition(".")[0])
    if owner is None or not issubclass(owner, (nn.Embedding, nn.EmbeddingBag)):
        return None
    return e.defined_at(name, [name])[0]


def _has_one_row(e: Evidence, name: str) -> bool:
    """Whether there is no other row to be looked up than that of ``padding_idx``."""
    return any(row.name == name and row.shape[:1] == (1,) for row in e.rows)
