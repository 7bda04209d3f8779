"""Run the step again without the mishap: what is overwritten is saved by copy, what is kept from before is let go.

Where backward then runs, the mishap is understood, and it is known which calls made it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from gradkit.core import patches
from gradkit.core.operations import GRAD, GRAD_KEPT
from gradkit.core.trace import Call, Chain, spot
from gradkit.tracing import ledger
from gradkit.tracing.autograd_errors import NO_HISTORY, NOT_ASKED, OVERWRITTEN, TWICE, AutogradError
from gradkit.tracing.interventions import Instead, Intervention, Moment
from gradkit.tracing.ledger import Ledger, storage_key
from gradkit.tracing.run import Session


@dataclass(frozen=True)
class RerunWithout:
    """What a rerun without the mishap showed.

    Attributes:
        calls: the calls that made it, with the user's frames and torch's name: what overwrote, or what used the past.
        revived: parameters that backward reached in it; None if it was not made or did not come through.
        runs: how many times the step was run for it.
        passed: the line that raised was passed in it, even if the step ended there and backward had no loss to go from.
        passes: what the calls take from any earlier pass was let go of in it, and not only what they had taken when it
            raised.
    """

    calls: tuple[tuple[str, Chain], ...] = ()
    revived: frozenset[str] | None = None
    runs: int = 0
    passed: bool = False
    passes: bool = False


@contextlib.contextmanager
def graphs_kept() -> Iterator[None]:
    """While the block lasts, no backward frees its graph.

    Example:
        >>> loss = torch.ones(1, requires_grad=True).exp().sum()
        >>> with graphs_kept():
        ...     loss.backward()
        >>> loss.backward()
    """
    original = torch.autograd.backward

    def keeping(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        given = {"create_graph": args[1]} if len(args) > 1 else {}
        original(tensors, grad_tensors, **{**kwargs, **given, "retain_graph": True})

    with patches.undone():
        patches.replace(torch.autograd, "backward", keeping)
        yield


def rerun_without(
    mishap: AutogradError, crossing: Sequence[tuple[Call, int]], session: Session, taken_over: Sequence[Call] = (),
    resets: Sequence[Call] = (),
) -> RerunWithout:  # fmt: skip
    """The rerun that fits a mishap; none where there is nothing to be mended.

    Args:
        crossing: as ``autograd_errors.stale_histories`` found them.
        taken_over: the calls that ``autograd_errors.taken_over`` found.
        resets: the calls that gave values of ``crossing`` new numbers in place.
    """
    if mishap.kind == OVERWRITTEN:
        copying = SaveCopies()
        revived = _revived(session, copying)
        if copying.overwriting() or not crossing:
            return RerunWithout(copying.overwriting(), revived, 1)
        return RerunWithout((), _revived(session, LetGo(crossing)), 2)  # it was overwritten before the step
    if mishap.kind == TWICE and (taken_over or crossing):
        using = taken_over or [call for call, _ in crossing]
        calls = tuple((call.name, call.chain) for call in using)
        revived = _revived(session, _letting_go(crossing, taken_over, resets))
        if revived is not None or taken_over or resets or not mishap.freeing:
            return RerunWithout(calls, revived, 1)
        return RerunWithout(calls, _revived(session, _letting_go(crossing, using, resets)), 2, passes=True)
    if mishap.kind in (NOT_ASKED, NO_HISTORY) and mishap.inputs:
        flag = Flag(mishap.inputs)
        return RerunWithout((), _revived(session, flag), 1, passed=flag.answered)
    return RerunWithout()


def mending(
    mishap: AutogradError, crossing: Sequence[tuple[Call, int]], taken_over: Sequence[Call], resets: Sequence[Call],
    mended: RerunWithout,
) -> Intervention | None:  # fmt: skip
    """What was changed in the rerun that mended a mishap, to be changed once more; None where nothing mends it."""
    if not mended.revived:
        return None
    if mishap.kind == OVERWRITTEN:
        return SaveCopies() if mended.calls or not crossing else LetGo(crossing)
    if mishap.kind == TWICE:
        using = [call for call, _ in crossing] if mended.passes else taken_over
        return _letting_go(crossing, using, resets)
    return Flag(mishap.inputs)


def _letting_go(
    crossing: Sequence[tuple[Call, int]], taken_over: Sequence[Call], resets: Sequence[Call]
) -> Intervention:
    """What lets go of a history from before: of passes of this step where some is taken over, else of earlier steps."""
    return LetGoOfPasses(taken_over, crossing, resets) if taken_over else LetGo(crossing, resets)


def _revived(session: Session, without: Intervention) -> frozenset[str] | None:
    run = session.run(without)
    return None if run.error else frozenset(run.reached.norms)


@dataclass
class _Saved:
    original: torch.Tensor
    version: int
    writes: int
    copy: torch.Tensor
    seen: int = 0


_Write = tuple[str, Chain]


class SaveCopies(Intervention):
    """Hands autograd copies of what it saves, and sees which originals have changed when backward asks for them.

    Who changed them is told by the memory that is written; a sparse tensor has none that stays its own, and is looked
    at before and after each write to one.
    """

    def __init__(self) -> None:
        self._written: list[tuple[int, str, Chain]] = []
        self._overwriting: dict[_Write, None] = {}
        self._sparse: list[tuple[_Saved, list[_Write]]] = []
        self._now: list[_Write] = []

    def overwriting(self) -> tuple[_Write, ...]:
        """The calls that overwrote what was saved: torch's name and the user's frames."""
        return tuple(self._overwriting)

    def during_step(self) -> Any:
        """What is saved in the step is saved by copy."""
        return saved_tensors_hooks(self._save, self._hand_out)

    def before_write(self, moment: Moment, name: str, targets: Sequence[Any]) -> None:
        """Remember who writes where."""
        self._settle()
        for target in targets:
            if isinstance(target, torch.Tensor):
                self._written.append((storage_key(target), name, moment.chain()))
                if target.layout is not torch.strided:
                    self._now.append((name, moment.chain()))

    def _settle(self) -> None:
        """Give what has changed in sparse tensors to the last call that wrote into one."""
        for saved, writes in self._sparse if self._now else ():
            version = saved.original._version  # noqa: SLF001
            writes.extend(self._now if version != saved.seen else ())
            saved.seen = version
        self._now.clear()

    def _save(self, tensor: torch.Tensor) -> _Saved:
        self._settle()
        version = tensor._version  # noqa: SLF001  autograd's own count of writes
        saved = _Saved(tensor.detach(), version, len(self._written), tensor.detach().clone(), version)
        if tensor.layout is not torch.strided:
            self._sparse.append((saved, []))
        return saved

    def _hand_out(self, saved: _Saved) -> torch.Tensor:
        self._settle()
        if saved.original._version != saved.version:  # noqa: SLF001
            self._overwriting.update((one, None) for own, writes in self._sparse if own is saved for one in writes)
            key = storage_key(saved.original)
            writes = (entry for entry in self._written[saved.writes :] if entry[0] == key)
            self._overwriting.update(((name, chain), None) for _, name, chain in writes)
        return saved.copy


class LetGo(Intervention):
    """Detaches what certain calls take from certain values.

    Args:
        crossing: the calls, each with the number of the value.
        resets: calls that give values new numbers in place: what they have made is let go wherever those calls take it.
    """

    def __init__(self, crossing: Sequence[tuple[Call, int]], resets: Sequence[Call] = ()) -> None:
        self._let_go_of = {number for _, number in crossing}
        self._keys = {call.key for call, _ in crossing}
        self._names = {call.name for call, _ in crossing}
        self._resets = {call.key for call in resets}
        self._reset = set[int]()

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """The same call, made with values that have no history."""
        name = getattr(func, "__name__", "")
        if name in self._names and (name, *spot(moment.chain())) in self._keys:
            args, kwargs = self._let_go(args, moment.ledger), self._let_go(kwargs, moment.ledger)
        return func, args, kwargs

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """Remember what gives values new numbers."""
        if self._resets and (name, *spot(moment.chain())) in self._resets:
            self._reset.add(moment.index)
        return result

    def _let_go(self, given: Any, ledger: Ledger) -> Any:
        if isinstance(given, torch.Tensor):
            return given.detach() if self._is_to_go(given, ledger) else given
        if isinstance(given, dict):
            return {key: self._let_go(value, ledger) for key, value in given.items()}
        return type(given)(self._let_go(x, ledger) for x in given) if type(given) in (list, tuple) else given

    def _is_to_go(self, given: torch.Tensor, ledger: Ledger) -> bool:
        return ledger.known(given) in self._let_go_of or self._is_reset(given, ledger)

    def _is_reset(self, given: torch.Tensor, ledger: Ledger) -> bool:
        number = ledger.known(given)
        return number is not None and ledger.makers[number] in self._reset and given.grad_fn is not None


class LetGoOfPasses(LetGo):
    """Detaches what certain calls take over from before the last backward of the step's own.

    Args:
        calls: in the run in which they were found; any run of the same lines counts.
        crossing, resets: as of ``LetGo``, for what is reset in place besides.
    """

    def __init__(
        self, calls: Sequence[Call], crossing: Sequence[tuple[Call, int]] = (), resets: Sequence[Call] = ()
    ) -> None:
        users = [call for call, _ in crossing] if resets else []
        super().__init__([(call, -1) for call in (*calls, *users)], resets)
        self._values = 0

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """Remember how many values there were."""
        self._values = len(moment.ledger.makers)
        return True

    def _is_to_go(self, given: torch.Tensor, ledger: Ledger) -> bool:
        number = ledger.known(given)
        past = number is not None and number < self._values and given.grad_fn is not None
        return past or self._is_reset(given, ledger)


class Flag(Intervention):
    """Tells certain values to require grad before a call takes them, unless they are frozen parameters.

    Args:
        numbers: of the values.

    Attributes:
        answered: a gradient was asked for by any of them, and was handed out.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = frozenset(numbers)
        self.answered = False

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """The same call, with values that require grad."""
        for given in ledger.leaves((args, kwargs)):
            if isinstance(given, torch.Tensor) and moment.ledger.known(given) in self._numbers and _may_be(given):
                given.requires_grad_()
        return func, args, kwargs

    def recorded(self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """Notice a gradient by one of the values."""
        self.answered = self.answered or (name in (GRAD, GRAD_KEPT) and not self._numbers.isdisjoint(inputs))


def _may_be(tensor: torch.Tensor) -> bool:
    plain = tensor.is_leaf and not tensor.requires_grad and not isinstance(tensor, torch.nn.Parameter)
    return plain and tensor.is_floating_point()
