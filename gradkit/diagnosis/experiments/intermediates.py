"""What a second derivative lacks where a custom Function keeps what its forward has computed on the way.

The step is run with the history of these intermediates (``tracing.intermediates``): what gets a gradient then had lost
it there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradkit.core.operations import GRAD_KEPT
from gradkit.core.trace import Chain, Trace
from gradkit.diagnosis.facts.cuts import Cut, Verdict
from gradkit.tracing.intermediates import Intermediates
from gradkit.tracing.run import Session


@dataclass(frozen=True)
class Kept:
    """What the backwards of custom Functions lack of what their forwards have computed on the way.

    Attributes:
        uses: the name of each such Function, with the user's frames of the first call that computes with it, innermost
            first and up to the Function's backward; none if nothing comes alive by its history.
        revived: parameters that got no gradient, and get one with it.
        runs: how many times the step was run for it.
    """

    uses: tuple[tuple[str, Chain], ...] = ()
    revived: tuple[str, ...] = ()
    runs: int = 0


def lost(trace: Trace, verdict: Verdict, *, failed: bool) -> tuple[str, ...]:
    """Parameters that nothing explains, or no more than that a derivative has come without a history.

    Args:
        failed: backward raised, so that of the parameters without a cut nothing is known.
    """
    cut = (name for one in _of_derivatives(trace, verdict) for name in one.parameters)
    return tuple(dict.fromkeys((*(() if failed else verdict.unexplained), *cut)))


def ask(session: Session, names: tuple[str, ...]) -> Kept:
    """Which Functions keep some parameters from a gradient: where there are several, each is asked alone, too.

    Example:
        >>> import torch
        >>> from gradkit.state.preserve import Preserved
        >>> model = torch.nn.Linear(1, 1)
        >>> with Preserved(model) as preserved:
        ...     ask(Session(lambda: model(torch.ones(1, 1)).sum(), model, preserved), ("bias",)).uses
        ()
    """
    watching = Intermediates()
    alive = _alive(session, names, watching)
    owners = dict.fromkeys(name for name, _ in watching.used) if alive else {}
    several = list(owners) if len(owners) > 1 else []
    alone = [name for name in several if _alive(session, names, Intermediates(name))]
    uses = tuple(one for one in watching.used if one[0] in (alone or owners))
    return Kept(uses, alive, 1 + len(several))


def _alive(session: Session, names: tuple[str, ...], watching: Intermediates) -> tuple[str, ...]:
    run = session.run(watching)
    return tuple(name for name in names if not run.error and run.reached.norms.get(name))


def without(trace: Trace, verdict: Verdict, revived: tuple[str, ...]) -> Verdict:
    """The same, without the derivatives that have a history once the intermediates have: they are no cuts."""
    told = [cut for cut in _of_derivatives(trace, verdict) if set(cut.parameters) <= set(revived)]
    names = (*verdict.unexplained, *(name for cut in told for name in cut.parameters))
    left = tuple(cut for cut in verdict.cuts if cut not in told)
    return replace(verdict, cuts=left, unexplained=tuple(dict.fromkeys(names)))


def _of_derivatives(trace: Trace, verdict: Verdict) -> list[Cut]:
    """The cuts that are a derivative which was kept for a second one, and has no history."""
    return [one for one in verdict.cuts if one.calls and all(trace.calls[i].name == GRAD_KEPT for i in one.calls)]
