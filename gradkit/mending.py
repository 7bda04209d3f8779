"""Run the step again without the mishap: what is overwritten is saved by copy, what is kept from before is let go.

Where backward then runs, the mishap is understood, and it is known which calls made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from gradkit import frames
from gradkit.ledger import storage_key
from gradkit.mishaps import OVERWRITTEN, TWICE, Mishap
from gradkit.outcome import outcome
from gradkit.preserve import Preserved
from gradkit.trace import Tracer
from gradkit.traces import Call, Chain, Trace, spot


@dataclass(frozen=True)
class Mended:
    """What a rerun without the mishap showed.

    Attributes:
        calls: the calls that made it, with the user's frames and torch's name: what overwrote, or what used the past.
        revived: parameters that backward reached in it; None if it was not made or did not come through.
        runs: how many times the step was run for it.
    """

    calls: tuple[tuple[str, Chain], ...] = ()
    revived: frozenset[str] | None = None
    runs: int = 0


def mend(
    mishap: Mishap,
    crossing: Sequence[tuple[Call, int]],
    step: Callable[[], Any],
    model: nn.Module,
    preserved: Preserved,
) -> Mended:
    """The rerun that fits a mishap; none where there is nothing to be mended.

    Args:
        crossing: as ``crossings`` found them.
    """
    if mishap.kind == OVERWRITTEN:
        return _rerun(_Copying(model, preserved), step, preserved)
    if mishap.kind == TWICE and crossing:
        return _rerun(_LettingGo(model, preserved, crossing), step, preserved)
    return Mended()


def crossings(trace: Trace, mishap: Mishap) -> tuple[tuple[Call, int], ...]:
    """The calls that should have let a value's history go, with the number of that value.

    They are those on the way to the loss that use a value whose history is older than the step, or was freed in it. But
    where an optimizer has stepped since, and trains nothing of what made the value, the earlier loss had no business
    with it: then they are those that used the value on the way to that one.
    """
    found = _late(trace, mishap.freed)
    early = [
        (call, number)
        for number in dict.fromkeys(number for _, number in found)
        if mishap.trained and not mishap.trained & {trace.values[one].parameter for one in trace.sources([number])}
        for call in trace.calls
        if call.index in mishap.freed and number in call.inputs
    ]
    moved = {number for _, number in early}
    return tuple(sorted([*early, *(one for one in found if one[1] not in moved)], key=lambda one: one[0].index))


def _late(trace: Trace, freed: frozenset[int]) -> list[tuple[Call, int]]:
    live, found = {trace.loss}, []
    for call in reversed(trace.calls):
        if call.index in freed or not call.grad_on or not live.intersection(call.outputs):
            continue
        for number in call.inputs:
            value = trace.values[number]
            if value.parameter or value.leaf or not value.requires_grad:
                continue
            if value.past or value.maker in freed:
                found.append((call, number))
            else:
                live.add(number)
    return found


def _rerun(tracer: _Mender, step: Callable[[], Any], preserved: Preserved) -> Mended:
    preserved.rewind()
    preserved.clear_grads()
    try:
        with tracer.saving():
            loss = tracer.run(step)
        _, reached = outcome(tracer, loss, preserved)
    except Exception:  # noqa: BLE001  whatever the changed step raises, the first run stands
        return Mended(tracer.found(), None, 1)
    finally:
        preserved.rewind()
    return Mended(tracer.found(), None if reached.error else frozenset(reached.norms), 1)


class _Mender(Tracer):
    def saving(self) -> Any:
        return saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)

    def found(self) -> tuple[tuple[str, Chain], ...]:
        return ()


@dataclass(frozen=True)
class _Saved:
    original: torch.Tensor
    version: int
    writes: int
    copy: torch.Tensor


class _Copying(_Mender):
    """Hands autograd copies of what it saves, and sees which originals have changed when backward asks for them."""

    def __init__(self, model: nn.Module, preserved: Preserved) -> None:
        super().__init__(model, preserved)
        self._written: list[tuple[int, str, Chain]] = []
        self._overwriting: dict[tuple[str, Chain], None] = {}

    def saving(self) -> Any:
        return saved_tensors_hooks(self._save, self._hand_out)

    def _save(self, tensor: torch.Tensor) -> _Saved:
        version = tensor._version  # noqa: SLF001  autograd's own count of writes
        return _Saved(tensor.detach(), version, len(self._written), tensor.detach().clone())

    def _hand_out(self, saved: _Saved) -> torch.Tensor:
        if saved.original._version != saved.version:  # noqa: SLF001
            key = storage_key(saved.original)
            writes = (entry for entry in self._written[saved.writes :] if entry[0] == key)
            self._overwriting.update(((name, chain), None) for _, name, chain in writes)
        return saved.copy

    def _before_write(self, name: str, targets: list[Any]) -> bool:
        for target in targets:
            if isinstance(target, torch.Tensor):
                self._written.append((storage_key(target), name, frames.chain(self._frame, Tracer.run.__code__)))
        return super()._before_write(name, targets)

    def found(self) -> tuple[tuple[str, Chain], ...]:
        return tuple(self._overwriting)


class _LettingGo(_Mender):
    """Detaches what certain calls take from certain values."""

    def __init__(self, model: nn.Module, preserved: Preserved, crossing: Sequence[tuple[Call, int]]) -> None:
        super().__init__(model, preserved)
        self._let_go_of = {number for _, number in crossing}
        self._calls_of = tuple((call.name, call.chain) for call, _ in crossing)
        self._keys = {call.key for call, _ in crossing}
        self._names = {call.name for call, _ in crossing}

    def found(self) -> tuple[tuple[str, Chain], ...]:
        return self._calls_of

    def _carry_out(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(func, "__name__", "")
        if name in self._names and (name, *spot(frames.chain(self._frame, Tracer.run.__code__))) in self._keys:
            args, kwargs = self._let_go(args), self._let_go(kwargs)
        return super()._carry_out(func, args, kwargs)

    def _let_go(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            return given.detach() if self.ledger.known(given) in self._let_go_of else given
        if isinstance(given, dict):
            return {key: self._let_go(value) for key, value in given.items()}
        return type(given)(self._let_go(x) for x in given) if type(given) in (list, tuple) else given
