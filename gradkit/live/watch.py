"""``gradkit.watch``: a program trains as it does, and where its gradient is lost the line is named.

What backward raises carries the place, the cause and the change as a note. A fault that raises nothing is told after a
few steps, by name and once. Nothing of gradkit's own reaches the program.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from gradkit.core import attempts, console, introspection, turns
from gradkit.core.i18n import words
from gradkit.core.records import Finding
from gradkit.diagnosis.facts import optimizers
from gradkit.live import beside_others
from gradkit.live.hearing import Hearing, safely
from gradkit.live.looks import LASTING, NOT_FINITE, Looks
from gradkit.live.suspects import Suspect
from gradkit.source import frames
from gradkit.tracing.after_backward import held_by

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation
    from gradkit.report.report import Report

Tell = Callable[["Explanation"], object]
_MOST_ERRORS = 20
_EXPLAINED = "gradkit_explanation"


def watch(
    model: nn.Module | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    tell: Tell | None = None,
) -> Watch:
    """Watch training from here on: until ``close()``, the end of a ``with`` block, or the end of the program.

    Every backward and every optimizer of the process is heard, also those of Trainer, Lightning and accelerate. An
    error of autograd's gets a note: the line, the cause, what to change; ``error.gradkit_report`` is the report. Where
    a parameter silently gets no gradient, that is told after three steps, once.

    Args:
        model: the model that is trained; None finds it where it is trained.
        optimizer: only this optimizer's steps are looked at, or those of a list of them; None: those of all.
        tell: called with the ``Explanation`` of each silent fault. None writes it to the error stream; a notebook
            shows the report.

    Returns:
        The watch, which is open.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        >>> with watch() as w:
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         layer(torch.ones(1, 2)).sum().backward()
        ...         optimizer.step()
        >>> w.steps, w.reports
        (3, ())
    """
    return Watch(model, optimizer, tell=tell).open()


@dataclass(frozen=True)
class Caught:
    """An error of autograd's that the program caught by itself.

    Attributes:
        error: its class and its text.
        explanation: what was found.
    """

    error: str
    explanation: Explanation


class Watch:
    """What :func:`watch` returns. Several may be open; each is told what concerns it, and nothing is printed twice.

    Args:
        model, optimizer, tell: as for :func:`watch`.
        silent: whether faults that raise nothing are looked for, too.
        notes: whether an error gets a note.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        *,
        tell: Tell | None = None,
        silent: bool = True,
        notes: bool = True,
    ) -> None:
        self._silent, self.notes = silent, notes
        self._model = weakref.ref(model) if model is not None else None
        self._optimizers = optimizers.several(optimizer)
        self.tell = tell
        self._found: list[tuple[Explanation, int]] = []  # the steps that were made when an error was raised, else -1
        self._told: set[tuple[object, ...]] = set()
        self._began = self._took = self._untold = 0
        self._broken = False
        self._caught = ""

    @property
    def model(self) -> nn.Module | None:
        """The model that was named, as long as it lives."""
        return self._model() if self._model is not None else None

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer that was named; None where none was, or several."""
        return self._optimizers[0] if len(self._optimizers) == 1 else None

    @property
    def explanations(self) -> tuple[Explanation, ...]:
        """What was found, in the order in which it was told; not of an error that the program caught and trained on."""
        return tuple(one for one, at in self._found if at in (-1, self.steps))

    @property
    def caught(self) -> Caught | None:
        """The last error, if it was explained; no optimizer has stepped since. It may have been caught, or not."""
        known = [one for one, at in self._found if at == self.steps]
        return Caught(self._caught, known[-1]) if known else None

    @property
    def reports(self) -> tuple[Report, ...]:
        """The reports of what was found; each holds at least one finding."""
        return tuple(one.report for one in self.explanations if one.report is not None)

    @property
    def report(self) -> Report | None:
        """The last of ``reports``; None as long as nothing was found."""
        return self.reports[-1] if self.reports else None

    @property
    def steps(self) -> int:
        """How many steps optimizers took while this was open."""
        return (_hearing.steps if self in _open else self._took) - self._began

    def open(self) -> Watch:
        """Begin, or go on after ``close()``; not while it is open, nor in a step that is run again."""
        if self not in _open and not turns.is_mine():
            _hearing.forget()
            _listener.forget()
            _hearing.open()
            beside_others.begin(_hearing)
            self._began = _hearing.steps - self.steps
            _open.append(self)
        return self

    def close(self) -> None:
        """Tell what is left to be told, and listen no longer."""
        if self not in _open:
            return
        for suspect in [*_hearing.gone, *_hearing.suspects.values()]:
            if self.takes(suspect.looks.optimizer):
                safely(partial(_tell_end, suspect, _hearing.moved))
        self._took, self._untold, self._broken = _hearing.steps, self.untold, self.untold_numbers
        _open.remove(self)
        self._optimizers = ()
        if not _open:
            _hearing.close()

    def __enter__(self) -> Watch:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Exception) and self in _open:
            safely(lambda: _explain(error, while_raised=False))
        self.close()

    def explanation_of(self, error: BaseException) -> Explanation | None:
        """What was found of an error while it was raised; None if nothing was, or another watch heard it."""
        found = getattr(error, _EXPLAINED, None)
        return found if any(found is one for one, _ in self._found) else None

    def takes(self, optimizer: Optimizer | None) -> bool:
        """Whether an optimizer is one that this watch looks at: one that was named may wrap it."""
        if not self._silent:
            return False
        return not self._optimizers or any(_is_in(one, optimizer) for one in self._optimizers)

    @property
    def untold(self) -> int:
        """How many parameters had no gradient in any look, beside some that are split over ranks, as ``DTensor``.

        Why is not known: no step of such a model is run again.
        """
        if self not in _open:
            return self._untold
        return sum(len(one.still_missing()) for one in self._of_split() if one.steps >= LASTING)

    @property
    def untold_numbers(self) -> bool:
        """Whether gradients were nan or infinite in the last looks, of parameters some of which are split over ranks.

        Where that began is not known: no step of such a model is run again.
        """
        if self not in _open:
            return self._broken
        return any(NOT_FINITE in one.suspicions and one.lasted >= LASTING for one in self._of_split())

    def _of_split(self) -> list[Looks]:
        known = [one.looks for one in _hearing.suspects.values() if self.takes(one.looks.optimizer)]
        return [one for one in known if _is_split(one.optimizer)]

    def keep(self, explanation: Explanation, error: str = "") -> bool:
        """Take note of what was found; whether this watch did not know it.

        Args:
            explanation: of a silent fault or of an error.
            error: the error, ``""`` if there is none.
        """
        report = explanation.report
        if report is None or report.healthy:
            return False
        found = set(map(_key, report.findings))
        is_new = not found <= self._told
        self._told |= found
        if error:
            self._caught = error
            self._found = [one for one in self._found if one[0] is not explanation]
        if is_new or error:
            self._found.append((explanation, self.steps if error else -1))
        return is_new

    def __repr__(self) -> str:
        state = "open" if self in _open else "closed"
        return f"<gradkit.Watch: {state}, steps: {self.steps}, reports: {len(self.reports)}>"


def _is_in(named: Any, optimizer: Optimizer | None) -> bool:
    """Whether an optimizer is the one that was named, or what that wraps."""
    while named is not None and named is not optimizer:
        inner = introspection.ask(named, "optimizer")
        named = inner if inner is not named else None
    return named is not None


def _is_split(optimizer: Optimizer | None) -> bool:
    return optimizer is not None and any(hasattr(one, "to_local") for one in held_by(optimizer))


def _key(finding: Finding) -> tuple[object, ...]:
    at = finding.location
    return (finding.cause, finding.parameters) if at is None else (finding.cause, at.file, at.line)


class _Listener:
    """Hands on what is heard to the watches that are open."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Explanation] = {}

    def raised(self, error: Exception) -> None:
        key = _place(error)
        known = self._known.get(key)
        if known is None and len(self._known) >= _MOST_ERRORS:
            return
        safely(lambda: _explain(error, while_raised=True) if known is None else _note(error, known))
        found = getattr(error, _EXPLAINED, None)
        if found is not None:
            self._known[key] = found

    def due(self, suspect: Suspect, optimizer: Optimizer, frame: FrameType, after_step: bool) -> None:
        mine = [one for one in _open if one.takes(optimizer)]
        model = next((one.model for one in reversed(mine) if one.model is not None), None)
        if mine:
            safely(lambda: suspect.look(optimizer, frame, after_step, model))
            safely(lambda: _tell_all(suspect.ripe(), optimizer, suspect.looks.steps))

    def waiting(self, frame: FrameType) -> None:
        safely(lambda: _hearing.wait(frame))

    def forget(self) -> None:
        """Explain every error as if it had not been heard."""
        self._known.clear()


def _explain(error: Exception, *, while_raised: bool) -> None:
    """Explain an error, unless that was done, and let it carry what was found."""
    before = getattr(error, _EXPLAINED, None)
    if before is not None and before.report is not None:
        return
    from gradkit.live import explain

    model = next((one.model for one in reversed(_open) if one.model is not None), None)
    optimizer = next((one.optimizer for one in reversed(_open) if one.optimizer is not None), None)
    explanation = explain.of_error(error, model=model, optimizer=optimizer, while_raised=while_raised)
    if explanation is not None:
        _note(error, explanation)


def _note(error: Exception, explanation: Explanation) -> None:
    setattr(error, _EXPLAINED, explanation)
    if explanation.report is None:
        return
    error.gradkit_report = explanation.report  # type: ignore[attr-defined]
    if any(one.notes for one in _open):  # Python 3.10 prints none; others read them
        error.__notes__ = [*getattr(error, "__notes__", []), explanation.headline()]  # type: ignore[attr-defined]
    for one in _open:
        one.keep(explanation, attempts.words(error))


def _place(error: Exception) -> tuple[object, ...]:
    """What tells an error from others: its kind, its words without numbers, and the line that it came from."""
    trace, lines = error.__traceback__, list[tuple[str, int]]()
    while trace is not None:
        lines.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frames.is_torch_file(frame.f_code.co_filename):
        frame = frame.f_back
    lines = [one for one in lines if not frames.is_torch_file(one[0])]
    lines += [(frame.f_code.co_filename, frame.f_lineno)] if frame is not None else []
    return (type(error), re.sub(r"\d+", "", introspection.text(error)), *lines)


def _tell_end(suspect: Suspect, moved: frozenset[int]) -> None:
    _tell_all(suspect.ended(moved), suspect.looks.optimizer, suspect.looks.steps)


def _tell_all(explanations: list[Explanation], optimizer: Optimizer | None, steps: int) -> None:
    """Tell every watch that looks at an optimizer; the error stream only where nobody wants to be told otherwise."""
    for explanation in explanations:
        new = [one for one in _open if one.takes(optimizer) and one.keep(explanation)]
        own = [one.tell for one in new if one.tell is not None]
        for tell in own or ([lambda told: _print(told, steps)] if new else []):
            tell(explanation)


def _print(explanation: Explanation, steps: int) -> None:
    if beside_others.found(explanation):
        return
    head = words("watch.silent", n=steps)
    shell = frames.notebook_shell()
    if shell is not None and explanation.report is not None:
        pages = explanation.report._repr_mimebundle_()
        shell.display_pub.publish({**pages, "text/plain": f"{head}\n{pages['text/plain']}"})
    else:
        console.tell(f"{head}\n{explanation.headline()}")


def _close_all() -> None:
    for one in reversed(list(_open)):
        one.close()
    beside_others.end()


def _forget_all() -> None:
    """A copy of the process is silent: it has been told of, and tells, nothing."""
    _open.clear()
    _hearing.close()
    beside_others.in_a_copy()


_open: list[Watch] = []
_listener = _Listener()
_hearing = Hearing(_listener)
atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
