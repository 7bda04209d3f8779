"""Which custom Functions let a gradient end: their backward was handed one, and hands on None, or nothing but zeros."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

import torch

from gradkit.state.preserve import Preserved
from gradkit.tracing import backward
from gradkit.tracing.autograd_graph import leaf_of, walk_graph
from gradkit.tracing.interventions import Intervention, Moment
from gradkit.tracing.tracer import Tracer


@dataclass(frozen=True)
class Dropped:
    """A node of a custom Function that was handed a gradient and handed none on.

    Attributes:
        name: the Function's name.
        code: of its ``backward``.
        position: which of the inputs of ``apply`` gets none, among those that are tensors.
        parameters: those behind that input.
        zeros: it gets a gradient of nothing but zeros.
        inputs: how many of the inputs of ``apply`` are tensors.
        untouched: those zeros are a tensor that nothing has written into since it was made.
    """

    name: str
    code: CodeType
    position: int
    parameters: tuple[str, ...]
    zeros: bool = False
    inputs: int = 1
    untouched: bool = False


class Dropping(Intervention):
    """Watches the backwards of a run: those of the step's own, and what ``of`` runs where there is none."""

    def __init__(self) -> None:
        self._nodes: dict[int, Any] = {}
        self._handles: list[Any] = []
        self._found: dict[tuple[int, int], torch.Tensor | None] = {}
        self._untouched: dict[tuple[int, int], bool] = {}
        self._alive: set[tuple[int, int]] = set()  # in one of several walks

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """Watch a backward of the step's own."""
        self._hang_on(losses)
        return True

    def of(self, tracer: Tracer, loss: Any, preserved: Preserved) -> tuple[Dropped, ...]:
        """The Functions that let a gradient end, once the step has run.

        Args:
            loss: what the step returned. Where the step went backward by itself, no other backward is run.
        """
        try:
            if tracer.own(loss) is None and isinstance(loss, torch.Tensor) and loss.grad_fn is not None:
                self._hang_on([loss])
                backward.backward(loss, preserved)
            names = {id(p): name for name, p in reversed(list(preserved.parameters.items()))}
            return tuple(one for key in self._found if key not in self._alive and (one := self._made(key, names)))
        finally:
            for handle in self._handles:
                handle.remove()
            self._handles, self._nodes, self._found = [], {}, {}

    def _hang_on(self, losses: Iterable[torch.Tensor]) -> None:
        for loss in losses:
            for node in backward.nodes_of(loss):
                if id(node) not in self._nodes and getattr(node, "_forward_cls", None) is not None:
                    self._nodes[id(node)] = node
                    self._handles.append(node.register_hook(partial(self._passes, node)))

    def _passes(self, node: Any, handed_on: Any, handed: Any) -> None:
        if not any(grad is not None for grad in handed):
            return
        for position, ((parent, _), grad) in enumerate(zip(node.next_functions, handed_on, strict=False)):
            key = id(node), position
            if parent is None or (grad is not None and backward.all_zero(handed)):
                continue
            if grad is None or backward.all_zero([grad]):
                self._found[key] = grad
                self._untouched[key] = grad is not None and _is_untouched(grad)
            else:
                self._alive.add(key)

    def _made(self, key: tuple[int, int], names: dict[int, str]) -> Dropped | None:
        node, position = self._nodes[key[0]], key[1]
        cls, edges = node._forward_cls, node.next_functions  # noqa: SLF001
        found = (leaf_of(one) for one in walk_graph([edges[position][0]])[0])
        behind = tuple(names[id(leaf)] for leaf in found if leaf is not None and id(leaf) in names)
        code = getattr(inspect.unwrap(cls.backward), "__code__", None)
        if not behind or code is None:
            return None
        zeros = self._found[key] is not None
        return Dropped(cls.__name__, code, position, behind, zeros, len(edges), self._untouched[key])


def _is_untouched(grad: torch.Tensor) -> bool:
    return not grad.is_inference() and grad._version == 0  # noqa: SLF001  as autograd counts it
