"""An optimizer that was handed gradients of a kind that it does not take: sparse ones, or dense ones.

Most optimizers take dense gradients only; ``SparseAdam`` takes sparse ones only. The gradient has arrived: either who
asked for its kind is to be changed, or what the optimizer was handed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from torch import nn

from gradkit.core.records import LIKELY, OBSERVED, READ, Finding, Location, Note
from gradkit.diagnosis.rules.evidence import Evidence, of_error
from gradkit.source import sparse_tables
from gradkit.source.locations import innermost
from gradkit.tracing.autograd_errors import AutogradError

SPARSE, DENSE, REFUSES = "sparse", "dense", "refuses"
_MOST_NOTES = 3


def findings(e: Evidence, mishap: AutogradError) -> list[Finding]:
    """The one line that asks for sparse gradients; where there are several, or none, the one that built the optimizer.

    Where it cannot be told which line built it, the finding stands where it stepped.
    """
    said = re.search(r"(\w+)`? does not support (sparse|dense) grad", mishap.message)
    if said is None:
        return []
    wanted, is_sparse = said[1].removeprefix("_fused_"), said[2] == SPARSE
    built = sparse_tables.builders(e.files, wanted)
    kind, line = built[0] if len(built) == 1 else (wanted, None)
    tables = [one.location for one in sparse_tables.tables(e.files) if one.is_sparse is is_sparse]
    if is_sparse and len(tables) == 1:
        notes = (Note("optimizer_built", line, {"optimizer": kind}),) if line is not None else ()
        return [_told(e, mishap, tables[0], kind, notes, SPARSE)]
    made = tuple(Note("table_made", one) for one in tables[:_MOST_NOTES])
    return [_told(e, mishap, line, kind, made, REFUSES if is_sparse else DENSE)]


def _told(
    e: Evidence, mishap: AutogradError, spot: Location | None, kind: str, notes: tuple[Note, ...], variant: str
) -> Finding:
    proof, doubt = (LIKELY, READ) if spot is not None else (OBSERVED, "")
    spot = spot or innermost(mishap.chain)
    names = _parameters(e, is_sparse=variant != DENSE)
    found = of_error("optimizer_mismatch", e, mishap, spot, proof=proof, names=names, chain=(), optimizer=kind)
    return replace(found, notes=notes, variant=variant, doubt=doubt)


def _parameters(e: Evidence, *, is_sparse: bool) -> tuple[str, ...]:
    """The parameters whose gradients are sparse, or those whose are not, as the modules that hold them are set.

    A parameter that a function looks up, and no module, is not known to be either: then none is told.
    """
    tables = {path for path, cls in e.facts.classes.items() if issubclass(cls, (nn.Embedding, nn.EmbeddingBag))}
    sparse = {path for path in tables if e.facts.settings.get(path, {}).get("sparse") is True}
    if not sparse and is_sparse:
        return ()
    return tuple(name for name in e.wanted if (name.rpartition(".")[0] in sparse) is is_sparse)
