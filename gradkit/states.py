"""What can be read off the model, its adapters and its optimizer, without looking at the run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradkit import classes, scopes, sources
from gradkit.evidence import Evidence
from gradkit.inventory import Adapter
from gradkit.records import LIKELY, OBSERVED, Finding, Location


def name(e: Evidence) -> list[Finding]:
    """Adapters loaded for inference or not in use, frozen and unregistered parameters, a missing optimizer entry."""
    idle = [a for a in e.adapters if not a.active and not a.inference_mode]
    found = [_inactive(e, a) for a in idle if set(a.parameters) & set(e.starved)] or _disabled(e)
    told = {n for f in found for n in f.parameters}
    return [*found, *_frozen(e, told), *_unregistered(e), *_optimizer(e)]


def _inactive(e: Evidence, adapter: Adapter) -> Finding:
    mine = tuple(n for n in e.starved if n in adapter.parameters)
    facts = {"adapter": adapter.name, "active": ", ".join(a.name for a in e.adapters if a.active) or "–"}
    return Finding("adapter_inactive", sources.adding(e.files, adapter.name), (), OBSERVED, mine, facts=facts)


_DISABLES = re.compile(r"\bdisable_adapters?\b")


def _disabled(e: Evidence) -> list[Finding]:
    """An adapter that was switched off while the loss was computed, by a ``with`` or for good."""
    trainable = {row.name for row in e.rows if row.requires_grad}
    mine = tuple(n for n in e.starved if n in trainable and any(n.startswith(f"{path}.") for path in e.trace.disabled))
    adapter = next((a for a in e.adapters if set(a.parameters) & set(mine)), None)
    if adapter is None:
        return []
    inside = tuple(f"{path}." for path in e.trace.disabled)
    chains = [c.chain for c in e.trace.calls if c.module >= 0 and f"{e.trace.modules[c.module]}.".startswith(inside)]
    blocks = (scopes.around(point, _DISABLES) for point in dict.fromkeys(p for chain in chains for p in chain))
    spot = next((block for block in blocks if block is not None), None) or sources.disabling(e.files)
    facts = {"adapter": adapter.name, "active": "–", "variant": "disabled"}
    return [Finding("adapter_inactive", spot, (), OBSERVED, mine, facts=facts)]


def _frozen(e: Evidence, told: set[str]) -> list[Finding]:
    left = [n for n in e.frozen if n not in told]
    found = []
    for adapter in e.adapters:
        mine = [n for n in left if n in adapter.parameters]
        if mine and adapter.inference_mode and not (told and adapter.active):
            facts = {"adapter": adapter.name, "kind": adapter.kind}
            loaded = sources.loading(e.files)
            found.append(
                Finding("adapter_inference_mode", loaded or _freezer(e, mine), (), OBSERVED, tuple(mine), facts=facts)
            )
            again = sources.freezing_after(loaded) if loaded is not None else None
            if again is not None:
                found.append(Finding("frozen_all", again, (), LIKELY, tuple(mine)))
        if adapter.inference_mode:
            left = [n for n in left if n not in mine]
    if left and not told:
        flag = sources.flag_on_module(e.files) if e.no_op_flags else None
        facts = {"variant": "module_flag"} if flag is not None else {}
        found.append(Finding("frozen_all", flag or _freezer(e, left), (), OBSERVED, tuple(left), facts=facts))
    return found


def _freezer(e: Evidence, names: Sequence[str]) -> Location | None:
    adapted = {n for a in e.adapters for n in a.parameters}
    return sources.freezing(e.files, names, e.classes.values(), wrapped=not adapted.intersection(names))


def _unregistered(e: Evidence) -> list[Finding]:
    groups: dict[object, tuple[Location | None, list[str]]] = {}
    for hidden in e.unregistered:
        spot, _ = classes.definition(hidden.way, e.files)
        key = (spot.file, spot.line) if spot is not None else hidden.name
        groups.setdefault(key, (spot, []))[1].append(hidden.name)
    return [Finding("unregistered_parameters", spot, (), OBSERVED, tuple(names)) for spot, names in groups.values()]


def _optimizer(e: Evidence) -> list[Finding]:
    if not e.missing:
        return []
    spot = sources.building(e.files, e.optimizer)
    return [Finding("optimizer_mismatch", spot, (), OBSERVED, e.missing, facts={"optimizer": e.optimizer})]
