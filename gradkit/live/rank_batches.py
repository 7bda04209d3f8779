"""What a rank's batch holds: names and shapes of the data in its frames.

Where a library trains (``transformers.Trainer``, Lightning), the batch lies in the library's frames, not in the user's.
Those count which have led to an optimizer's step; other functions of a library are called with anything.
Source: https://docs.python.org/3/reference/datamodel.html#frame-objects
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from gradkit.core import introspection
from gradkit.live.surroundings import locals_of
from gradkit.source import frames

_MOST_TENSORS = 16
_MOST_LOOPS = 64


@dataclass(frozen=True)
class Batch:
    """What is held.

    Attributes:
        held: names and shapes of what is data, as ``("batch['image']", "4 x 6")``.
        lies_in: the function of a library that holds it; ``""`` for the user's.
        computed: names of what else is held and was computed with a history.
    """

    held: tuple[tuple[str, str], ...] = ()
    lies_in: str = ""
    computed: tuple[str, ...] = ()


class TrainingLoops:
    """The functions of libraries that have led to an optimizer's step.

    Example:
        >>> TrainingLoops().frame_of(None) is None
        True
    """

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}  # a code object is slow to hash, and kept so that its number is its own

    def stepped(self, frame: FrameType | None) -> None:
        """An optimizer is about to step.

        Args:
            frame: that calls for it.
        """
        while frame is not None and len(self._codes) < _MOST_LOOPS:
            if _is_a_librarys(frame):
                self._codes[id(frame.f_code)] = frame.f_code
            frame = frame.f_back

    def forget(self) -> None:
        """The program is over."""
        self._codes.clear()

    def frame_of(self, frame: FrameType | None) -> FrameType | None:
        """The frame of a library's that holds the batch: of those that train, the outermost that holds data.

        Args:
            frame: the innermost of all frames.

        Returns:
            None where the user's own frames hold it.
        """
        found: FrameType | None = None
        while frame is not None:
            if id(frame.f_code) in self._codes and next(_data([frame]), None) is not None:
                found = frame
            frame = frame.f_back
        return found


def batch_in(frame: FrameType | None, users: Sequence[FrameType]) -> Batch:
    """What is held by a frame of a library's, or by the user's where there is none.

    Args:
        frame: of ``TrainingLoops.frame_of``.
        users: the innermost of the user's.

    Example:
        >>> batch_in(None, [])
        Batch(held=(), lies_in='', computed=())
    """
    seen = users if frame is None else [frame]
    held = dict[str, str]()
    for name, shape in _data(seen):
        held.setdefault(name, shape)
    where = "" if frame is None else f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"
    computed = dict.fromkeys(name for name, value in _tensors(seen) if value.grad_fn is not None)
    return Batch(tuple(held.items())[:_MOST_TENSORS], where, tuple(computed)[:_MOST_TENSORS])


def _is_a_librarys(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not frames.is_user_file(file) and not frames.is_torch_file(file)


def _data(seen: Iterable[FrameType]) -> Iterator[tuple[str, str]]:
    """Names and shapes of what is no parameter, and no result of the model's."""
    for name, value in _tensors(seen):
        if value.grad_fn is None and not introspection.is_a(value, nn.Parameter) and value.dim() > 0:
            yield name, " x ".join(map(str, value.shape))


def _tensors(seen: Iterable[FrameType]) -> Iterator[tuple[str, Any]]:
    for frame in seen:
        for name, value in locals_of(frame).items():
            yield from ((label, one) for label, one in _within(name, value) if introspection.is_a(one, torch.Tensor))


def _within(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if introspection.is_a(value, torch.Tensor):
        yield name, value
    elif introspection.is_mapping(value):
        yield from ((f"{name}[{key!r}]", one) for key, one in introspection.mapping_items(value) if type(key) is str)
    elif type(value) in (list, tuple) and len(value) <= _MOST_TENSORS:
        yield from ((f"{name}[{at}]", one) for at, one in enumerate(value))


loops = TrainingLoops()
"""Those of this process, which is one of several ranks; nothing is noted where it trains alone."""
