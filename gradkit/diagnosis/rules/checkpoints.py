"""A reentrant checkpoint of the user's own: the line that holds ``use_reentrant`` where the call itself does not.

A field of a configuration may, a table of settings that the call spreads out (``checkpoint(f, x, **self.options)``),
the default of an argument, or what ``functools.partial`` has bound. Where several lines may, the call is named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from gradkit.core.records import Finding, Note
from gradkit.core.trace import Chain, Region
from gradkit.diagnosis.rules.evidence import Evidence, same_line
from gradkit.source import decided as decided_by
from gradkit.source import held_flags, installed, locations, syntax
from gradkit.source.decided import Decided

SETTING = "setting"
_FLAG = "use_reentrant"


def decided(e: Evidence, region: Region, found: Finding) -> Finding:
    """A finding about a reentrant checkpoint, at the line that makes it reentrant.

    Args:
        region: the checkpoint.
        found: the finding, at the line that calls it.
    """
    own = all(installed.library_of(code.co_filename) == "torch" for code, _ in region.through)
    told = _decided((*region.chain, *e.facts.callers), e.files) if own and region.chain else None
    spot = found.location
    if told is None or told.opposite or spot is None or same_line(told.location, spot):
        return found
    notes = (Note("checkpointed_here", spot), *found.notes)
    return replace(
        found, location=told.location, notes=notes, variant=SETTING, facts={**found.facts, "name": told.name}
    )


def _decided(chain: Chain, files: tuple[str, ...]) -> Decided | None:
    call = locations.node_at(chain[0])
    if not isinstance(call, ast.Call):
        return None
    if syntax.call_name(call) == "checkpoint" or _is_told(call):
        told = decided_by.decided_at(chain, call, _FLAG, len(call.args), files, wrong=True)
        return told or decided_by.spread_at(call, _FLAG, files, wrong=True)
    bound = list(_bound(files))
    return _by_partial(*bound[0], files) if len(bound) == 1 else None


def _is_told(call: ast.Call) -> bool:
    return any(one.arg == _FLAG for one in call.keywords)


def _bound(files: tuple[str, ...]) -> Iterator[tuple[str, ast.Call, str]]:
    """The calls of ``functools.partial`` that bind arguments of ``checkpoint``: file, call and function of each."""
    for file in files:
        for node, around in syntax.statements(file):
            if isinstance(node, ast.Call) and syntax.call_name(node) == "partial" and node.args:
                if ast.unparse(node.args[0]).rpartition(".")[2] == "checkpoint":
                    yield file, node, syntax.function_of(around)


def _by_partial(file: str, call: ast.Call, function: str, files: tuple[str, ...]) -> Decided | None:
    """What decides where the flag is bound before: that line, or the one that holds what it binds."""
    given = next((one.value for one in call.keywords if one.arg == _FLAG), None)
    if given is None:
        return decided_by.spread_at(call, _FLAG, files, wrong=True)
    if isinstance(given, ast.Constant):
        return Decided(locations.place(file, given, function), _FLAG) if given.value else None
    held = held_flags.read(given, function)
    return decided_by.held_at(held, files, wrong=True) if held is not None else None
