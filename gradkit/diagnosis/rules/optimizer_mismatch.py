"""What an optimizer does not hold though it should learn: the line that builds it, or that makes what it was handed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradkit.core.records import LIKELY, OBSERVED, Finding, Location, Note
from gradkit.diagnosis.facts.cuts import REWRAP
from gradkit.diagnosis.facts.optimizers import LEFT_OUT, NEW, STALE
from gradkit.diagnosis.rules import copies, unheld
from gradkit.diagnosis.rules.evidence import Evidence, called_by, searched
from gradkit.source import left_out, locations, restored, setup, used_up
from gradkit.source.picked_by_flag import would_be_taken
from gradkit.witness.deeds import Deed


def findings(e: Evidence) -> list[Finding]:
    """The finding of what should learn and no optimizer holds; ``[]`` where all is held, or left out on purpose."""
    wanted, gap = set(e.wanted).difference(e.facts.along), e.first.gap
    names = _unmade(e) if gap.reason == NEW else tuple(n for n in gap.missing if n in wanted)
    if not names:
        return []
    copied = copies.in_the_loss(e, names, gap)
    if copied is not None:
        return [copied]
    names = _not_by_a_setting(e, unheld.forgotten(e, names) or _of_a_used_up(e, names))
    if not names:
        return []
    facts, filtered = {"optimizer": gap.kind}, gap.reason == LEFT_OUT
    if gap.built is not None and gap.built.chain:
        spot = setup.optimizer_line_at(gap.built.chain[0], filtered=filtered)
        notes = (*called_by(gap.built.chain), *_put_after(e, names, gap.built))
        if gap.copied is not None:
            return [of_copies(gap.copied, spot, names, facts)]
        made = _used_up(e, spot, names)
        if made is not None:
            return [of_a_generator(made, spot, names, facts, OBSERVED)]
        variant = "trainer" if unheld.is_a_trainers(e) else ""
        return [
            Finding("optimizer_mismatch", spot, notes, proof=OBSERVED, parameters=names, facts=facts, variant=variant)
        ]
    copying = restored.optimizer_copied_at(e.files) if gap.restored and gap.reason == STALE else None
    if copying is not None:
        return [Finding("optimizer_mismatch", copying, proof=LIKELY, parameters=names, facts=facts)]
    line = _built(e, filtered=filtered)
    made = _used_up(e, line, names) if line is not None else None
    if made is not None:
        return [of_a_generator(made, line, names, facts, searched(made))]
    return [Finding("optimizer_mismatch", line, proof=searched(line), parameters=names, facts=facts)]


def _not_by_a_setting(e: Evidence, names: tuple[str, ...]) -> tuple[str, ...]:
    """What an optimizer lacks, but for what the program takes in on a condition, and nobody has said that it trains."""
    if not names or e.first.gap.reason != LEFT_OUT or e.facts.explicit:
        return names
    built = _built(e)
    if built is None or (left_out.by_name(built) and _holds_biases(e)):
        return names if built is None else ()
    chosen = left_out.on_condition(built, names)
    return tuple(name for name in names if name not in chosen)


def _holds_biases(e: Evidence) -> bool:
    """Whether an optimizer holds parameters of one dimension, too: what it lacks is then no group without decay."""
    missing = set(e.first.gap.missing)
    return any(len(e.trace.values[n].shape) == 1 for name, n in e.trace.parameters.items() if name not in missing)


def _built(e: Evidence, *, filtered: bool = True) -> Location | None:
    """The line that builds the optimizer, as it was seen or is found; ``filtered`` as for ``optimizer_line``."""
    gap = e.first.gap
    if gap.built is not None and gap.built.chain:
        return setup.optimizer_line_at(gap.built.chain[0], filtered=filtered)
    return setup.optimizer_line(e.files, gap.kind, gap.settings, e.near, filtered=filtered)


def _unmade(e: Evidence) -> tuple[str, ...]:
    """What joined the model in the step, but for what a cut has made a Parameter of: the cut is told by itself."""
    made = {index for cut in e.verdict.cuts if cut.kind == REWRAP for index in cut.calls}
    rewrapped = {name for name, n in e.trace.newborn.items() if e.trace.values[n].birth in made}
    return tuple(name for name in e.first.gap.missing if name not in rewrapped)


def _of_a_used_up(e: Evidence, names: tuple[str, ...]) -> tuple[str, ...]:
    """All that an optimizer lacks, if it was handed a generator that had been gone through before; else nothing."""
    line = _built(e)
    return names if line is not None and _used_up(e, line, names) is not None else ()


def _used_up(e: Evidence, built: Location, names: Sequence[str]) -> Location | None:
    """The line that makes the generator which the optimizer was handed when it was used up: a group of it is empty, or
    it holds nothing of the very modules whose parameters the generator gives."""
    gap = e.first.gap
    if gap.empty:
        return used_up.used_up(built, gap.kind, e.files)
    held = [row.name for row in e.rows if row.name not in gap.missing]
    found = [one.location for one in used_up.kept(built, gap.kind, e.files) if one.is_of(names, held)]
    return found[0] if len(found) == 1 else None


def of_copies(copied: Deed, built: Location | None, names: tuple[str, ...], facts: dict[str, str]) -> Finding:
    """The optimizer was handed copies: the line that makes them."""
    notes = (*called_by(copied.chain), *([Note("handed_here", built)] if built is not None else []))
    spot = locations.locate(copied.chain[0], whole=True)
    return Finding(
        "optimizer_mismatch", spot, notes, proof=OBSERVED, parameters=names, facts=facts, variant="held_copies"
    )


def of_a_generator(
    made: Location, built: Location | None, names: tuple[str, ...], facts: dict[str, str], proof: str
) -> Finding:
    """A group of the optimizer is empty: it was handed a generator that had been gone through before."""
    notes = (Note("emptied_here", built),) if built is not None else ()
    return Finding("optimizer_mismatch", made, notes, proof=proof, parameters=names, facts=facts, variant="used_up")


def frozen_first(
    e: Evidence, frozen: Sequence[Finding], lacking: Sequence[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """What an optimizer lacks only because it is handed what requires grad: no fault of its line, but a note there."""
    off = {name for one in frozen for name in one.parameters}
    found, left = list(frozen), list[Finding]()
    for one in lacking:
        taken = set(_taken_unless_frozen(e, one, [name for name in one.parameters if name in off]))
        rest = tuple(name for name in one.parameters if name not in taken)
        left += [replace(one, parameters=rest)] if rest else []
        note = Note("skipped_here", one.location, {"optimizer": one.facts["optimizer"]}) if one.location else None
        found = [
            replace(f, notes=(*f.notes, note)) if note is not None and taken.intersection(f.parameters) else f
            for f in found
        ]
    return found, left


def _taken_unless_frozen(e: Evidence, lacking: Finding, names: Sequence[str]) -> tuple[str, ...]:
    """Of some frozen parameters, those that the optimizer's line would take if they were not; a Trainer takes all."""
    gap = e.first.gap
    if not names or lacking.variant not in ("", "trainer"):
        return ()
    if lacking.variant == "trainer":
        return tuple(names)
    built = _built(e, filtered=False)
    return would_be_taken(built, gap.kind, names, [row.name for row in e.rows], e.files) if built is not None else ()


def _put_after(e: Evidence, names: Sequence[str], built: Deed) -> list[Note]:
    """Where what the optimizer lacks was put into the model once there was an optimizer."""
    deed = e.seen.put_after(names, built.order)
    return [Note("put_after", locations.locate(deed.chain[0], whole=True))] if deed is not None and deed.chain else []
