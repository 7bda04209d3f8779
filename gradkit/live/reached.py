"""Whether a loss reaches fewer parameters than those of the steps before: told before its backward begins.

With ``fully_shard`` a backward makes a collective for each part that took part. Where one rank's loss has lost a part,
gloo ends a process in C++ within that backward, when it is too late to ask. To count the ends of a graph takes a
fraction of a millisecond, and looks at no number.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gradkit.live.rank_parts import gathered
from gradkit.tracing.backward import leaves_of

_ENDS = "AccumulateGrad"
_ALIKE = 2  # steps in a row, before a third that reaches less is told from them


class Reached:
    """What the losses of one rank reach, step by step.

    Example:
        >>> layer, reached = nn.Linear(2, 1), Reached()
        >>> for x in (layer.weight.sum() + layer.bias, layer.weight.sum() + layer.bias, layer.weight.sum()):
        ...     print(reached.fewer(x.sum()), end=" ")
        ...     reached.stepped()
        False False True
    """

    def __init__(self) -> None:
        self._now: list[int] = []
        self._before: list[list[int]] = []

    def fewer(self, loss: torch.Tensor) -> bool:
        """A backward is about to begin from a loss: does it reach fewer leaves than that of the last steps did?"""
        self._now.append(ends_of(loss))
        at, before = len(self._now) - 1, self._before
        alike = len(before) == _ALIKE and before[0] == before[1]
        return alike and at < len(before[0]) and self._now[at] < before[0][at]

    def stepped(self) -> None:
        """An optimizer is about to step."""
        self._before, self._now = [*self._before, self._now][-_ALIKE:], []


def ends_of(loss: torch.Tensor) -> int:
    """How many leaves the graph behind a loss ends in.

    Example:
        >>> ends_of(nn.Linear(2, 1)(torch.ones(1, 2)).sum()), ends_of(torch.ones(1).sum())
        (2, 0)
    """
    first = loss.grad_fn
    seen = {first}
    todo = [first] if first is not None else []
    count = 0
    while todo:
        node = todo.pop()
        count += type(node).__name__ == _ENDS
        for inner, _ in node.next_functions:
            if inner is not None and inner not in seen:
                seen.add(inner)
                todo.append(inner)
    return count


def left_out(loss: torch.Tensor, sharded: Iterable[nn.Module]) -> list[nn.Parameter]:
    """The shards on this rank of what ``fully_shard`` has gathered for a forward, and the loss does not reach."""
    reached = {id(leaf) for leaf in leaves_of(loss)}
    return [shard for whole, shard, _ in gathered(sharded) if id(whole) not in reached and shard.requires_grad]
