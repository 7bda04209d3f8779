"""Values without history that were kept from before the step, and that stand where parameters should flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradkit import frames, storing
from gradkit.evidence import Evidence, called_by
from gradkit.records import LIKELY, PROVEN, Finding, Location
from gradkit.stale import Kept
from gradkit.traces import Chain

_COMMON = frozenset(("weight", "bias"))


def name(e: Evidence, names: Sequence[str]) -> list[Finding]:
    """A finding for each line that stored such values: proven, or read off the source where no run could tell."""
    left, found = list(names), []
    for kept in e.shown.caches.kept:
        if kept.connected:
            mine = tuple(n for n in names if n in kept.connected)
            proof = PROVEN if kept.revived.issuperset(mine) else LIKELY
            for spot in _where(e, kept) if mine else ():
                revived = tuple(n for n in mine if n in kept.revived)
                found.append(_finding(e, kept, spot, proof, mine, revived))
            left = [n for n in left if n not in kept.connected]
    for kept in e.shown.caches.kept:
        if left and not kept.connected and not kept.idle:
            told = _read(e, kept, left)
            found += [_finding(e, kept, spot, LIKELY, mine) for spot, mine in told]
            left = [n for n in left if not any(n in mine for _, mine in told)]
    return found


def _finding(
    e: Evidence, kept: Kept, spot: Location, proof: str, names: tuple[str, ...], revived: tuple[str, ...] = ()
) -> Finding:
    chain = next((chain for chain in kept.made if chain), ())
    held = next((e.trace.values[n].attribute for n in kept.numbers if e.trace.values[n].attribute), "")
    facts = {"attribute": held or kept.name}
    notes = tuple(note for note in called_by(chain) if note.location is not None and note.location.line != spot.line)
    return Finding(
        "cached_tensor", spot, notes, proof, names, module=held.rpartition(".")[0], revived=revived,
        reruns=e.reruns if revived else 0, facts=facts,
    )  # fmt: skip


def _where(e: Evidence, kept: Kept) -> list[Location]:
    """Where a run without the values stored new ones; else where the source stores such; else where they were made."""
    fixed = _fixed(e, kept)
    if fixed is not None:
        return [fixed]
    found = (_at(e, kept, chain) for chain in kept.made)
    return list({(spot.file, spot.line): spot for spot in found if spot is not None}.values())


def _at(e: Evidence, kept: Kept, chain: Chain) -> Location | None:
    read = (spot for spot, _ in storing.lines(kept.name, e.files, kept.owner, kept.reader))
    return storing.at(chain, kept.name) or next(read, None) or frames.innermost(chain)


def _fixed(e: Evidence, kept: Kept) -> Location | None:
    """The decorator, of what a decorator keeps."""
    if kept.memo is not None:
        return storing.remembered(kept.memo, e.files)
    return storing.computed_once(kept.owner, kept.name) if kept.owner is not None else None


def _read(e: Evidence, kept: Kept, names: Sequence[str]) -> list[tuple[Location, tuple[str, ...]]]:
    """The line that stores what is computed by the parameters: the one whose words name most of them."""
    found = [(spot, _meant(words, names)) for spot, words in storing.lines(kept.name, e.files, kept.owner, kept.reader)]
    best = max(found, key=lambda one: len(one[1]), default=None)
    fixed = _fixed(e, kept)
    if best is None or not best[1]:
        return []
    return [(fixed or best[0], best[1])]


def _meant(words: set[str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(n for n in names if words.intersection(_parts(n)))


def _parts(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (part for part in parts if part not in _COMMON or len(parts) == 1)
