"""The backwards that a step makes itself: on which value, over which nodes, and what they reach.

``torch.autograd.backward``, which ``Tensor.backward`` ends in as well, is replaced while the step runs;
``torch.autograd.grad`` is asked through here, too.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

import torch

from gradkit.core import patches
from gradkit.core.trace import Chain
from gradkit.source import faults, frames
from gradkit.source.faults import on_behalf
from gradkit.state.preserve import Preserved
from gradkit.tracing import logged_losses
from gradkit.tracing.autograd_errors import Freeing
from gradkit.tracing.autograd_graph import AutogradGraph, graph_behind, leaf_of
from gradkit.tracing.backward import (
    Reached,
    arrivals,
    keeps_values,
    leaves_of,
    nodes_of,
    norms,
    refuse_a_second_walk,
)
from gradkit.tracing.gradients import Gradients
from gradkit.tracing.ledger import Ledger

MOST_WALKS = 200  # a Hessian asks for thousands of gradients


@dataclass(frozen=True)
class OwnBackward:
    """A backward that the step made itself: on which value, with which graph, and what was reached by then."""

    number: int
    graph: AutogradGraph
    reached: Reached


@dataclass(frozen=True)
class Pass:
    """A walk back: from which value (-1: ``autograd.grad``), over which nodes, whether it frees them, and where.

    ``inputs``: the values whose gradient was asked for by name. ``values``: how many values the run had by then.
    ``losses``: the nodes that made what it began from, and its terms.
    """

    number: int
    sequences: frozenset[int]
    freed: bool
    chain: Chain
    inputs: tuple[int, ...] = ()
    values: int = 0
    losses: frozenset[int] = frozenset()


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
        spent: sequence numbers of the nodes from before the run that one of them would have freed.
        taken: numbers of the values whose gradient ``autograd.grad`` handed out without a graph of its own.
        threads: those that are heard; its user adds those that the step starts.
        heard: told of each before it runs.
        begins: asked before each whether it is to be carried out, unless it is handed gradients to start from.
        begun: how many have begun.
        gradients: told of each, and of what it came to.
    """

    def __init__(
        self, ledger: Ledger, parameters: Mapping[str, torch.Tensor], stop: CodeType, preserved: Preserved | None = None
    ) -> None:
        self._stop = stop
        self.reached: dict[str, float | None] = {}
        self._ledger, self._parameters, self._preserved = ledger, parameters, preserved
        self._found: dict[int, OwnBackward] = {}
        self._asked: Asked | None = None
        self._by_name: OwnBackward | None = None
        self.passes: list[Pass] = []
        self.spent: set[int] = set()
        self.taken: set[int] = set()
        self.heard: Callable[[list[torch.Tensor], FrameType], None] = lambda losses, frame: None
        self.begins: Callable[[list[torch.Tensor], FrameType], bool] = lambda losses, frame: True
        self.begun = 0
        self.gradients: Gradients | None = None
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
            number: of the value that the step returned; None takes the last backward of all, and if there is none, the
                last ``autograd.grad`` that handed out gradients of parameters.
        """
        if number is None:
            own = next(reversed(self._found.values()), self._by_name)
        else:
            over = (one.number for one in reversed(self.passes) if sequence in one.sequences and one.number >= 0)
            own = self._found.get(number) or self._found.get(next(over, -1))
        if own is None:
            return None
        return replace(own, reached=replace(own.reached, norms={**own.reached.norms, **self.reached}))

    def of_logged(self, loss: torch.Tensor, number: int) -> OwnBackward | None:
        """The backwards of a step which returns a value that its losses were put together to: as if they were one.

        None where the value leads to anything else, or none of their graphs was freed.
        """
        walked = frozenset[int]().union(*(one.losses for one in self.passes))
        if not any(one.freed and one.losses for one in self.passes) or not logged_losses.are_all(
            loss, walked, self._ledger.is_past
        ):
            return None
        drawn = graph_behind([loss], self._parameters)
        return OwnBackward(number, drawn, Reached(dict(self.reached), True, "", loss.numel()))

    def freeing(self, calls_at: Callable[[int], Collection[int]]) -> tuple[Freeing, ...]:
        """Each backward that freed its graph.

        Args:
            calls_at: tells the calls that made a node of autograd's, by its sequence number; -1 for none.
        """
        freed = (
            (one, frozenset(n for s in one.sequences for n in calls_at(s)) - {-1}) for one in self.passes if one.freed
        )
        return tuple(Freeing(one.chain, calls, one.values, one.number) for one, calls in freed)

    def asked(self, error: BaseException) -> Asked | None:
        """What ``error`` came from, if a gradient was asked for."""
        asked, self._asked = self._asked, None
        return asked if asked is not None and any(asked.error is one for one in faults.raised_from(error)) else None

    @on_behalf
    def grad(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Carry out ``torch.autograd.grad``."""
        outputs = _tensors(args[0] if args else kwargs["outputs"])
        inputs = tuple(map(self._ledger.use, _tensors(args[1] if len(args) > 1 else kwargs.get("inputs", ()))))
        if outputs and not outputs[0].requires_grad:
            return self._refuse(func, outputs[0], args, kwargs, inputs)
        few = len(self.passes) < MOST_WALKS
        behind = _sequences(outputs) if few else frozenset()
        chain = frames.chain(sys._getframe(1), self._stop)
        walked = Pass(-1, behind, not _keeps(args[3:5], kwargs), chain, inputs, self._values())
        final = few and not kwargs.get("create_graph") and args[4:5] != (True,)
        asked = self._asked_by_name(outputs, inputs) if final else None
        try:
            more = self._sparing_what_was_there(outputs, behind, args[3:5], kwargs)
            result = func(*args[:3], *args[5 if more else 3 :], **{**kwargs, **more})
        except Exception as error:
            self._asked = Asked(error, outputs[0] if outputs else None, inputs)
            raise
        self.passes.append(walked)
        self._by_name = asked or self._by_name
        self.taken.update(inputs if final else ())
        return result

    def _asked_by_name(self, outputs: list[torch.Tensor], inputs: tuple[int, ...]) -> OwnBackward | None:
        """A step may train by ``autograd.grad`` of its parameters, without any backward."""
        mine = {self._ledger.known(parameter) for parameter in self._parameters.values()}
        if not outputs or mine.isdisjoint(inputs):
            return None
        drawn = graph_behind(outputs, self._parameters)
        found = dict(self._by_name.reached.norms) if self._by_name is not None else {}
        found.update({node.label: None for node in drawn.nodes if node.label in self._parameters})
        return OwnBackward(self._ledger.use(outputs[0]), drawn, Reached(found, True, "", outputs[0].numel()))

    @on_behalf
    def _backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        losses = _tensors(tensors)
        if not losses or threading.get_ident() not in self.threads:
            self._original(tensors, *args, **kwargs)
            return
        self.begun += 1
        if not _is_given_gradients(args, kwargs) and not self.begins(losses, sys._getframe(1)):
            return
        loss = next((x for x in losses if x.requires_grad), losses[0])
        if not loss.requires_grad:
            self._refuse(self._original, loss, (tensors, *args), kwargs)
        self.heard(losses, sys._getframe(1))
        number, drawn = self._ledger.use(loss), graph_behind(losses, self._parameters)
        values = self._values()
        mine = self._is_mine()
        chain, leaves = frames.chain(sys._getframe(1), self._stop), [x for one in losses for x in leaves_of(one)]
        self._ledger.came_to(lambda: leaves)
        with contextlib.ExitStack() as stack:
            arrived: dict[str, float | None] = {}
            if self._preserved is not None:
                for leaf in leaves:
                    self._preserved.leaf(leaf)
                self._preserved.clear_grads(only_old=True)
                arrived = stack.enter_context(arrivals(self._preserved))
            if self.gradients is not None and mine:
                stack.enter_context(self.gradients.walking(number, chain, leaves))
            try:
                walked = frozenset(node.sequence for node in drawn.nodes if not node.leaf)
                more = self._sparing_what_was_there(losses, walked, args[1:3], kwargs)
                self._original(tensors, *args[:1], *args[3 if more else 1 :], **{**kwargs, **more})
            except Exception as error:
                self._asked = Asked(error, loss)
                raise
        behind = walked if mine else frozenset()
        if self.gradients is not None:
            self.gradients.filled(number, leaves, behind)
        logged = logged_losses.of(losses) if mine else frozenset[int]()
        self.passes.append(Pass(number, behind, not _keeps(args[1:3], kwargs), chain, values=values, losses=logged))
        held = norms(self._parameters)
        self.reached.update({**arrived, **held})
        reached = Reached(dict(self.reached), True, "", loss.numel(), emptied=frozenset(arrived.keys() - held.keys()))
        self._found.pop(number, None)
        self._found[number] = OwnBackward(number, drawn, reached)

    def _values(self) -> int:
        return len(self._ledger.makers)

    def _is_mine(self) -> bool:
        """Whether the thread of the step asks: autograd counts its nodes in each thread anew."""
        return threading.get_ident() == self._thread

    def _sparing_what_was_there(
        self, losses: Sequence[torch.Tensor], walked: frozenset[int], given: Any, named: Any
    ) -> dict[str, Any]:
        """What a backward is told besides: what was recorded before the step is not freed, the program may need it.

        Args:
            walked: the numbers of the nodes behind ``losses``.
            given: ``retain_graph`` and ``create_graph``, as far as they are given by position.

        Raises:
            RuntimeError: an earlier backward of the run would have freed what this one needs.
        """
        past, mine = {number for number in walked if self._ledger.is_past(number)}, self._is_mine()
        if mine and past & self.spent:
            refuse_a_second_walk()
        if self._preserved is None or not past or _keeps(given, named):
            return {}
        nodes = (node for one in losses for node in nodes_of(one) if leaf_of(node) is None) if mine else ()
        self.spent |= {number for node in nodes if (number := node._sequence_nr()) in past and keeps_values(node)}
        return {"retain_graph": True} | ({"create_graph": given[1]} if given[1:] else {})

    @on_behalf
    def _refuse(
        self, func: Callable[..., Any], loss: torch.Tensor, args: Any, kwargs: Any, inputs: tuple[int, ...] = ()
    ) -> Any:
        """Let torch raise what it raises where nothing requires grad, and remember what it was asked of."""
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            self._asked = Asked(error, loss, inputs, refused=True)
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


def _is_given_gradients(given: Any, named: Any) -> bool:
    return any(one is not None for one in (*given[:1], named.get("grad_tensors"), named.get("grad_variables")))


def _sequences(outputs: list[torch.Tensor]) -> frozenset[int]:
    return frozenset(n._sequence_nr() for one in outputs for n in nodes_of(one) if leaf_of(n) is None)
