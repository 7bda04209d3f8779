"""Lookups in an Embedding of which every index is ``padding_idx``: its row never gets a gradient, so that nothing does.

Where the program makes the indices, or the table has that one row, no batch changes it. Else another batch may look up
other rows: an optional field that is empty here, a name that is filled in there.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
"""

from __future__ import annotations

from torch import nn

from gradkit.core.operations import FROM_PLAIN, RANDOM, UNSEEN
from gradkit.core.records import OBSERVED, Finding, Location, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.experiments import zero_gradients as asked
from gradkit.diagnosis.experiments.zero_gradients import Flat
from gradkit.diagnosis.rules.evidence import Evidence, called_by, same_line
from gradkit.source import locations

PADDING, PADDED = "padding", "padded"
_GIVEN = FROM_PLAIN | RANDOM | {UNSEEN, "randint", "randint_like", "multinomial", "bernoulli"}


def told(e: Evidence, flat: Flat) -> Finding:
    """The finding for a lookup that hands on zeros, or for what is multiplied by the zeros of its row.

    Named is the line that defines the Embedding; of a table that is none, that of the lookup.

    Args:
        flat: one of the kind ``PADDED``, or a factor that is ``padded``.
    """
    call = flat.call if flat.kind == asked.PADDED else e.trace.calls[e.trace.values[flat.origin].maker]
    here, name = locations.innermost(call.chain), _table(e, call)
    spot = _defined(e, name) or here
    notes = [Note("all_padding", here)] if here is not None and spot is not None and not same_line(here, spot) else []
    return Finding(
        "zero_gradient", spot, (*notes, *called_by(call.chain)), proof=OBSERVED, parameters=flat.parameters,
        call=call.name, variant=PADDING if _is_of_program(e, call, name) else PADDED, facts={"name": name},
    )  # fmt: skip


def _table(e: Evidence, call: Call) -> str:
    """The name of the parameter that rows are looked up in."""
    held = (e.trace.values[number].parameter for number in call.inputs)
    return next((e.trace.named(one) for one in held if one), "")


def _defined(e: Evidence, name: str) -> Location | None:
    owner = e.facts.classes.get(name.rpartition(".")[0])
    if owner is None or not issubclass(owner, (nn.Embedding, nn.EmbeddingBag)):
        return None
    return e.defined_at(name, [name])[0]


def _is_of_program(e: Evidence, call: Call, name: str) -> bool:
    """Whether the table has one row, or the indices are made in the step of no data at all."""
    if any(row.name == name and row.shape[:1] == (1,) for row in e.rows):
        return True
    indices = [n for n in call.inputs if not e.trace.values[n].floating]
    made = {e.trace.values[n].maker for n in e.trace.sources(indices)}
    held = all(e.trace.values[n].buffer for n in e.trace.sources(indices) if e.trace.values[n].maker < 0)
    return bool(indices) and held and not any(e.trace.calls[n].name in _GIVEN for n in made if n >= 0)
