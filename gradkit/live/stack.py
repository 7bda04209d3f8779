"""The frames that lead to an error, or that are running now: outermost first, each with the line that it is at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType


@dataclass(frozen=True, eq=False)
class Point:
    """A frame, and how far it had got. It keeps all of the frame's variables alive: hold it no longer than needed.

    Attributes:
        frame: the frame itself.
        lasti: the offset of the instruction that was running, in bytes.
        line: its line, counted from 1.
    """

    frame: FrameType
    lasti: int
    line: int

    @property
    def code(self) -> CodeType:
        """The code that the frame runs."""
        return self.frame.f_code


def of_error(error: BaseException, inner: BaseException | None = None) -> tuple[Point, ...]:
    """The frames from the outermost that is known down to where an exception was raised.

    An exception that was raised from another knows only the way out from there; the two ways are joined in the frame
    that they share. Frames further out follow as far as they still run.

    Args:
        error: the exception as it came out.
        inner: the one that it was raised from, or while handling, whose way is wanted; None for that which ``error``
            names as its cause, and ``error`` itself if it names none.

    Example:
        >>> def fail(): raise ValueError
        >>> try: fail()
        ... except ValueError as error: [point.code.co_name for point in of_error(error)][-2:]
        ['<module>', 'fail']
    """
    chain = _raised_from(error)
    wanted = inner if inner is not None else _cause(error)
    way = _traceback(wanted)
    for one in chain:  # the outermost first: it knows the longest way out
        outer = _traceback(one) if one is not wanted else []
        meet = next((at for at, point in enumerate(outer) if way and point.frame is way[0].frame), 0)
        if meet:
            way = [*outer[:meet], *way]
            break
    if way and is_running(way[0].frame):
        way = [*running(way[0].frame.f_back), *way]
    return tuple(way)


def running(frame: FrameType | None) -> tuple[Point, ...]:
    """The frames that wait for a frame that is running, and itself.

    Example:
        >>> def here(): return running(sys._getframe())
        >>> [point.code.co_name for point in here()][-2:]
        ['<module>', 'here']
    """
    found = []
    while frame is not None:
        found.append(Point(frame, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(found))


def is_running(frame: FrameType) -> bool:
    """Whether a frame has not ended yet: some thread is in it, or in what it called."""
    return frame in _alive()


def _traceback(error: BaseException) -> list[Point]:
    found, trace = list[Point](), error.__traceback__
    while trace is not None:
        if found and found[-1].frame is trace.tb_frame:  # caught and raised again in one frame: the first time counts
            found.pop()
        found.append(Point(trace.tb_frame, trace.tb_lasti, trace.tb_lineno))
        trace = trace.tb_next
    return found


def _raised_from(error: BaseException) -> list[BaseException]:
    """An exception and all that it was raised from, or while handling."""
    todo, found = [error], list[BaseException]()
    while todo:
        one = todo.pop(0)
        if not any(one is known for known in found):
            found.append(one)
            todo += [other for other in (one.__cause__, one.__context__) if other is not None]
    return found


def _cause(error: BaseException) -> BaseException:
    """The innermost of the causes that an exception names."""
    seen = [error]
    while (cause := seen[-1].__cause__) is not None and not any(cause is one for one in seen):
        seen.append(cause)
    return next(one for one in reversed(seen) if one.__traceback__ is not None or one is error)


def _alive() -> set[FrameType]:
    """All frames that run now. The outer frame of one that has ended may have gone on to another line."""
    return {
        frame
        for top in sys._current_frames().values()  # noqa: SLF001  there is no other way
        for frame in _outwards(top)
    }


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
