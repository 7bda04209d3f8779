"""An optimizer that changes nothing, although backward has computed gradients: what was done to them, or its rate."""

from __future__ import annotations

from dataclasses import replace

from gradkit.core.records import LIKELY, OBSERVED, Finding, Location, Note
from gradkit.diagnosis.facts.optimizers import Gap, IdleStep
from gradkit.diagnosis.rules import copies
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.diagnosis.rules.optimizer_mismatch import of_a_generator, of_copies
from gradkit.source import locations, setup, stepping, syntax, used_up, zeros
from gradkit.source.stepping import HeldBack
from gradkit.tracing.after_backward import FOREIGN, RATE

CAUSE = "idle_optimizer"


def findings(e: Evidence) -> list[Finding]:
    """Gradients that are cleared or clipped to zero between backward and step, or not the optimizer's; a rate of 0."""
    found = [_finding(e, one) for one in e.first.idle if one.kind != RATE or e.first.trains]
    return [one for one in found if one is not None]


def _finding(e: Evidence, one: IdleStep) -> Finding | None:
    facts = {"optimizer": one.built.kind}
    if one.kind not in (FOREIGN, RATE):
        if not one.chain:
            return None
        return Finding(
            CAUSE, locations.locate(one.chain[0], whole=True), tuple(called_by(one.chain)),
            proof=OBSERVED, parameters=one.names, facts=facts, variant=one.kind,
        )  # fmt: skip
    if one.kind == RATE:
        return replace(at_rest(one.built, None, e.files, e.near), parameters=one.names)
    copied = copies.in_the_loss(e, one.names, one.built)
    if copied is not None:
        return copied
    spot, proof = _built_at(one.built, e.files, e.near)
    if one.built.copied is not None:
        return of_copies(one.built.copied, spot, one.names, facts)
    made = used_up.used_up(spot, one.built.kind, e.files) if spot is not None and one.built.empty else None
    if made is not None:
        return of_a_generator(made, spot, one.names, facts, proof if proof == OBSERVED else LIKELY)
    return Finding("optimizer_mismatch", spot, proof=proof, parameters=one.names, facts=facts)


def _built_at(gap: Gap, files: tuple[str, ...], near: tuple[str, ...] = ()) -> tuple[Location | None, str]:
    """The line that built an optimizer, and how sure that is: it was seen, or is looked for in the source."""
    if gap.built is not None and gap.built.chain:
        return setup.optimizer_line_at(gap.built.chain[0]), OBSERVED
    line = setup.optimizer_line(files, gap.kind, gap.settings, near)
    return line, OBSERVED if line is None else LIKELY


def at_rest(
    built: Gap, schedule: Location | None, files: tuple[str, ...], near: tuple[str, ...],
    origin: Location | None = None, note: str = "schedule_built",
) -> Finding:  # fmt: skip
    """An optimizer whose learning rate was 0 in every step of a program.

    Args:
        schedule: the line that keeps it there; None if it was built with 0.
        origin: the line that makes what the schedule was handed 0, if it is another.
        note: what is said of the schedule's line then.
    """
    facts = {"optimizer": built.kind}
    if schedule is not None and origin is not None:
        return Finding(CAUSE, origin, (Note(note, schedule),), proof=LIKELY, facts=facts, variant="scheduled")
    if schedule is not None:
        return Finding(CAUSE, schedule, proof=OBSERVED, facts=facts, variant="scheduled")
    spot, proof = _built_at(built, files, near)
    made = _rate_written_at(built)
    if made is None or spot is None:
        return Finding(CAUSE, spot, proof=proof, facts=facts, variant=RATE)
    return Finding(CAUSE, made, (Note("rate_used", spot),), proof=LIKELY, facts=facts, variant="rate_made")


def _rate_written_at(built: Gap) -> Location | None:
    """The line that makes a learning rate 0, where that is another than the optimizer's."""
    if built.built is None or not built.built.chain:
        return None
    point = built.built.chain[0]
    rate = syntax.argument(locations.node_at(point), "lr", 1)
    return zeros.written_at(point[0].co_filename, rate) if rate is not None else None


def never(built: Gap, held: HeldBack) -> Finding:
    """An optimizer that never stepped, although backward ran many times."""
    sure = held.kind in (stepping.UNCALLED, stepping.GUARDED)
    variant = stepping.UNCALLED if held.kind == stepping.UNCALLED else "never"
    return Finding(
        CAUSE, held.location, proof=OBSERVED if sure else LIKELY, facts={"optimizer": built.kind}, variant=variant
    )
