"""What can be read off the model, its adapters and its optimizer, without looking at the run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from torch import nn

from gradkit.core.records import LIKELY, OBSERVED, READ, SEVERAL, Finding, Location, Note
from gradkit.diagnosis.facts.frozen_along import NUMBER
from gradkit.diagnosis.facts.inventory import Adapter, UnregisteredParameter
from gradkit.diagnosis.facts.seen import Seen
from gradkit.diagnosis.rules import frozen_by_name, optimizer_mismatch
from gradkit.diagnosis.rules.evidence import Evidence, called_by, searched
from gradkit.source import (
    adapter_configs,
    attributes,
    freezing,
    installed,
    kept_unregistered,
    locations,
    setup,
)
from gradkit.source.adapter_configs import Said
from gradkit.witness.deeds import COPIED, FROZEN, Deed

ADAPTER, NO_MODULE = "adapter_inference_mode", "no_module"


def findings(e: Evidence) -> list[Finding]:
    """Adapters loaded for inference or not in use, frozen and unregistered parameters, a missing optimizer entry."""
    midway = _midway(e)
    known = {n for f in midway for n in f.parameters}
    starved = [n for n in e.starved if n not in known]
    idle = [a for a in e.facts.adapters if not a.active and not a.inference_mode and not _is_switched_off(e)]
    found = [_inactive(e, a, starved) for a in idle if set(a.parameters) & set(starved)]
    found = _of_one_line(found) or _disabled(e, starved)
    told = {n for f in found for n in f.parameters}
    frozen, lacking = optimizer_mismatch.frozen_first(e, _frozen(e, told, known), optimizer_mismatch.findings(e))
    return [*midway, *found, *frozen, *_unregistered(e), *lacking]


def _is_switched_off(e: Evidence) -> bool:
    """Whether the adapter in use was frozen where it was switched to: then the others are rightly not in use."""
    active = [name for one in e.facts.adapters if one.active for name in one.parameters]
    return any(_switched_off(e, name) is not None for name in active[:1] if name in e.frozen)


def _switched_off(e: Evidence, name: str) -> Deed | None:
    """The last deed that froze a parameter, if it switched to its adapter with ``inference_mode=True``."""
    deeds = [*filter(None, [e.seen.frozen_by(name)]), *e.seen.frozen_again(name)]
    said = adapter_configs.said_at(deeds[-1].chain) if deeds and _is_pefts(deeds[-1]) else None
    return deeds[-1] if said is not None and said.kind == adapter_configs.SWITCHED else None


def _midway(e: Evidence) -> list[Finding]:
    """A finding for each line by which the step took ``requires_grad`` away before a backward came to what had it."""
    groups: dict[object, tuple[Finding, list[str]]] = {}
    for name in e.starved:
        chain, through = e.trace.unfilled.get(name, ((), ()))
        if not chain:
            continue
        spot = locations.locate(chain[0], whole=True)
        adapter = next((a for a in e.facts.adapters if name in a.parameters), None)
        by_peft = any(installed.library_of(code.co_filename) == "peft" for code, _ in through)
        switched = adapter if by_peft else None
        found = Finding(
            "frozen_all" if switched is None else "adapter_inactive", spot, tuple(called_by(chain)), proof=OBSERVED,
            facts={} if switched is None else {"adapter": switched.name}, variant="midway",
        )  # fmt: skip
        groups.setdefault((spot, switched), (found, []))[1].append(name)
    return [replace(found, parameters=tuple(names)) for found, names in groups.values()]


def _inactive(e: Evidence, adapter: Adapter, starved: Sequence[str]) -> Finding:
    mine = tuple(n for n in starved if n in adapter.parameters)
    facts = {"adapter": adapter.name, "active": ", ".join(a.name for a in e.facts.adapters if a.active) or "–"}
    deed = e.seen.first(mine)
    if deed is not None and deed.chain:
        return Finding(
            "adapter_inactive", locations.locate(deed.chain[0], whole=True), tuple(called_by(deed.chain)),
            proof=OBSERVED, parameters=mine, facts=facts,
        )  # fmt: skip
    spot = setup.adapter_line(e.files, adapter.name)
    return Finding("adapter_inactive", spot, proof=searched(spot), parameters=mine, facts=facts)


def _of_one_line(found: Iterable[Finding]) -> list[Finding]:
    """The findings; of several adapters that one line has added, one that tells of them all."""
    groups: dict[object, list[Finding]] = {}
    for one in found:
        groups.setdefault(one.location or len(groups), []).append(one)
    return [_joined(same) for same in groups.values()]


def _joined(same: Sequence[Finding]) -> Finding:
    names = tuple(dict.fromkeys(name for one in same for name in one.parameters))
    adapters = ", ".join(one.facts["adapter"] for one in same)
    return replace(same[0], parameters=names, facts={**same[0].facts, "adapter": adapters})


_DISABLES = re.compile(r"\bdisable_adapters?\b")


def _disabled(e: Evidence, starved: Sequence[str]) -> list[Finding]:
    """An adapter that was switched off while the loss was computed, by a ``with`` or for good."""
    trainable = {row.name for row in e.rows if row.requires_grad}
    mine = tuple(n for n in starved if n in trainable and any(n.startswith(f"{path}.") for path in e.trace.disabled))
    adapter = next((a for a in e.facts.adapters if set(a.parameters) & set(mine)), None)
    if adapter is None:
        return []
    inside = tuple(f"{path}." for path in e.trace.disabled)
    chains = [c.chain for c in e.trace.calls if c.module >= 0 and f"{e.trace.modules[c.module]}.".startswith(inside)]
    blocks = (locations.around(point, _DISABLES) for point in dict.fromkeys(p for chain in chains for p in chain))
    block = next((block for block in blocks if block is not None), None)
    spot = block or setup.adapters_off_line(e.files)
    facts = {"adapter": adapter.name, "active": "–"}
    proof = OBSERVED if block is not None else searched(spot)
    return [Finding("adapter_inactive", spot, proof=proof, parameters=mine, facts=facts, variant="disabled")]


def _frozen(e: Evidence, told: set[str], known: set[str]) -> list[Finding]:
    left = [n for n in e.frozen if n not in told and n not in known]
    found = []
    for adapter in e.facts.adapters:
        mine = [n for n in left if n in adapter.parameters]
        if mine and adapter.inference_mode and not (told and adapter.active):
            found += _for_inference(e, adapter, mine)
        if adapter.inference_mode:
            left = [n for n in left if n not in mine]
    return [*found, *(_along(e, one) for one in (frozen_by(e, left) if left and not told else ()))]


def _along(e: Evidence, found: Finding) -> Finding:
    """The same finding, told as what was frozen along with others, if that is all that it is about."""
    kinds = {e.facts.along.get(name, "") for name in found.parameters}
    if found.cause != "frozen_all" or found.variant or kinds in ({""}, set()) or len(kinds) > 1:
        return found
    found = replace(found, variant=kinds.pop())
    word = next((part for part in re.split(r"\.\d+\.", found.parameters[0])), "").rpartition(".")[2]
    spots = freezing.by_text(e.files, word) if found.variant == NUMBER and found.proof != OBSERVED else []
    if not spots or found.location in spots:
        return found
    return replace(found, location=spots[0], doubt=SEVERAL if len(spots) > 1 else found.doubt)


def _for_inference(e: Evidence, adapter: Adapter, names: Sequence[str]) -> list[Finding]:
    """An adapter that was loaded for inference; and what would keep it frozen if it had been loaded for training."""
    facts = {"adapter": adapter.name, "kind": adapter.kind}
    found, unseen = _by_deed(e, names, Finding(ADAPTER, None, facts=facts))
    told = [one.location for one in found]
    told += [note.location for one in found for note in one.notes if note.kind == "frozen_there"]
    found += [
        Finding("frozen_all", spot, proof=OBSERVED, parameters=tuple(names))
        for spot in _frozen_again(e, names)
        if spot not in told
    ]
    if not unseen:
        return found
    lines = setup.adapter_loading_lines(e.files)
    loaded, others = next(iter(lines), None), lines[1:]
    notes = tuple(Note("or_here", spot) for spot in others[:3])
    said = adapter_configs.said_in(e.files) if loaded is None else None
    by_flag = next((one.location for one in _freezers(e, unseen)), None) if loaded is None and said is None else None
    spot = loaded or (said.location if said is not None else by_flag and frozen_by_name.choosing(e, by_flag))
    found.append(
        Finding(
            ADAPTER, spot, notes, proof=searched(spot), parameters=tuple(unseen), facts=facts,
            doubt=SEVERAL if others else "", variant=said.kind if said is not None else "",
        )
    )  # fmt: skip
    after = freezing.freezing_after(loaded) if loaded is not None else None
    return [*found, *([Finding("frozen_all", after, proof=LIKELY, parameters=tuple(unseen))] if after else ())]


def frozen_by(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A finding for each line that froze any of these parameters, as it was seen or is read off the source."""
    flag = freezing.flag_on_module(e.files) if e.facts.no_op_flags else None
    if flag is not None:
        return [Finding("frozen_all", flag, proof=LIKELY, parameters=tuple(names), variant="module_flag")]
    found, unseen = _by_deed(e, names, Finding("frozen_all", None))
    lines = _freezers(e, unseen) if unseen else []
    spared = frozen_by_name.spared_in_vain(e, names, [one.location for one in found or lines])
    if spared:
        return spared
    for line in lines:
        mine = tuple(name for name in unseen if name in line.names)
        plain = Finding("frozen_all", line.location, proof=searched(line.location), parameters=mine)
        found.append(frozen_by_name.by_condition(e, plain))
    nowhere = Finding("frozen_all", None, proof=searched(None), parameters=tuple(unseen))
    return found if lines or not unseen else [*found, nowhere]


def _by_deed(e: Evidence, names: Sequence[str], plain: Finding) -> tuple[list[Finding], list[str]]:
    """A finding for each line that was seen to freeze any of these parameters, and the names of which nothing was."""
    groups: dict[object, tuple[Location, Deed, list[str]]] = {}
    unseen = []
    for name in names:
        deed = _switched_off(e, name) or e.seen.frozen_by(name)
        if deed is None or not deed.chain:
            unseen.append(name)
            continue
        spot = locations.locate(deed.chain[0], whole=True)
        groups.setdefault((spot.file, spot.line), (spot, deed, []))[2].append(name)
    found = [_seen(e, plain, spot, deed, mine) for spot, deed, mine in groups.values()]
    return sorted(found, key=lambda one: -len(one.parameters)), unseen


def _seen(e: Evidence, plain: Finding, spot: Location, deed: Deed, names: Sequence[str]) -> Finding:
    """A finding for a line that was seen to freeze these parameters."""
    plain = replace(plain, location=spot, notes=_around(e, deed, names), proof=OBSERVED, parameters=tuple(names))
    said = adapter_configs.said_at(deed.chain) if deed.kind == FROZEN and _is_pefts(deed) else None
    if said is not None:
        return _said(e, plain, said)
    if plain.cause == ADAPTER and deed.kind == FROZEN and not _is_pefts(deed):
        plain = replace(plain, cause="frozen_all", facts={})  # whatever the config says, this line would do
    if deed.kind != COPIED:
        return frozen_by_name.by_condition(e, plain)
    first = next((d for d in reversed(deed.before) if d.kind == FROZEN and d.chain), None)
    notes = [Note("frozen_there", locations.locate(first.chain[0], whole=True))] if first is not None else []
    return replace(plain, notes=(*plain.notes, *notes), variant="copied")


def _is_pefts(deed: Deed) -> bool:
    return deed.by.partition(".")[0] == "peft"


def _said(e: Evidence, plain: Finding, said: Said) -> Finding:
    """A finding for an adapter that peft froze, at the line that told it to."""
    mine = next((a for a in e.facts.adapters if set(a.parameters) & set(plain.parameters) and a.active), None)
    mine = mine or next((a for a in e.facts.adapters if set(a.parameters) & set(plain.parameters)), None)
    facts = plain.facts or ({"adapter": mine.name, "kind": mine.kind} if mine is not None else {})
    spot, here = said.location, plain.location
    told = [Note("frozen_there", here)] if here is not None and (here.file, here.line) != (spot.file, spot.line) else []
    notes = (*told, *(one for one in plain.notes if one.kind != "done_by"))
    return replace(plain, cause=ADAPTER, location=spot, notes=notes, facts=facts, variant=said.kind) if facts else plain


def _around(e: Evidence, deed: Deed, names: Sequence[str]) -> tuple[Note, ...]:
    """Who called for it, which library did it for them, and what did it once more."""
    notes = called_by(deed.chain)
    if deed.library is not None and deed.by.partition(".")[0] not in ("torch", ""):
        notes.append(Note("done_by", locations.locate(deed.library, whole=True), {"via": deed.by}))
    first = locations.locate(deed.chain[0], whole=True)
    notes += [Note("frozen_again", spot) for spot in _frozen_again(e, names)[:3] if spot != first]
    return tuple(notes)


def _frozen_again(e: Evidence, names: Sequence[str]) -> list[Location]:
    """The lines that freeze any of these parameters once more."""
    points = dict.fromkeys(deed.chain[0] for name in names for deed in e.seen.frozen_again(name) if deed.chain)
    return list(dict.fromkeys(locations.locate(point, whole=True) for point in points))


def _freezers(e: Evidence, names: Sequence[str]) -> list[freezing.Match]:
    adapted = {n for a in e.facts.adapters for n in a.parameters}
    flags = {row.name: row.requires_grad for row in e.rows}
    tied = {row.name: row.same_as for row in e.rows if row.same_as}
    told = freezing.Flags(names, flags, e.facts.classes, tied)
    return freezing.freezing(e.files, told, wrapped=not adapted.intersection(names))


def _unregistered(e: Evidence) -> list[Finding]:
    groups: dict[object, tuple[str, Location | None, list[str]]] = {}
    headings: set[Location] = set()
    for cause, hidden, found in _hidden(e):
        heading = _no_module(hidden)
        headings.update(() if heading is None else (heading,))
        spot = heading or found
        key = (cause, spot.file, spot.line) if spot is not None else (cause, hidden.name)
        groups.setdefault(key, (cause, spot, []))[2].append(hidden.name)
    return [
        Finding(
            cause, spot, _given(e, spot, names), proof=OBSERVED, parameters=tuple(names),
            variant=NO_MODULE if spot in headings else "",
        )
        for cause, spot, names in groups.values()
    ]  # fmt: skip


def _no_module(hidden: UnregisteredParameter) -> Location | None:
    """The heading of a class with a ``forward`` that is no module, if a module keeps an object of it."""
    way = hidden.way[: hidden.broken]
    cls, holder = way[-1][0], way[-2][0] if len(way) > 1 else None
    if hidden.history or holder is None or not issubclass(holder, nn.Module) or issubclass(cls, nn.Module):
        return None
    return attributes.heading(cls) if callable(getattr(cls, "forward", None)) else None


def _given(e: Evidence, spot: Location | None, names: Sequence[str]) -> tuple[Note, ...]:
    """Where the Parameters were made that a line keeps as something else, if that is seen of each."""
    ways = [one.way for one in e.facts.unregistered if one.name in names and not one.history]
    if spot is None or not ways or any(_kept_elsewhere(way) != spot for way in ways):
        return ()
    attributes_kept = dict.fromkeys(way[-1][1] for way in ways)
    found = [one for name in attributes_kept for one in kept_unregistered.given_at(name, e.files)]
    return tuple(Note("made_here", one) for one in found) if len(found) == len(names) else ()


def _hidden(e: Evidence) -> Iterator[tuple[str, UnregisteredParameter, Location | None]]:
    """What is no parameter of the model, each with the line that made it: the n-th of a list by the n-th line.

    Where an attribute is an empty plain list that methods fill, the list is what has to change; but in an object that
    is no module, what is put there.
    """
    seen: dict[object, dict[str, None]] = {}
    for hidden in e.facts.unregistered:
        way = hidden.way[: hidden.broken]
        cls, attribute = way[-1]
        lines: tuple[Location, ...] = ()
        if hidden.history:
            spot = attributes.derived(cls, attribute, e.files)
        else:
            box = attributes.plain_box(cls, attribute)
            lines = attributes.created(cls, attribute, hidden.kind, e.files) if box is None else ()
            if box is not None and not issubclass(cls, nn.Module):
                box = kept_unregistered.put_at(way, hidden.name.rpartition(".")[2], e.files) or box
            spot = box or _kept_elsewhere(way)
        spot = spot or attributes.definition(way, e.files)[0]
        if lines:
            depth = len(hidden.name.split(".")) - len(hidden.way) + hidden.broken
            one = ".".join(hidden.name.split(".")[:depth])
            order = seen.setdefault((cls, attribute, hidden.kind), {})
            order.setdefault(one)
            spot = lines[min(list(order).index(one), len(lines) - 1)]
        yield "grad_on_non_leaf" if hidden.history else "unregistered_parameters", hidden, spot


def _kept_elsewhere(way: Sequence[tuple[type, str]]) -> Location | None:
    """The line of a class that keeps what it is handed as no parameter, where no assignment of the attribute shows it.

    What a record holds, whose class has no line of its own for it: where a module takes the record in.
    """
    cls, attribute = way[-1]
    if attributes.definition([(cls, attribute)])[0] is not None:
        return None
    if issubclass(cls, nn.Module):
        return kept_unregistered.kept_at(cls, attribute)
    holder = way[-2:-1]
    return attributes.definition(holder)[0] if holder and issubclass(holder[0][0], nn.Module) else None


# -- an optimizer that was handed nothing -----------------------------------------------------------------------------


def built_in_methods(spots: Iterable[Location]) -> list[Finding]:
    """A finding for each line that builds layers or Parameters outside of ``__init__``, of a model that has none."""
    return [Finding("built_in_forward", spot, proof=LIKELY, doubt=READ) for spot in spots]


def seen_to_freeze(seen: Seen, names: Sequence[str]) -> list[Finding]:
    """A finding for each line that was seen to freeze some of these parameters; ``[]`` where nobody listened."""
    groups: dict[Location, list[str]] = {}
    for name in names:
        deed = seen.frozen_by(name)
        if deed is not None and deed.chain:
            groups.setdefault(locations.locate(deed.chain[0], whole=True), []).append(name)
    return [Finding("frozen_all", spot, proof=OBSERVED, parameters=tuple(mine)) for spot, mine in groups.items()]


def handed_nothing(spot: Location, names: Sequence[str]) -> Finding:
    """An optimizer that was handed none of a model's parameters, by the line that makes it."""
    return Finding("optimizer_mismatch", spot, proof=OBSERVED, parameters=tuple(names))
