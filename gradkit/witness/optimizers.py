"""What is heard of optimizers: which parameters each was given, and where; and how many steps each has made."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradkit.source.faults import on_behalf
from gradkit.witness import deeds, histories
from gradkit.witness.deeds import BUILT, COPIED, HELD, SCHEDULED
from gradkit.witness.replaced import HeardMethod

_SUBCLASSES = 8
_built: weakref.WeakSet[Any] = weakref.WeakSet()
_was_one_built = False


def any_built() -> bool:
    """Whether an optimizer that was seen to be built is alive."""
    return _was_one_built and len(_built) > 0


def heard(hears: Callable[[], bool]) -> list[tuple[Any, str, Any]]:
    """What is to be replaced: class, attribute, and what stands for it.

    Args:
        hears: whether somebody listens, in this thread.
    """
    add, restore = vars(Optimizer)["add_param_group"], vars(Optimizer)["__setstate__"]

    @on_behalf
    def add_param_group(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = add(optimizer, *args, **kwargs)
        if hears():
            _tell(optimizer, BUILT, optimizer.param_groups[-1:], sys._getframe(1))
        return result

    @on_behalf
    def setstate(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = restore(optimizer, *args, **kwargs)
        if hears() and not _is_loading(sys._getframe(1)):
            _tell(optimizer, COPIED, optimizer.param_groups, sys._getframe(1))
        return result

    schedule = vars(LRScheduler)["__init__"]

    @on_behalf
    def scheduled(scheduler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        schedule(scheduler, optimizer, *args, **kwargs)
        if hears():
            _tell_scheduled(optimizer, type(scheduler).__name__, sys._getframe(1))

    return [
        (LRScheduler, "__init__", HeardMethod(schedule, scheduled)),
        (Optimizer, "add_param_group", HeardMethod(add, add_param_group)),
        (Optimizer, "__setstate__", HeardMethod(restore, setstate)),
    ]


def _tell_scheduled(optimizer: Any, scheduler: str, frame: FrameType) -> None:
    try:
        histories.remember(optimizer, deeds.noted(SCHEDULED, frame, {"scheduler": scheduler}))
    except Exception:  # noqa: BLE001  what only listens never stops the program
        return


def _is_loading(frame: FrameType) -> bool:
    """Whether an optimizer that stands already passes by here, in ``load_state_dict``; subclasses lie between."""
    outside: FrameType | None = frame
    for _ in range(_SUBCLASSES):
        if outside is None or outside.f_code is Optimizer.load_state_dict.__code__:
            return outside is not None
        outside = outside.f_back
    return False


def _tell(optimizer: Any, kind: str, groups: list[dict[str, Any]], frame: FrameType) -> None:
    global _was_one_built
    try:
        given = [tensor for group in groups for tensor in group["params"]]
        facts = {"optimizer": type(optimizer).__name__, "parameters": str(len(given))}
        deed = deeds.noted(kind, frame, facts)
        histories.remember(optimizer, deed)
        _built.add(optimizer)
        _was_one_built = True
        holds = deeds.noted_again(deed, HELD)
        for tensor in given:
            histories.remember(tensor, holds)
    except Exception:  # noqa: BLE001  what only listens never stops the program
        return


class Steps:
    """Counts the steps of each optimizer, until one of them has made enough.

    Args:
        enough: how many steps one optimizer has to make.
        hears: whether somebody listens: a step in a run of gradkit's own counts for nothing.
        then: called when it has.
    """

    def __init__(self, enough: int, hears: Callable[[], bool], then: Callable[[], None]) -> None:
        self._enough, self._hears, self._then = enough, hears, then
        self._made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._handle = torch_optimizer.register_optimizer_step_post_hook(self._stepped)
        self.over = False

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.over:
            self.leave(inside=True)
            return
        if not self._hears():
            return
        self._made[optimizer] = made = self._made.get(optimizer, 0) + 1
        if made >= self._enough:
            self._then()

    def leave(self, *, inside: bool = False) -> None:
        """Take the hook away.

        Args:
            inside: torch is going through the hooks. It can be taken away then only if it is the last of them; else
                it stays, counts nothing, and goes when that can be.
        """
        self.over = True
        hooks: Any = torch_optimizer._global_optimizer_post_hooks  # noqa: SLF001  there is no other way to see them
        if not inside or list(hooks)[-1:] == [self._handle.id]:
            self._handle.remove()
