"""Plain tensors that require grad and that a module holds in an attribute, a list or a dictionary, as if a weight.

``self.u = torch.randn(3).requires_grad_()`` is no parameter: ``parameters()`` does not hand it out, and no optimizer
gets it. Not each such tensor is to learn. The points that a network is evaluated at, a state that a recurrence begins
with, a probe whose ``.grad`` is read: they require grad, and nobody steps them. What tells a weight is how it is used:
many samples share it, or something else is multiplied with it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gradkit.core import introspection
from gradkit.core.operations import JOINS
from gradkit.core.trace import Call, Trace
from gradkit.state import reachable, registered

_MOST = 64
_DEEPEST = 2
_NO_HELPERS = (nn.Module, torch.Tensor, type)
_PRODUCTS = frozenset("linear matmul __matmul__ mm bmm addmm baddbmm conv1d conv2d conv3d embedding".split())


def held_plainly(model: nn.Module) -> Iterator[torch.Tensor]:
    """The plain leaves that require grad in the attributes of a model's modules, and in short lists, tables and helpers
    of the user's own classes there.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> layer.scale, layer.kept = torch.ones(1, requires_grad=True), [torch.ones(3)]
        >>> [one.shape for one in held_plainly(layer)]
        [torch.Size([1])]
    """
    for module in registered.each(model):
        yield from _in_attributes(module, _DEEPEST)


def _in_attributes(holder: Any, depth: int) -> Iterator[torch.Tensor]:
    for name, value in list(introspection.attributes(holder).items()):
        if not str(name).startswith("_"):
            yield from _leaves(value, depth)


def _leaves(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if is_plain_leaf(value):
        yield value
    elif depth and introspection.is_a(value, (list, tuple, dict)) and introspection.size(value) <= _MOST:
        for one in list(introspection.entries(value)):
            yield from _leaves(one, depth - 1)
    elif depth and not introspection.is_a(value, _NO_HELPERS) and reachable.is_users(type(value)):
        yield from _in_attributes(value, depth - 1)


def is_plain_leaf(thing: object) -> bool:
    """Whether something is a leaf that requires grad, and no ``nn.Parameter``.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> is_plain_leaf(x), is_plain_leaf(x * 2), is_plain_leaf(nn.Parameter(x))
        (True, False, False)
    """
    return type(thing) is torch.Tensor and thing.requires_grad and thing.is_leaf


def untrained(trace: Trace) -> list[int]:
    """The numbers of the leaves from before a step that are no Parameters and that it does not train by itself."""
    return [
        n for n, v in enumerate(trace.values)
        if v.leaf and v.maker < 0 and v.birth < 0 and not (v.parameter or v.stray or v.past) and n not in trace.trained
    ]  # fmt: skip


def is_weight(trace: Trace, number: int, owner: str) -> bool:
    """Whether a leaf meets other tensors as a weight does, and is nowhere an input: of a product, or of a module that
    stands below the one which holds it.

    Args:
        owner: the path of that module.
    """
    return _Use(trace, owner, {number}).is_of_a_weight()


@dataclass
class _Use:
    """How a value is used, also by way of what has been reshaped, joined or computed from it alone.

    Attributes:
        owner: the path of the module that holds it.
        own: the numbers of the value, and of all that stands for it.
    """

    trace: Trace
    owner: str
    own: set[int] = field(default_factory=set)

    def is_of_a_weight(self) -> bool:
        """Whether it meets other tensors as a weight does, and nowhere as an input does."""
        found = False
        for call in self.trace.calls:
            if not call.grad_on or self.own.isdisjoint(call.inputs):
                continue
            others = [n for n in call.inputs if n not in self.own and self._is_tensor(n)]
            if self._is_handed_down(call) or (others and call.name in _PRODUCTS and call.inputs[0] in self.own):
                return False
            if not others:
                self.own.update(call.outputs)
            elif self._is_shared(call) or self._comes_second(call):
                found = True
            else:
                self.own.update(call.outputs)
        return found

    def _is_handed_down(self, call: Call) -> bool:
        """Whether a call is made by a module below the owner, which can have it as an argument only."""
        path = self.trace.modules[call.module] if call.module >= 0 else ""
        return path != self.owner and (path.startswith(f"{self.owner}.") if self.owner else bool(path))

    def _is_tensor(self, number: int) -> bool:
        return not self.trace.values[number].python

    def _is_shared(self, call: Call) -> bool:
        """Whether it is spread over what it meets: each sample gets the same."""
        return call.name not in JOINS and self._largest(call.outputs) > self._largest(self.own & set(call.inputs))

    def _comes_second(self, call: Call) -> bool:
        first, shape = call.inputs[0], self._shapes(self.own & set(call.inputs))
        return call.name not in JOINS and first not in self.own and self.trace.values[first].shape not in shape

    def _largest(self, numbers: Collection[int]) -> int:
        return max((math.prod(self.trace.values[n].shape) for n in numbers), default=0)

    def _shapes(self, numbers: Iterable[int]) -> Sequence[tuple[int, ...]]:
        return [self.trace.values[n].shape for n in numbers]
