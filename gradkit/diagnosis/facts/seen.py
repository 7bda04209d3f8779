"""What a witness saw of a model while it was set up: deeds by parameter, and the switches that autograd is off by.

Empty where nobody listened; then rules search the source, and what they find there is no more than likely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType

from torch import nn

from gradkit.state import registered
from gradkit.witness.deeds import CAST, COPIED, CREATED, FROZEN, REGISTERED, REPLACED, THAWED, Deed
from gradkit.witness.grad_mode import grad_mode_deeds
from gradkit.witness.histories import deeds_of, of_all

_PLACING = (COPIED, REGISTERED, REPLACED, CREATED)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen to be done to a model.

    Attributes:
        parameters: deeds by the parameter's name, first to last; none for one of which nothing was seen.
        switches: those by which autograd was off when the step began, outermost first.
        copies: the ``order`` of each deep copy whose original lives on.
    """

    parameters: Mapping[str, tuple[Deed, ...]] = field(default_factory=dict)
    switches: tuple[Deed, ...] = ()
    copies: frozenset[int] = frozenset()

    def frozen_by(self, name: str) -> Deed | None:
        """The deed that took ``requires_grad`` from a parameter for good; None if it has it, or nobody saw.

        A copy of what was frozen is frozen as well. Where the original lives on, it may be meant to be frozen, and the
        copy is what took it; else it is what froze the original.

        Example:
            >>> off, on = Deed(FROZEN, (), order=1), Deed(THAWED, (), order=2)
            >>> again = Deed(FROZEN, (), order=3, facts={"again": "yes"})
            >>> seen = Seen(parameters={"w": (off, again), "b": (off, on)})
            >>> seen.frozen_by("w").order, seen.frozen_by("b")
            (1, None)
        """
        return _frozen_by(self.parameters.get(name, ()), self.copies)

    def frozen_again(self, name: str) -> tuple[Deed, ...]:
        """The deeds that took ``requires_grad`` from a parameter that had none: they would hold without the first."""
        first = self.frozen_by(name)
        found = self.parameters.get(name, ()) if first is not None else ()
        return tuple(d for d in found if d.kind == FROZEN and d.facts.get("again") and first and d.order > first.order)

    def first(self, names: Iterable[str]) -> Deed | None:
        """The first deed that was done to any of some parameters."""
        found = [self.parameters[name][0] for name in names if name in self.parameters]
        return min(found, key=lambda deed: deed.order, default=None)

    def codes(self) -> Iterator[CodeType]:
        """The code of every frame of the user's that had a hand in any of it."""
        for deeds in (*self.parameters.values(), self.switches):
            for deed in deeds:
                for code, _ in (*deed.chain, *(point for before in deed.before for point in before.chain)):
                    yield code

    def put_after(self, names: Iterable[str], order: int) -> Deed | None:
        """The first deed by which one of some parameters came to be where it is, after another deed."""
        found = [d for name in names for d in self.parameters.get(name, ()) if d.kind in _PLACING and d.order > order]
        return min(found, key=lambda deed: deed.order, default=None)

    def halved_by(self) -> Deed | None:
        """The first deed that made a parameter half precision."""
        found = [d for told in self.parameters.values() for d in told if d.kind == CAST and d.facts["to"] == "float16"]
        return min(found, key=lambda deed: deed.order, default=None)


def _frozen_by(deeds: Iterable[Deed], copies: frozenset[int]) -> Deed | None:
    found: Deed | None = None
    for deed in deeds:
        if deed.kind == FROZEN and (found is None or not deed.facts.get("again")):
            found = deed
        elif deed.kind == THAWED:
            found = None
        elif deed.kind in (CREATED, REGISTERED) and deed.facts.get("frozen"):
            found = found or deed
        elif deed.kind == COPIED:
            before = _frozen_by(deed.before, copies)
            found = deed if before is not None and deed.order in copies else before
    return found


def read(model: nn.Module) -> Seen:
    """What was seen of a model, and of this thread's grad mode."""
    told = ((name, deeds_of(tensor)) for name, tensor in registered.parameters(model, twice=True))
    parameters = {name: deeds for name, deeds in told if deeds}
    copied = [d for deeds in parameters.values() for d in deeds if d.kind == COPIED and d.before]
    living = {deeds[0].order for _, deeds in of_all()} if copied else set[int]()
    copies = frozenset(d.order for d in copied if d.before[0].order in living)
    return Seen(parameters=parameters, switches=grad_mode_deeds(), copies=copies)
