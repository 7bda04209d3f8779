"""The calls of a run, as plain tuples while it lasts: one is made for every call, and nothing cheaper can be."""

from __future__ import annotations

import bisect
from collections.abc import Container, Sequence
from typing import Any

from gradkit.core import operations
from gradkit.core.trace import Call

# Call's fields
INDEX, NAME, INPUTS, OUTPUTS, GRAD_ON, REGIONS, MODULE, CHAIN, SEQUENCE, WRITES_STATE, THROUGH = range(11)


class CallLog:
    """What was called so far, and when autograd counted which of its nodes.

    Attributes:
        rows: a tuple for each call, in the order of the fields of ``Call``; its place is its index.
        begins: autograd's count as the calls of the main thread began, ascending.
        numbers: the indices of those.

    Example:
        >>> log = CallLog()
        >>> for index, begin in enumerate((3, 5)):
        ...     log.rows.append((index, "mul", (0,), (1,), True, (), -1, (), begin, False))
        ...     log.begins.append(begin); log.numbers.append(index)
        >>> log.index_at(4), log.index_at(9), log.index_at(2)
        (0, 1, -1)
    """

    __slots__ = ("begins", "numbers", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.begins: list[int] = []
        self.numbers: list[int] = []

    def index_at(self, sequence: int) -> int:
        """The index of the call during which autograd's node with this sequence number was made, -1 if before all."""
        before = bisect.bisect_right(self.begins, sequence)
        return self.numbers[before - 1] if before else -1

    def calls_at(self, sequence: int, functions: Container[int]) -> set[int]:
        """As :meth:`index_at`; of a custom Function's node, which is made before its forward runs, its calls too.

        Args:
            functions: the regions that are forwards of custom Functions.
        """
        lo, hi = (cut(self.begins, sequence + 1) for cut in (bisect.bisect_left, bisect.bisect_right))
        inside = {one for one in self.numbers[lo:hi] if any(at in functions for at in self.rows[one][REGIONS])}
        return inside | {self.index_at(sequence)}

    def outputs_at(self, sequence: int) -> tuple[int, ...]:
        """Numbers of the values that came out of that call."""
        index = self.index_at(sequence)
        outputs: tuple[int, ...] = self.rows[index][OUTPUTS] if index >= 0 else ()
        return outputs

    def used(self) -> set[int]:
        """Numbers of the values that any call was handed."""
        return {number for row in self.rows for number in row[INPUTS]}

    def original(self, number: int, makers: Sequence[int]) -> int:
        """The value that this one is a copy of; itself if it is none."""
        while (maker := makers[number]) >= 0 and self.rows[maker][NAME] in operations.COPIES:
            number = self.rows[maker][INPUTS][0]
        return number

    def span(self, index: int) -> range:
        """Autograd's counts during a call; empty for the last call of all, and for none."""
        begun = [row[SEQUENCE] for row in self.rows[index : index + 2]] if index >= 0 else []
        return range(*begun) if len(begun) == 2 else range(0)

    def calls(self) -> tuple[Call, ...]:
        """All of them, as records."""
        return tuple(Call(*row) for row in self.rows)
