"""Give what was found a name, a line and its evidence.

The rules run in order, most particular first: what can be read off (frozen parameters, adapters), what cuts (from
``cuts``), what is not connected at all, and last ``unknown``, which says what was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gradkit import frames, sources
from gradkit.cuts import CAST, DATA, DETACH, ESCAPE, OPERATION, REGION, REWRAP, Cut, Verdict
from gradkit.reach import Adapter, Reached
from gradkit.records import LIKELY, OBSERVED, PROVEN, Finding, Location, Note, Parameter
from gradkit.traces import (
    BLOCK, CHECKPOINT, DECORATOR, INFERENCE, PRESET, SAMPLE, SWITCH, Call, Chain, Key, Region, Trace,
)  # fmt: skip

CAUSES = (
    "adapter_inference_mode", "frozen_all", "no_grad_block", "no_grad_decorator", "inference_mode",
    "grad_disabled_globally", "checkpoint_reentrant", "detach", "data_attr", "numpy_roundtrip", "python_roundtrip",
    "rewrap_tensor", "integer_cast", "non_differentiable_op", "constant_loss", "trainable_unused", "unknown",
)  # fmt: skip

_OF_REGION = {
    BLOCK: "no_grad_block", DECORATOR: "no_grad_decorator", SWITCH: "grad_disabled_globally",
    PRESET: "grad_disabled_globally", INFERENCE: "inference_mode", CHECKPOINT: "checkpoint_reentrant",
    SAMPLE: "non_differentiable_op",
}  # fmt: skip
_OF_CALL = {
    DETACH: "detach", DATA: "data_attr", REWRAP: "rewrap_tensor", CAST: "integer_cast", OPERATION: "non_differentiable_op",
}  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """All that the naming of causes may look at.

    Attributes:
        revived: parameters that came alive in the rerun, None if there was none.
        reruns: how many reruns there were.
        files: the user's source files that take part.
        classes: class of every module of the model, by path.
    """

    trace: Trace
    verdict: Verdict
    rows: tuple[Parameter, ...]
    reached: Reached
    adapters: tuple[Adapter, ...] = ()
    revived: frozenset[str] | None = None
    reruns: int = 0
    files: tuple[str, ...] = ()
    classes: dict[str, type] = field(default_factory=dict)

    def numel(self, names: Sequence[str]) -> int:
        """How many elements the named parameters hold."""
        wanted = set(names)
        return sum(row.numel for row in self.rows if row.name in wanted)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Parameters that should train and do not require grad."""
        return tuple(row.name for row in self.rows if row.should_train and not row.requires_grad)


def name(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings, most blocking first; ``()`` for a sound program."""
    found = [*_frozen(evidence), *_cut(evidence), *_unconnected(evidence)]
    found += _unexplained(evidence, {p for f in found for p in f.parameters})
    return tuple(replace(f, numel=evidence.numel(f.parameters)) for f in found)


# -- read off -------------------------------------------------------------------------------------------------------


def _frozen(e: Evidence) -> list[Finding]:
    left = list(e.frozen)
    found = []
    for adapter in e.adapters:
        mine = [n for n in left if n in adapter.parameters]
        if mine and adapter.inference_mode:
            facts = {"adapter": adapter.name, "kind": adapter.kind}
            spot = sources.loading(e.files) or _freezer(e, mine)
            found.append(Finding("adapter_inference_mode", spot, (), OBSERVED, tuple(mine), facts=facts))
            left = [n for n in left if n not in mine]
    if left:
        found.append(Finding("frozen_all", _freezer(e, left), (), OBSERVED, tuple(left)))
    return found


def _freezer(e: Evidence, names: Sequence[str]) -> Location | None:
    return sources.freezing(e.files, names, e.classes.values())


# -- cuts -----------------------------------------------------------------------------------------------------------


def _cut(e: Evidence) -> list[Finding]:
    cuts = [cut for cut in e.verdict.cuts if not _swallowed(cut, e)]
    found: dict[tuple[object, ...], Finding] = {}
    for cut in cuts:
        finding = _finding(cut, e)
        spot = finding.location
        place = (finding.cause, spot.file, spot.line) if spot is not None else (finding.cause, cut.key)
        known = found.get(place)
        if known is not None:
            names = tuple(dict.fromkeys([*known.parameters, *finding.parameters]))
            proof = known.proof if known.proof == finding.proof else LIKELY
            finding = replace(known, parameters=names, proof=proof, revived=(*known.revived, *finding.revived))
        found[place] = finding
    total = not e.reached.norms
    return sorted(found.values(), key=lambda f: 0 if total else -len(f.parameters))


def _swallowed(cut: Cut, e: Evidence) -> bool:
    """``x.detach().cpu().numpy()`` is one thing to change: the detach goes with the way out of torch."""
    if cut.kind not in (DETACH, DATA):
        return False
    places = {_point_line(c) for other in e.verdict.cuts if other.kind in (ESCAPE, REWRAP) for c in _calls(other, e)}
    return all(_point_line(c) in places for c in _calls(cut, e))


def _calls(cut: Cut, e: Evidence) -> list[Call]:
    return [e.trace.calls[i] for i in cut.calls]


def _point_line(call: Call) -> tuple[str, int] | None:
    return (call.chain[0][0].co_filename, frames.line_of(call.chain[0])) if call.chain else None


def _finding(cut: Cut, e: Evidence) -> Finding:
    calls = _calls(cut, e)
    first = calls[0] if calls else None
    region = e.trace.regions[cut.region] if cut.kind == REGION else None
    cause, spot = _cause(cut, region, calls), _location(region, first, e)
    module = e.trace.modules[first.module] if first is not None and first.module >= 0 else ""
    revived = tuple(n for n in cut.parameters if e.revived is not None and n in e.revived)
    proof = PROVEN if revived and len(revived) == len([n for n in cut.parameters if n not in e.frozen]) else LIKELY
    call = region.via if region is not None and region.via else first.name if first is not None else ""
    chain = region.chain if region is not None else first.chain if first is not None else ()
    notes = (*_inside(region, first), *_returns(cut, e), *_called_by(chain))
    return Finding(cause, spot, notes, proof, cut.parameters, 0, module, call, revived, e.reruns, _facts(region))


def _cause(cut: Cut, region: Region | None, calls: Sequence[Call]) -> str:
    if region is not None:
        return _OF_REGION.get(region.kind, "unknown")
    if cut.kind == ESCAPE:
        return "numpy_roundtrip" if any(c.name in ("numpy", "__array__") for c in calls) else "python_roundtrip"
    return _OF_CALL[cut.kind]


def _facts(region: Region | None) -> dict[str, str]:
    return {"via": region.via} if region is not None and region.via else {}


def _location(region: Region | None, call: Call | None, e: Evidence) -> Location | None:
    if region is None:
        return frames.locate(call.chain[0]) if call is not None and call.chain else None
    if region.kind == PRESET:
        return sources.switching_off(e.files)
    if region.code is not None and region.decorated:
        return frames.locate_code(region.code, decorator="inference_mode" if region.kind == INFERENCE else "grad")
    return frames.locate(region.chain[0]) if region.chain else None


def _inside(region: Region | None, call: Call | None) -> list[Note]:
    """Of a region, the first call in it that lost the gradient."""
    if region is None or call is None or not call.chain or call.chain[:1] == region.chain[:1]:
        return []
    return [Note("lost_here", frames.locate(call.chain[0]), {"call": call.name})]


def _returns(cut: Cut, e: Evidence) -> list[Note]:
    """Of a value that left torch, where it came back."""
    if cut.kind != ESCAPE:
        return []
    gone = {number for call in _calls(cut, e) for number in call.outputs}
    for call in e.trace.calls:
        if gone.intersection(call.inputs) and e.verdict.reaching.intersection(call.outputs) and call.chain:
            if _point_line(call) not in {_point_line(c) for c in _calls(cut, e)}:
                return [Note("comes_back", frames.locate(call.chain[0]), {"call": call.name})]
            break
    return []


def _called_by(chain: Chain) -> list[Note]:
    if len(chain) < 2:
        return []
    return [Note("called_by", frames.locate(chain[1]))]


# -- not connected --------------------------------------------------------------------------------------------------


def _unconnected(e: Evidence) -> list[Finding]:
    names = [n for n in e.verdict.unconnected if n not in e.frozen]
    if not names:
        return []
    if not any(e.trace.values[v].parameter for v in e.verdict.reaching) and e.trace.loss >= 0:
        return [_constant(e, names)]
    groups: dict[Key, tuple[Location | None, str, list[str]]] = {}
    for parameter in names:
        spot, attribute = sources.definition(_way_to(parameter, e))
        key = (spot.file, spot.line, spot.column) if spot is not None else (parameter.rpartition(".")[0],)
        groups.setdefault(key, (spot, attribute, []))[2].append(parameter)
    return [_unused(e, spot, attribute, group) for spot, attribute, group in groups.values()]


def _constant(e: Evidence, names: Sequence[str]) -> Finding:
    left = _left_torch(e, names)
    origin = _first_origin(e)
    back = [Note("loss_from", frames.locate(origin.chain[0]), {"call": origin.name})] if origin and origin.chain else []
    if left is not None and left.chain:
        cause = "numpy_roundtrip" if left.name in ("numpy", "__array__") else "python_roundtrip"
        return Finding(cause, frames.locate(left.chain[0]), tuple(back), LIKELY, tuple(names), call=left.name)
    spot = back[0].location if back else None
    notes = _called_by(origin.chain) if origin is not None else []
    call = origin.name if origin is not None else ""
    return Finding("constant_loss", spot, tuple(notes), OBSERVED, tuple(names), call=call)


def _first_origin(e: Evidence) -> Call | None:
    """The call that made the loss out of nothing: of all that flow into it, the first that nothing flows into."""
    for call in e.trace.calls:
        if e.verdict.reaching.intersection(call.outputs) and not call.inputs:
            return call
    return None


def _left_torch(e: Evidence, names: Sequence[str]) -> Call | None:
    """The last call at which something computed from ``names`` left torch for a number, if the loss was made after it."""
    flowing = {v for v, value in enumerate(e.trace.values) if value.parameter in set(names)}
    last = None
    for call in e.trace.calls:
        if flowing.intersection(call.inputs):
            flowing.update(call.outputs)
            if any(e.trace.values[o].python for o in call.outputs) and call.name not in ("__int__", "__index__"):
                last = call
    origin = _first_origin(e)
    if last is None or origin is None or origin.index < last.index or origin.name not in ("tensor", "as_tensor"):
        return None
    return last if origin.chain[:1] and origin.chain[-1:] == last.chain[-1:] else None


def _way_to(parameter: str, e: Evidence) -> list[tuple[type, str]]:
    parts = parameter.split(".")
    ways = ((".".join(parts[:i]), part) for i, part in enumerate(parts))
    return [(e.classes[path], part) for path, part in ways if path in e.classes]


def _unused(e: Evidence, spot: Location | None, attribute: str, names: Sequence[str]) -> Finding:
    used = any(row.used for row in e.rows if row.name in set(names))
    notes = []
    if attribute and not used:
        places = [u for u in sources.uses(e.classes.values(), attribute) if spot is None or u.line != spot.line]
        notes = [Note("not_run", place, {"attribute": attribute}) for place in places[:2]]
    if used:
        notes = _last_use(e, names)
    owner = names[0].rpartition(".")[0]
    facts = {"attribute": attribute, "used": "yes" if used else "no"}
    return Finding("trainable_unused", spot, tuple(notes), OBSERVED, tuple(names), module=owner, facts=facts)


def _last_use(e: Evidence, names: Sequence[str]) -> list[Note]:
    """Where what was computed from the parameters was last touched before it was dropped."""
    flowing = {v for v, value in enumerate(e.trace.values) if value.parameter in set(names)}
    last = None
    for call in e.trace.calls:
        if flowing.intersection(call.inputs):
            flowing.update(call.outputs)
            last = call if call.chain else last
    return [Note("dropped", frames.locate(last.chain[0]), {"call": last.name})] if last is not None else []


# -- the rest -------------------------------------------------------------------------------------------------------


def _unexplained(e: Evidence, told: set[str]) -> list[Finding]:
    names = [n for n in e.verdict.unexplained if n not in told and n not in e.frozen]
    facts = {"error": e.reached.error.splitlines()[0]} if e.reached.error else {}
    if not names and not facts:
        return []
    return [Finding("unknown", None, (), LIKELY, tuple(names), facts=facts)]
