"""Which module's forward is running, and which lines of the user's lead there.

Entering a module remembers its frame. A call inside it then looks at the frames up to there only: what lies further out
cannot have moved meanwhile, and is looked up once for each module that runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from types import CodeType, FrameType

from torch import nn

from gradkit import frames


class Running:
    """The modules whose forward is running, innermost last.

    Args:
        modules: the model's modules by dotted path.
        stop: the code object at which the user's frames end.

    Attributes:
        paths: their dotted paths; a module's number is its place among them, -1 for any other module.
        inside: the numbers of the modules that are running, innermost last, after a -1.
        stop, waiting: what ``frames.chain`` is to be given.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], stop: CodeType) -> None:
        self.paths: list[str] = []
        self._numbers: dict[int, int] = {}
        for path, module in modules:
            self._numbers[id(module)] = len(self.paths)
            self.paths.append(path)
        self.stop = stop
        self.clear()

    def number(self, module: nn.Module) -> int:
        """The module's number."""
        return self._numbers.get(id(module), -1)

    def enter(self, number: int, frame: FrameType) -> None:
        """A module's forward begins; ``frame`` is going to call it."""
        self.inside.append(number)
        self.waiting.append(frames.Outside(frame))

    def leave(self) -> None:
        """The innermost module's forward has ended."""
        if self.waiting:
            self.inside.pop()
            self.waiting.pop()

    def clear(self) -> None:
        """None is running any more."""
        self.inside = [-1]
        self.waiting: list[frames.Outside] = []

    def anew(self) -> Running:
        """The same modules, for another thread: none is running there yet."""
        other = copy.copy(self)
        other.clear()
        return other
