"""What is told of a cut that lies in an installed library: the way from the user's line to it, and what to do instead.

The line to change is the user's, for the installed file is not theirs to edit. What stands on that line is a call; the
operation that cuts stands in the library, and a note shows it there.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from gradkit.core.records import Finding, Note
from gradkit.core.trace import CHECKPOINT, FUNCTION, PRESET, SAMPLE, Call, Chain, Region
from gradkit.source import editable, installed, locations

_MOST = 4  # frames of a library on the way that are named
_WRAPPER = re.compile(r"_?(wrap|inner|decorat|<)|__call__$")
_METRICS = re.compile(r"(^|[/\\])(torchmetrics|torcheval|metrics?)([/\\]|\.py$)")
_FOR_USE = {
    ("transformers", "generate"): "generate",
    ("sentence_transformers", "encode"): "encode",
    ("diffusers", "__call__"): "pipeline",
}
"""Functions that run a model to use it, not to train it."""


def told(finding: Finding, region: Region | None, call: Call | None) -> Finding:
    """The finding, with the way through the library if the cut lies in one.

    Args:
        region: the stretch without recording that is at fault, None if there is none.
        call: the call that is at fault.
    """
    if region is not None and (region.kind in (CHECKPOINT, FUNCTION, PRESET, SAMPLE) or not region.via):
        return finding
    through = region.through if region is not None else call.through if call is not None else ()
    if not through or finding.location is None:
        return finding
    package = installed.library_of(through[0][0].co_filename)
    facts = {"package": package, "advice": _advice(package, through, is_off=region is not None)}
    if region is None:
        facts["inside"] = package
    return replace(finding, notes=(_note(finding, region, through, package), *finding.notes),
                   facts={**finding.facts, **facts})  # fmt: skip


def called(region: Region) -> str:
    """The library's function that opened a region: as the user's line calls it, where its own name says nothing."""
    if not _WRAPPER.match(region.via):
        return region.via
    return locations.word_at(region.chain) or region.via


def _note(finding: Finding, region: Region | None, through: Chain, package: str) -> Note:
    """The line of the library's that cuts, and the frames by way of which it was reached."""
    between = [f"{os.path.basename(code.co_filename)}:{locations.line_of((code, at))}" for code, at in through[1:]]
    between = list(dict.fromkeys(between))
    if len(between) > _MOST:
        between = [*between[: _MOST - 1], "…", between[-1]]
    kind = "in_library" if region is None else "off_in_library"
    facts = {"call": finding.call, "package": package, "way": ", ".join(reversed(between))}
    decorator = locations.locate_code(through[0][0], {}) if region is not None and region.decorated else None
    return Note(f"{kind}_way" if between else kind, decorator or locations.locate(through[0]), facts)


def _advice(package: str, through: Chain, *, is_off: bool) -> str:
    """Names the sentence that tells what to do, ``library.help_<advice>``; ``""`` for the usual one."""
    named = (_FOR_USE.get((package, code.co_name)) for code, _ in through)
    found = next((one for one in named if one is not None), "")
    if not found and any(_METRICS.search(code.co_filename) for code, _ in through):
        found = "update" if is_off else "metric"
    if not found and editable.import_root(os.path.realpath(through[0][0].co_filename)):
        found = "editable"
    return found
