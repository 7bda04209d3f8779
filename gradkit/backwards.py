"""The backward calls that a step makes itself: carried out, and remembered.

``torch.autograd.backward``, which ``Tensor.backward`` ends in as well, is replaced while the step runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

import torch

from gradkit import calls, frames, patches
from gradkit.autograd import AutogradGraph, graph, leaf
from gradkit.faults import on_behalf
from gradkit.ledger import Ledger
from gradkit.preserve import Preserved
from gradkit.reach import Reached, arrivals, leaves_of, nodes_of, norms
from gradkit.traces import Chain

MOST_WALKS = 200  # a Hessian asks for thousands of gradients


@dataclass(frozen=True)
class OwnBackward:
    """One of them: on which value, with which graph, and what was reached by then."""

    number: int
    graph: AutogradGraph
    reached: Reached


@dataclass(frozen=True)
class Pass:
    """A walk back: from which value (-1: ``autograd.grad``), over which nodes, whether it frees them, and where.

    ``inputs``: the values whose gradient was asked for by name.
    """

    number: int
    sequences: frozenset[int]
    freed: bool
    chain: Chain
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Asked:
    """A gradient that was asked for and not given: the error, the tensor it was asked of, and for which values.

    ``refused``: the tensor has no history at all, so that nothing was tried.
    """

    error: BaseException
    tensor: torch.Tensor | None
    inputs: tuple[int, ...] = ()
    refused: bool = False


class OwnBackwards:
    """Hears every backward of a run.

    Args:
        ledger: numbers the tensors of the run.
        parameters: the model's, by name.
        stop: the code object at which the user's frames end.
        preserved: remembers the ``.grad`` of every leaf before it is filled; None if nothing is to be put back.

    Attributes:
        reached: the norm of every gradient that any of them handed to a parameter.
        passes: every walk back through the graph, in order.
        threads: those that are heard; its user adds those that the step starts.
    """

    def __init__(
        self, ledger: Ledger, parameters: Mapping[str, torch.Tensor], stop: CodeType, preserved: Preserved | None = None
    ) -> None:
        self._stop = stop
        self.reached: dict[str, float | None] = {}
        self._ledger, self._parameters, self._preserved = ledger, parameters, preserved
        self._found: dict[int, OwnBackward] = {}
        self._asked: Asked | None = None
        self.passes: list[Pass] = []
        self.heard: Callable[[list[torch.Tensor], FrameType], None] = lambda losses, frame: None
        self.threads: set[int] = set()
        self._patched = patches.undone()

    def __enter__(self) -> OwnBackwards:
        self._thread = threading.get_ident()
        self.threads.add(self._thread)
        self._original: Callable[..., None] = torch.autograd.backward
        self._patched.__enter__()
        patches.replace(torch.autograd, "backward", self._backward)
        return self

    def __exit__(self, *error: object) -> None:
        self._patched.__exit__(*error)

    def of(self, number: int | None, sequence: int = -1) -> OwnBackward | None:
        """The step's own backward of a value, or the last one that walked over the node ``sequence``.

        Args:
            number: of the value that the step returned; None takes the last backward of all.
        """
        if number is None:
            own = next(reversed(self._found.values()), None)
        else:
            over = (one.number for one in reversed(self.passes) if sequence in one.sequences and one.number >= 0)
            own = self._found.get(number) or self._found.get(next(over, -1))
        return None if own is None else replace(own, reached=replace(own.reached, norms=dict(self.reached)))

    def freeing(self, index_at: Callable[[int], int]) -> tuple[tuple[Chain, frozenset[int]], ...]:
        """Each backward that freed its graph: the user's frames, and the calls that it freed.

        Args:
            index_at: tells the call that made a node of autograd's, by its sequence number; -1 for none.
        """
        return tuple((one.chain, frozenset(map(index_at, one.sequences)) - {-1}) for one in self.passes if one.freed)

    def asked(self, error: BaseException) -> Asked | None:
        """What ``error`` came from, if a gradient was asked for."""
        asked, self._asked = self._asked, None
        return asked if asked is not None and asked.error in calls.raised_from(error) else None

    @on_behalf
    def grad(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Carry out ``torch.autograd.grad``."""
        outputs = _tensors(args[0] if args else kwargs["outputs"])
        if outputs and not outputs[0].requires_grad:
            return self._refuse(func, outputs[0], args, kwargs)
        few = len(self.passes) < MOST_WALKS
        behind = _sequences(outputs) if few else frozenset()
        inputs = tuple(map(self._ledger.use, _tensors(args[1] if len(args) > 1 else kwargs.get("inputs", ()))))
        walked = Pass(-1, behind, not _keeps(args[3:5], kwargs), frames.chain(sys._getframe(1), self._stop), inputs)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            self._asked = Asked(error, outputs[0] if outputs else None, inputs)
            raise
        self.passes.append(walked)
        return result

    @on_behalf
    def _backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        losses = _tensors(tensors)
        if not losses or threading.get_ident() not in self.threads:
            self._original(tensors, *args, **kwargs)
            return
        loss = next((x for x in losses if x.requires_grad), losses[0])
        if not loss.requires_grad:
            self._refuse(self._original, loss, (tensors, *args), kwargs)
        self.heard(losses, sys._getframe(1))
        number, drawn = self._ledger.use(loss), graph(losses, self._parameters)
        with contextlib.ExitStack() as stack:
            arrived: dict[str, float | None] = {}
            if self._preserved is not None:
                for leaf in (leaf for one in losses for leaf in leaves_of(one)):
                    self._preserved.leaf(leaf)
                self._preserved.clear_grads(only_old=True)
                arrived = stack.enter_context(arrivals(self._preserved))
            try:
                self._original(tensors, *args, **kwargs)
            except Exception as error:
                self._asked = Asked(error, loss)
                raise
        mine = threading.get_ident() == self._thread  # autograd counts its nodes in each thread anew
        behind = frozenset(node.sequence for node in drawn.nodes if not node.leaf and mine)
        chain = frames.chain(sys._getframe(1), self._stop)
        self.passes.append(Pass(number, behind, not _keeps(args[1:3], kwargs), chain))
        held = norms(self._parameters)
        self.reached.update({**arrived, **held})
        reached = Reached(dict(self.reached), True, "", loss.numel(), emptied=frozenset(arrived.keys() - held.keys()))
        self._found.pop(number, None)
        self._found[number] = OwnBackward(number, drawn, reached)

    @on_behalf
    def _refuse(self, func: Callable[..., Any], loss: torch.Tensor, args: Any, kwargs: Any) -> Any:
        """Let torch raise what it raises where nothing requires grad, and remember what it was asked of."""
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            self._asked = Asked(error, loss, refused=True)
            raise


def _tensors(given: Any) -> list[torch.Tensor]:
    """The tensors among what a gradient is asked of; edges of the graph, which name no tensor, are left out."""
    if isinstance(given, torch.Tensor):
        return [given]
    many = given.values() if isinstance(given, dict) else given
    return [x for x in many if isinstance(x, torch.Tensor)]


def _keeps(given: Any, named: Any) -> bool:
    """Whether ``retain_graph`` or ``create_graph`` keeps the graph: ``given`` holds them by position."""
    retain, create = [*given, None, None][:2]
    return bool(retain or create or named.get("retain_graph") or named.get("create_graph"))


def _sequences(outputs: list[torch.Tensor]) -> frozenset[int]:
    return frozenset(n._sequence_nr() for one in outputs for n in nodes_of(one) if leaf(n) is None)
