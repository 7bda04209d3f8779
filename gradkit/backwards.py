"""The backward calls that a step makes itself: carried out, and remembered.

``torch.autograd.backward``, which ``Tensor.backward`` ends in as well, is replaced while the step runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradkit import calls
from gradkit.autograd import AutogradGraph, graph
from gradkit.ledger import Ledger
from gradkit.preserve import Preserved
from gradkit.reach import Reached, arrivals, leaves_of, norms


@dataclass(frozen=True)
class OwnBackward:
    """One of them: on which value, with which graph, and what was reached by then."""

    number: int
    graph: AutogradGraph
    reached: Reached


class OwnBackwards:
    """Hears every backward of a run.

    Args:
        ledger: numbers the tensors of the run.
        parameters: the model's, by name.
        preserved: remembers the ``.grad`` of every leaf before it is filled; None if nothing is to be put back.

    Attributes:
        reached: the norm of every gradient that any of them handed to a parameter.
    """

    def __init__(
        self, ledger: Ledger, parameters: Mapping[str, torch.Tensor], preserved: Preserved | None = None
    ) -> None:
        self.reached: dict[str, float | None] = {}
        self._ledger, self._parameters, self._preserved = ledger, parameters, preserved
        self._found: dict[int, OwnBackward] = {}
        self._refused: tuple[BaseException, torch.Tensor] | None = None

    def __enter__(self) -> OwnBackwards:
        self._original: Callable[..., None] = torch.autograd.backward
        torch.autograd.backward = self._backward
        return self

    def __exit__(self, *_: object) -> None:
        torch.autograd.backward = self._original

    def of(self, loss: Any) -> OwnBackward | None:
        """The step's own backward of the loss that it returned; its last one if it returned no tensor."""
        if isinstance(loss, torch.Tensor):
            number = self._ledger.known(loss)
            own = self._found.get(number) if number is not None else None
        else:
            own = next(reversed(self._found.values()), None)
        return None if own is None else replace(own, reached=replace(own.reached, norms=dict(self.reached)))

    def refused(self, error: BaseException) -> torch.Tensor | None:
        """The tensor that a gradient was asked of and that has none, if that is what ``error`` came from."""
        refused, self._refused = self._refused, None
        return refused[1] if refused is not None and refused[0] in calls.raised_from(error) else None

    def grad(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Carry out ``torch.autograd.grad``."""
        outputs = args[0] if args else kwargs["outputs"]
        first = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        return func(*args, **kwargs) if first.requires_grad else self._refuse(func, first, args, kwargs)

    def _backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        loss = next((x for x in losses if x.requires_grad), losses[0])
        if not loss.requires_grad:
            self._refuse(self._original, loss, (tensors, *args), kwargs)
        number, drawn = self._ledger.use(loss), graph(losses, self._parameters)
        with contextlib.ExitStack() as stack:
            arrived: dict[str, float | None] = {}
            if self._preserved is not None:
                for leaf in (leaf for one in losses for leaf in leaves_of(one)):
                    self._preserved.leaf(leaf)
                self._preserved.clear_grads(only_old=True)
                arrived = stack.enter_context(arrivals(self._preserved))
            self._original(tensors, *args, **kwargs)
        self.reached.update({**arrived, **norms(self._parameters)})
        self._found.pop(number, None)
        self._found[number] = OwnBackward(number, drawn, Reached(dict(self.reached), True, "", loss.numel()))

    def _refuse(self, func: Callable[..., Any], loss: torch.Tensor, args: Any, kwargs: Any) -> Any:
        """Let torch raise what it raises where nothing requires grad, and remember what it was asked of."""
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            self._refused = (error, loss)
            raise
