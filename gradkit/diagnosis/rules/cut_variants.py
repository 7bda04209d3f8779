"""In which of its ways a cut shows, by what stands on its line: each has words of its own.

A word that cuts may stand there, or within what the line calls; what it gives may be stored as another tensor's data,
or be told what only a leaf can be told. And of what ``map`` applies, the line that takes the values says nothing.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from gradkit.core.operations import FILLED
from gradkit.core.records import Finding, Note
from gradkit.core.trace import Call
from gradkit.diagnosis.facts.cuts import DATA, DETACH, REGION, Cut
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import lazy_maps, locations, non_leaves

STORED = "stored"


def variant(cause: str, cut: Cut, call: Call | None, e: Evidence) -> str:
    """The way in which a cut shows; ``""`` for the plain one, a word that stands on the line.

    Args:
        cause: what it is told as.
        call: the call that cuts.
    """
    if cause == "detach" and call is not None and call.name == "_values":
        return "sparse"
    if cause == "new_leaf" and cut.kind in (DETACH, DATA):
        return "copy"
    if cause == "data_attr" and call is not None and _is_stored(cut, call, e):
        return STORED
    if cause == "create_graph_missing" and call is not None and (cut.kind == REGION or call.name == FILLED):
        return ("handed" if cut.kind == REGION else "filled") if call.name == FILLED else "hook"
    word = {DETACH: "detach", DATA: "data"}.get(cut.kind)
    node = locations.node_at(call.chain[0]) if call is not None and call.chain else None
    if word is None or node is None or call is None or not locations.word_at(call.chain):
        return ""
    if word not in ast.unparse(node):
        return "within"
    return "no_flag" if cause == "detach" and non_leaves.is_told_to_need_none(call.chain[0]) else ""


def _is_stored(cut: Cut, call: Call, e: Evidence) -> bool:
    """Whether bare values become the data of another tensor: there, or by what takes them from there."""
    return cut.key[1] == "data=" or any(one.name == "data=" for one in e.trace.using(call.outputs))


def mapped(found: Finding, call: Call, e: Evidence) -> Finding:
    """The finding at the call of ``map`` that the cut ran for, with a note of the line that took the values.

    Args:
        found: the finding, at the line that ran.
        call: the call that cuts.

    Returns:
        ``found`` itself where that line says what it calls.
    """
    spot = lazy_maps.mapped_at(call.chain, call.name, e.files)
    notes = tuple(note for note in found.notes if note.kind != "called_by")
    taken = Note("taken_here", found.location, {"call": call.name})
    return replace(found, location=spot, notes=(taken, *notes), variant="") if spot is not None else found
