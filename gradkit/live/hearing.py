"""What is heard of a program that trains: errors that backward raises, and the steps of its optimizers.

One for the whole process, however many watches are open. Between the looks a step costs a counter, and a backward one
``try``: no function mode, no hook of a module, nothing that waits for a device. Whether a backward runs inside of
another is asked of the stack, and only where there is something to tell.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradkit.core import attempts, console, turns
from gradkit.core.i18n import words
from gradkit.diagnosis.facts import loss_terms
from gradkit.live import beside_terms, bystanders
from gradkit.live.looks import DEAD_TERM, LASTING, UNADDED, WEIGHTLESS, next_after
from gradkit.live.suspects import Suspect
from gradkit.source import faults
from gradkit.witness.listening import Listening, ready

_PASSES = ("backward", "grad")
_MOST_OPTIMIZERS = 10
_BESIDE = (1, LASTING, 10)  # steps of one optimizer at which others are looked at that do not step
_SET_UP = 2  # steps, after which a program is taken to be set up
_MOST_SET_UPS = 3  # times that it is taken to be set up once more
_is_compiling = torch.compiler.is_compiling


class Listener(Protocol):
    """Who is told."""

    def raised(self, error: Exception) -> None:
        """The outermost backward of a thread is about to raise; the frames that called it still run."""

    def due(self, suspect: Suspect, optimizer: Optimizer, frame: FrameType, after_step: bool) -> None:
        """An optimizer is to be looked at now."""

    def waiting(self, frame: FrameType) -> None:
        """Those that have not stepped are to be looked at now: ``Hearing.wait`` does that."""


class Hearing:
    """Listens to ``torch.autograd`` and to all optimizers from ``open`` to ``close``.

    Args:
        listener: who is told; whatever it raises comes out in the program.

    Attributes:
        suspects: the optimizers that were heard, by id.
        gone: those that have ended, of which something may be left to be told.
        before_step: also told of each step of an optimizer, and of the frame that calls for it; None if nobody is.
        after_closure: the same of a step whose gradients come in the step itself, once it is over.
        before_backward: told of each backward: of the loss, one number, and of the frame that calls for it; or None.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.suspects: dict[int, Suspect] = {}
        self.gone: list[Suspect] = []
        self.before_step: Callable[[Optimizer, FrameType], None] | None = None
        self.after_closure: Callable[[Optimizer, FrameType], None] | None = None
        self.before_backward: Callable[[torch.Tensor, FrameType], None] | None = None
        self._met = self._steps = self._passes = 0
        self._waits, self._peeks, self._idle = True, True, frozenset[str]()
        self._replaced: dict[str, tuple[Any, Any]] = {}
        self._hooks: list[Any] = []
        self._afterwards: dict[int, Any] = {}  # hooks of optimizers that are looked at once their step is over
        self._inside = {id(self._quietly.__code__)}
        self._witness = Listening(until_steps=_SET_UP, then_late=True)
        self._ready = contextlib.ExitStack()
        self._renewed = 0

    @property
    def steps(self) -> int:
        """How many steps all optimizers took together."""
        return self._steps + sum(one.looks.steps for one in self.suspects.values())

    @property
    def due(self) -> int | None:
        """How many steps were made, where the next is going to be looked at; else None."""
        return self.steps if self._peeks else None

    @property
    def moved(self) -> frozenset[int]:
        """Ids of what optimizers hold whose learning rate has not been 0 in every step."""
        return frozenset(n for one in self.suspects.values() if one.looks.moves for n in one.looks.held)

    def open(self) -> None:
        """Begin; nothing happens if that was done."""
        if self._hooks:
            return
        for name in _PASSES:
            original = getattr(torch.autograd, name)
            self._replaced[name] = original, self._heard(original)
            setattr(torch.autograd, name, self._replaced[name][1])
        self._hooks = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._over),
            register_module_parameter_registration_hook(self._joins),
            register_module_module_registration_hook(self._joins),
        ]
        self._ready.enter_context(ready())
        self._renewed = 0
        self._witness.open()

    def close(self) -> None:
        """Put everything back. What somebody has wrapped meanwhile stays, and only hands on."""
        for hook in (*self._hooks, *self._afterwards.values()):
            hook.remove()
        for name, (original, ours) in self._replaced.items():
            if getattr(torch.autograd, name) is ours:
                setattr(torch.autograd, name, original)
        self._hooks, self._replaced, self._afterwards = [], {}, {}
        self._witness.close()
        self._ready.close()
        self.forget()

    def forget(self) -> None:
        """Look at every optimizer as if it had not been met."""
        self._steps, self._met, self.suspects, self.gone = self.steps, 0, {}, []
        self._passes, self._waits, self._peeks, self._idle = 0, True, True, frozenset()

    def _joins(self, _module: nn.Module, _name: str, joining: Any) -> None:
        """Something joins a model in the midst of training: the program is set up once more, and looked at anew."""
        if joining is None or self._witness.is_open or self._renewed == _MOST_SET_UPS or self._is_ours():
            return
        self._renewed += 1
        self._witness.open()
        for suspect in self.suspects.values():
            suspect.renew()

    def _heard(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @faults.on_behalf
        def backward(*args: Any, **kwargs: Any) -> Any:
            if _is_compiling():
                return original(*args, **kwargs)
            if self._peeks or self.before_backward is not None:
                self._peek(args[0] if args else kwargs.get("tensors"), sys._getframe(1))
            try:
                result = original(*args, **kwargs)
            except Exception as error:
                if not self._hooks or self._is_inside(sys._getframe(1)):
                    raise
                caught = error
            else:
                if self._waits:
                    self._passed(sys._getframe(1))
                return result
            __tracebackhide__ = True
            context = caught.__context__
            try:  # after the handler: what a rerun raises would be taken to come from this error
                self._tell(caught)
                raise caught.with_traceback(_inner(caught))
            finally:
                caught.__context__ = context
                del caught, context

        self._inside.add(id(backward.__code__))
        return functools.wraps(original)(backward)

    def _is_inside(self, frame: FrameType | None) -> bool:
        """Whether a frame was called by a backward of this thread, or by what is told here."""
        while frame is not None and id(frame.f_code) not in self._inside:
            frame = frame.f_back
        return frame is not None

    def _passed(self, frame: FrameType) -> None:
        """A backward came to its end, and no optimizer has stepped so far."""
        self._passes += 1
        due = self._passes == 1 or self._passes == next_after(self._passes - 1) > 2
        if due and self._hooks and not self._is_ours() and not self._is_inside(frame):
            self._quietly(lambda: self._listener.waiting(frame))

    def wait(self, frame: FrameType) -> None:
        """Look at those that the frames can name and that have not stepped, and share nothing with one that has."""
        trained = {number for one in self.suspects.values() if one.looks.steps for number in one.looks.held}
        for optimizer, names in bystanders.optimizers_in(frame).values():
            suspect = self.suspects.get(id(optimizer))
            if suspect is None or suspect.looks.optimizer is not optimizer:
                suspect = self._meet(optimizer)
            if not suspect.looks.steps and not suspect.looks.held & trained:
                suspect.wait(optimizer, names, frame, self._waits)

    def _peek(self, losses: Any, frame: FrameType) -> None:
        """Look at what a loss is the sum of, before its graph is freed; without a look at any number."""
        loss = losses if isinstance(losses, torch.Tensor) else None
        if not self._hooks or loss is None or loss.numel() != 1 or loss.grad_fn is None:
            return
        if not self._is_ours() and not self._is_inside(frame):
            if self.before_backward is not None:
                self.before_backward(loss, frame)
            dead, weightless = loss_terms.idle_terms(loss.grad_fn) if self._peeks else (False, False)
            beside = self._peeks and beside_terms.are_any(loss, frame)
            seen = (DEAD_TERM, dead), (WEIGHTLESS, weightless), (UNADDED, beside)
            self._idle |= {name for name, found in seen if found}

    def _peeked(self, suspect: Suspect) -> None:
        """Hand on what was seen of the losses before a step; and is the next loss to be looked at?"""
        if self._peeks:
            suspect.heard(self._idle)
            self._idle = frozenset()
        self._peeks = any(one.peeks for one in self.suspects.values())

    def _tell(self, error: Exception) -> None:
        if self._is_ours() or threading.get_ident() not in threading._active:  # type: ignore[attr-defined]  # noqa: SLF001
            return  # the second: a thread of autograd's own, whose backward waits for what stands here
        self._quietly(lambda: self._listener.raised(error))

    def _quietly(self, task: Callable[[], object]) -> None:
        task()

    def _is_ours(self) -> bool:
        """Whether it is gradkit itself that runs a step, in this thread or in another."""
        return not turns.is_free()

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _is_compiling() or self._is_ours():
            return
        suspect = self.suspects.get(id(optimizer)) or self._meet(optimizer)
        looks = suspect.looks
        looks.steps += 1
        if self.before_step is not None:
            self.before_step(optimizer, sys._getframe(1))
        if self._peeks or looks.steps + 1 == looks.due:
            self._peeked(suspect)
        if looks.steps == looks.due:
            self._due(suspect, optimizer, _closure_of(args, kwargs), sys._getframe(1))

    def _due(self, suspect: Suspect, optimizer: Optimizer, closure: object, frame: FrameType) -> None:
        self._waits = False
        if suspect.looks.optimizer is not optimizer:  # another one's id, which is used again
            suspect = self._meet(optimizer)
            suspect.looks.steps = 1
        if not closure:
            self._look(suspect, optimizer, frame, False)
        elif not self._is_last(optimizer):  # the gradients come in the step itself
            self._afterwards[id(optimizer)] = optimizer.register_step_post_hook(self._after)

    def _over(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.after_closure is None or _closure_of(args, kwargs) is None or _is_compiling() or self._is_ours():
            return
        self.after_closure(optimizer, sys._getframe(1))

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_last(optimizer):  # torch is going through the hooks: another can't be taken away
            self._afterwards.pop(id(optimizer)).remove()
        suspect = self.suspects.get(id(optimizer))
        if self._is_ours() or suspect is None or suspect.looks.steps != suspect.looks.due:
            return
        if self._idle:
            self._peeked(suspect)
        self._look(suspect, optimizer, sys._getframe(1), True)

    def _is_last(self, optimizer: Optimizer) -> bool:
        """Whether the last hook of an optimizer is ours. An id may be used again, a hook's number is not."""
        mine = self._afterwards.get(id(optimizer))
        return mine is not None and next(reversed(optimizer._optimizer_step_post_hooks), None) == mine.id  # noqa: SLF001

    def _look(self, suspect: Suspect, optimizer: Optimizer, frame: FrameType, after_step: bool) -> None:
        suspect.looks.due = next_after(suspect.looks.steps)
        if not self._is_inside(frame):  # else it steps inside of a backward, which cannot be run again
            self._quietly(lambda: self._listener.due(suspect, optimizer, frame, after_step))
            if suspect.looks.steps in _BESIDE:
                self._quietly(lambda: self._listener.waiting(frame))

    def _meet(self, optimizer: Optimizer) -> Suspect:
        """Take note of a new optimizer. Where they come by the hundred, few of them are looked at."""
        old = self.suspects.get(id(optimizer))
        if old is not None:  # its id is used again
            self._steps += old.looks.steps
            self.gone += [old] if old.is_explained else []
        self._met += 1
        suspect = self.suspects[id(optimizer)] = Suspect(optimizer)
        if self._met > _MOST_OPTIMIZERS and self._met != next_after(self._met - 1):
            suspect.looks.due = 0
        return suspect


def _closure_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    """What a step was given to compute the loss by; None as a rule."""
    return (args[1:] or (kwargs.get("closure"),))[0]


def safely(task: Callable[[], object]) -> None:
    """Do something of gradkit's own: what it raises is told in one line, and the program goes on. Ctrl-C, and what
    ends the program, comes through."""
    try:
        task()
    except Exception as error:
        if attempts.LOUD:
            raise
        console.tell(words("watch.fault", error=attempts.words(error)))


def _inner(error: Exception) -> Any:
    """The traceback without the frame that has caught the error: raising it again enters that once more."""
    return error.__traceback__.tb_next if error.__traceback__ is not None else None
