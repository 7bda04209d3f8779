"""Run the step again with the user's hooks made transparent: which of them keep which parameters from learning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradkit import faults, hooks, reach
from gradkit.hooks import Transparent
from gradkit.interventions import Intervention
from gradkit.outcome import Session
from gradkit.preserve import Preserved
from gradkit.standins import HIDDEN, REFUSED, Tampered
from gradkit.trace import Tracer
from gradkit.traces import CHECKPOINT, Key

MOST = 5  # hooks that are looked at one by one


@dataclass(frozen=True)
class Silencer:
    """A hook that keeps parameters from learning.

    Attributes:
        calls: what it did, each time that it was called.
        parameters: those that get a gradient with the hook transparent, and none, zeros or nan with it;
            where it hides nan, those that get nan with it transparent.
        spoiler: where it hides nan, index of the call whose derivative is nan, -1 if not known.
    """

    calls: tuple[Tampered, ...]
    parameters: tuple[str, ...]
    spoiler: int = -1

    @property
    def kind(self) -> str:
        """The kind of its first call."""
        return self.calls[0].kind

    @property
    def owners(self) -> frozenset[str]:
        """The parameters that it is a hook of."""
        return frozenset(call.owner for call in self.calls) - {""}


@dataclass(frozen=True)
class Unhooked:
    """What the runs showed: the hooks, and how many runs it took."""

    silencers: tuple[Silencer, ...] = ()
    runs: int = 0


@dataclass(frozen=True)
class Seen:
    """The user has hooks on gradients.

    Attributes:
        filled: parameters whose hook is called after their ``.grad`` was filled.
    """

    filled: frozenset[str] = frozenset()


def seen(tracer: Tracer, preserved: Preserved) -> Seen | None:
    """Whether a run may have had hooks of the user's; to be asked before everything is put back.

    Hooks inside a reentrant checkpoint are registered in the backward, where nobody listens.
    """
    delayed = any(region.kind == CHECKPOINT for region in tracer.switches.regions())
    if not (tracer.hooked or delayed or hooks.present(preserved.modules, preserved.parameters)):
        return None
    return Seen(hooks.on_filled(preserved.parameters))


def find(session: Session, dead: Iterable[str], filled: Iterable[str] = ()) -> Unhooked:
    """The hooks without which parameters would get a gradient.

    Args:
        dead: parameters that should train and have no gradient, or one of nothing but zeros, or one that holds nan.
        filled: parameters that should train whose hook is called after their ``.grad`` was filled, and may empty it.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> with Preserved(model) as preserved:
        ...     find(Session(lambda: model(torch.ones(1, 2)).sum(), model, preserved), ["weight"])
        Unhooked(silencers=(), runs=1)
    """
    runner = _Runner(session)
    norms, tampered = runner.run()
    tampered = [one for one in tampered if one.kind != REFUSED]
    groups: dict[Key, list[Tampered]] = {}
    for one in tampered:
        groups.setdefault(one.key, []).append(one)
    emptied = {one.owner for one in tampered if one.emptied}.intersection(filled)
    lost = [*dict.fromkeys((*dead, *sorted(emptied)))]
    revived = [name for name in lost if _alive(norms, name)]
    spoiled = [name for name in lost if (norm := norms.get(name)) is not None and not math.isfinite(norm)]
    found = []
    for key, calls in groups.items():
        names = spoiled if calls[0].kind == HIDDEN else revived
        found.append(Silencer(tuple(calls), tuple(runner.silenced(key, calls, names, alone=len(groups) == 1))))
    told = {name for one in found for name in one.parameters}
    found = [replace(one, parameters=_all(one, revived, spoiled, told)) for one in found]
    found = [one for one in found if one.parameters]
    if any(one.kind == HIDDEN for one in found):
        spoiler = runner.spoiler()
        found = [replace(one, spoiler=spoiler) if one.kind == HIDDEN else one for one in found]
    return Unhooked(tuple(found), runner.runs)


def refused(session: Session) -> Unhooked:
    """The hooks that return what torch does not take in the place of a gradient, so that a backward raised."""
    runner = _Runner(session)
    norms, tampered = runner.run()
    groups: dict[Key, list[Tampered]] = {}
    for one in tampered:
        if one.kind == REFUSED:
            groups.setdefault(one.key, []).append(one)
    names = tuple(name for name in norms if _alive(norms, name))
    return Unhooked(tuple(Silencer(tuple(calls), names) for calls in groups.values()), runner.runs)


def _alive(norms: dict[str, float | None], name: str) -> bool:
    norm = norms.get(name)
    return norm is not None and norm > 0 and math.isfinite(norm)


def _all(one: Silencer, revived: list[str], spoiled: list[str], told: set[str]) -> tuple[str, ...]:
    """Its parameters, and those that no hook silences alone: all of them do it together."""
    return tuple(n for n in (spoiled if one.kind == HIDDEN else revived) if n in one.parameters or n not in told)


class UserHooksTransparent(Intervention):
    """Calls the user's hooks on copies of the gradients, and changes nothing by what comes of it.

    Args:
        session: whose parameters have them.
        acting: keys of the hooks that are to act as ever.
    """

    def __init__(self, session: Session, acting: Iterable[Key] = ()) -> None:
        self._hooks = Transparent(session.preserved.parameters, acting)

    @property
    def tampered(self) -> list[Tampered]:
        """Every call that would have put something wrong in the place of a gradient."""
        return self._hooks.tampered

    @contextmanager
    def during(self) -> Iterator[None]:
        """Hooks are called in the backward, so that they are stood in for until that is over."""
        with self._hooks.listening():
            yield


class _Runner:
    """Runs the step with hooks made transparent, as often as there are questions."""

    def __init__(self, session: Session) -> None:
        self._session, self.runs = session, 0

    def run(self, acting: Iterable[Key] = ()) -> tuple[dict[str, float | None], list[Tampered]]:
        """The norms of the gradients with all hooks but the acting ones transparent, and what the others did."""
        self.runs += 1
        heard = UserHooksTransparent(self._session, acting)
        run = self._session.run(heard)
        return (run.reached.norms, heard.tampered) if not run.error else ({}, [])

    def silenced(self, key: Key, calls: list[Tampered], names: list[str], *, alone: bool) -> list[str]:
        """Those of the named parameters that have no gradient if this hook alone acts as ever."""
        if alone or self.runs > MOST or not names:
            return names
        emptied = {one.owner for one in calls if one.emptied}
        norms, _ = self.run([key])
        return [name for name in names if name in emptied or (norms and not _alive(norms, name))]

    def spoiler(self) -> int:
        """The index of the call whose derivative is nan or inf, with all hooks transparent."""
        self.runs += 1
        try:
            return self._session.ask(self._spoiled_at, UserHooksTransparent(self._session))
        except Exception as error:
            if faults.is_ours(error):
                raise
            return -1

    def _spoiled_at(self, tracer: Tracer, loss: Any) -> int:
        if not isinstance(loss, torch.Tensor):  # after a backward of the step's own
            return -1
        sequence = reach.first_not_finite(loss, self._session.preserved)
        return tracer.index_at(sequence) if sequence >= 0 else -1
