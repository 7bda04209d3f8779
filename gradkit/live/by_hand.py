"""Tensors that no optimizer holds and that are trained all the same: the program writes them by itself.

``w.data -= rate * w.grad`` is not counted by torch as ``w -= ...`` is, so that the numbers themselves are compared from
one look to the next. What has moved is somebody's business.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

_MOST = 64
_Mark = tuple[int, float, float]


class Unmoved:
    """What was seen of some tensors, to tell which of them have moved since.

    Example:
        >>> kept, moved = torch.ones(2), torch.ones(2)
        >>> marks = Unmoved()
        >>> marks.look([kept, moved])
        frozenset()
        >>> moved.data[0] -= 0.5
        >>> marks.look([kept, moved]) == {id(moved)}
        True
    """

    def __init__(self) -> None:
        self._marks: dict[int, tuple[weakref.ref[torch.Tensor], _Mark]] = {}

    def look(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Look at tensors once more, and at the others that were looked at before, as long as they live.

        Args:
            tensors: those in question now; a few are looked at, and each look waits for their device.

        Returns:
            The ids of those whose numbers, or count of writes, are other than at an earlier look.
        """
        known = {id(one): one for one in tensors}
        known |= {id(one): one for reference, _ in self._marks.values() if (one := reference()) is not None}
        moved = set[int]()
        for number, one in list(known.items())[:_MOST]:
            before, now = self._marks.get(number), _mark(one)
            if before is None or before[0]() is not one:
                self._marks[number] = (weakref.ref(one), now)
            elif before[1] != now:
                moved.add(number)
        return frozenset(moved)


def _mark(tensor: torch.Tensor) -> _Mark:
    """Its count of writes, its sum and its norm; nan is no number to compare, and taken for one."""
    if tensor.is_meta or tensor.layout is not torch.strided or not tensor.numel():
        return tensor._version, 0.0, 0.0  # noqa: SLF001  there is no other name for it
    with torch.no_grad():
        plain = tensor.detach().double() if not tensor.is_mps else tensor.detach().float()
        total, norm = plain.sum(), plain.norm()
        return tensor._version, float(total.nan_to_num()), float(norm.nan_to_num())  # noqa: SLF001
