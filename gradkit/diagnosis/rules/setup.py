"""What can be read off the model, its adapters and its optimizer, without looking at the run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gradkit.core.records import LIKELY, OBSERVED, SEVERAL, Finding, Location, Note
from gradkit.diagnosis.facts.inventory import Adapter, UnregisteredParameter
from gradkit.diagnosis.facts.optimizers import LEFT_OUT, NEW
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.source import attributes, freezing, locations, setup


def findings(e: Evidence) -> list[Finding]:
    """Adapters loaded for inference or not in use, frozen and unregistered parameters, a missing optimizer entry."""
    idle = [a for a in e.facts.adapters if not a.active and not a.inference_mode]
    found = [_inactive(e, a) for a in idle if set(a.parameters) & set(e.starved)] or _disabled(e)
    told = {n for f in found for n in f.parameters}
    return [*found, *_frozen(e, told), *_unregistered(e), *_optimizer(e)]


def _inactive(e: Evidence, adapter: Adapter) -> Finding:
    mine = tuple(n for n in e.starved if n in adapter.parameters)
    facts = {"adapter": adapter.name, "active": ", ".join(a.name for a in e.facts.adapters if a.active) or "–"}
    return Finding(
        "adapter_inactive", setup.adapter_line(e.files, adapter.name), proof=OBSERVED, parameters=mine, facts=facts
    )


_DISABLES = re.compile(r"\bdisable_adapters?\b")


def _disabled(e: Evidence) -> list[Finding]:
    """An adapter that was switched off while the loss was computed, by a ``with`` or for good."""
    trainable = {row.name for row in e.rows if row.requires_grad}
    mine = tuple(n for n in e.starved if n in trainable and any(n.startswith(f"{path}.") for path in e.trace.disabled))
    adapter = next((a for a in e.facts.adapters if set(a.parameters) & set(mine)), None)
    if adapter is None:
        return []
    inside = tuple(f"{path}." for path in e.trace.disabled)
    chains = [c.chain for c in e.trace.calls if c.module >= 0 and f"{e.trace.modules[c.module]}.".startswith(inside)]
    blocks = (locations.around(point, _DISABLES) for point in dict.fromkeys(p for chain in chains for p in chain))
    spot = next((block for block in blocks if block is not None), None) or setup.adapters_off_line(e.files, e.near)
    facts = {"adapter": adapter.name, "active": "–"}
    return [Finding("adapter_inactive", spot, proof=OBSERVED, parameters=mine, facts=facts, variant="disabled")]


def _frozen(e: Evidence, told: set[str]) -> list[Finding]:
    left = [n for n in e.frozen if n not in told]
    found = []
    for adapter in e.facts.adapters:
        mine = [n for n in left if n in adapter.parameters]
        if mine and adapter.inference_mode and not (told and adapter.active):
            facts = {"adapter": adapter.name, "kind": adapter.kind}
            lines = setup.adapter_loading_lines(e.files, e.near)
            loaded, others = next(iter(lines), None), lines[1:]
            notes = tuple(Note("or_here", spot) for spot in others[:3])
            spot, proof = loaded or _freezer(e, mine), LIKELY if others else OBSERVED
            doubt = SEVERAL if others else ""
            found.append(
                Finding(
                    "adapter_inference_mode", spot, notes, proof=proof, parameters=tuple(mine), facts=facts, doubt=doubt
                )
            )
            again = freezing.freezing_after(loaded) if loaded is not None else None
            if again is not None:
                found.append(Finding("frozen_all", again, proof=LIKELY, parameters=tuple(mine)))
        if adapter.inference_mode:
            left = [n for n in left if n not in mine]
    if left and not told:
        flag = freezing.flag_on_module(e.files) if e.facts.no_op_flags else None
        variant = "module_flag" if flag is not None else ""
        found.append(
            Finding("frozen_all", flag or _freezer(e, left), proof=OBSERVED, parameters=tuple(left), variant=variant)
        )

    return found


def _freezer(e: Evidence, names: Sequence[str]) -> Location | None:
    adapted = {n for a in e.facts.adapters for n in a.parameters}
    spot = freezing.freezing(e.files, names, e.facts.classes.values(), wrapped=not adapted.intersection(names))
    if spot is not None and spot.function and not any(row.requires_grad for row in e.rows):
        told = [*e.facts.classes, *(row.name for row in e.rows)]
        return setup.matches_no_name(e.files, spot.function.rpartition(".")[2], told) or spot
    return spot


def _unregistered(e: Evidence) -> list[Finding]:
    groups: dict[object, tuple[str, Location | None, list[str]]] = {}
    for cause, hidden, spot in _hidden(e):
        key = (cause, spot.file, spot.line) if spot is not None else (cause, hidden.name)
        groups.setdefault(key, (cause, spot, []))[2].append(hidden.name)
    return [Finding(cause, spot, proof=OBSERVED, parameters=tuple(names)) for cause, spot, names in groups.values()]


def _hidden(e: Evidence) -> Iterator[tuple[str, UnregisteredParameter, Location | None]]:
    """What is no parameter of the model, each with the line that made it: the n-th of a list by the n-th line."""
    seen: dict[object, dict[str, None]] = {}
    for hidden in e.facts.unregistered:
        way = hidden.way[: hidden.broken]
        cls, attribute = way[-1]
        lines = attributes.created(cls, attribute, hidden.kind, e.files) if not hidden.history else ()
        spot = attributes.derived(cls, attribute, e.files) if hidden.history else None
        spot = spot or attributes.definition(way, e.files)[0]
        if lines:
            depth = len(hidden.name.split(".")) - len(hidden.way) + hidden.broken
            one = ".".join(hidden.name.split(".")[:depth])
            order = seen.setdefault((cls, attribute, hidden.kind), {})
            order.setdefault(one)
            spot = lines[min(list(order).index(one), len(lines) - 1)]
        yield "grad_on_non_leaf" if hidden.history else "unregistered_parameters", hidden, spot


def _optimizer(e: Evidence) -> list[Finding]:
    wanted, gap = set(e.wanted), e.first.gap
    names = gap.missing if gap.reason == NEW else tuple(n for n in gap.missing if n in wanted)
    if not names:
        return []
    spot = setup.optimizer_line(e.files, gap.kind, gap.settings, e.near, filtered=gap.reason == LEFT_OUT)
    return [Finding("optimizer_mismatch", spot, proof=OBSERVED, parameters=names, facts={"optimizer": gap.kind})]
