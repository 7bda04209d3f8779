"""Run the step again with chosen cuts undone, and see which parameters come alive.

A switch of grad mode is skipped; ``detach`` and ``.data`` become a view; where a value was turned into something that
cannot carry a gradient, the next floating tensor computed from it is joined to the lost one by adding
``0 * lost.sum()``, so that every number of the rerun is the one of the run, and only the history differs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.autograd import Function
from torch.utils import checkpoint as checkpoints

from gradkit.core import operations, patches
from gradkit.core.operations import FILLED, GRAD, MADE_TENSOR, UNSEEN
from gradkit.core.trace import BACKWARD, CHECKPOINT, FUNCTION, PRESET, Key, Trace, spot
from gradkit.diagnosis.facts.cuts import DATA, DETACH, OPERATION, REGION, UNDECLARED, Cut
from gradkit.source import frames
from gradkit.source.faults import on_behalf
from gradkit.tracing.autograd_graph import AutogradGraph
from gradkit.tracing.interventions import Instead, Intervention, Moment
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer


@dataclass(frozen=True)
class Rerun:
    """What a rerun showed.

    Attributes:
        revived: parameters that backward reached in it; None if it was not made or did not come through.
        zero: those of them whose gradient is exactly zero.
        runs: how many times the step was run for it.
        error: what the step raised, ``""`` if nothing.
        trace: its calls, in the order of the first run's.
        graph: the autograd graph of its loss, with the cuts undone.
    """

    revived: frozenset[str] | None = None
    runs: int = 0
    error: str = ""
    trace: Trace | None = None
    graph: AutogradGraph = field(default_factory=AutogradGraph)
    zero: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Revived:
    """What dead terms hand on once their cuts are undone.

    Attributes:
        parameters: those that each hands a gradient to, by the number of the term; none that the run did not show.
        rerun: the run.
        runs: how many times the step was run for it.
    """

    parameters: dict[int, frozenset[str]] = field(default_factory=dict)
    rerun: Rerun = field(default_factory=Rerun)
    runs: int = 0


def can_undo(cut: Cut) -> bool:
    """Whether a rerun can undo a cut: not where a value is stored away as the data of another tensor."""
    return cut.kind in (REGION, UNDECLARED) or cut.key[1] != "data="


@dataclass(frozen=True)
class Joins:
    """Numbers that came to be part of the loss, though Python had made others of them meanwhile.

    Attributes:
        left: keys of the calls by which they left torch.
        back: keys of those by which they came into the loss.
    """

    left: frozenset[Key] = frozenset()
    back: frozenset[Key] = frozenset(((MADE_TENSOR,),))


NO_JOINS = Joins()


def joins(trace: Trace, left: Iterable[int], back: Iterable[int]) -> Joins:
    """Those of some calls, by their indices; the loss is made of them where it is not known what took them in."""
    there = frozenset(trace.calls[index].key for index in back)
    return Joins(frozenset(trace.calls[index].key for index in left), there or NO_JOINS.back)


class _Lost(threading.local):
    """What the call under way has lost, in each thread."""

    tensors: list[torch.Tensor] | None = None


class UndoCuts(Intervention):
    """Undoes some cuts while the step runs.

    Args:
        joins: numbers that are to be joined on where they came into the loss.
        kept: other cuts of the step, where these are to go on cutting what is joined on behind one that is undone.
    """

    def __init__(self, cuts: Iterable[Cut], joins: Joins = NO_JOINS, kept: Iterable[Cut] | None = None) -> None:
        cuts, self._joins = tuple(cuts), joins
        self._alone = kept is not None
        self._kept = frozenset(cut.key[1:] for cut in kept or () if cut.kind not in (REGION, UNDECLARED))
        self.skip = frozenset(
            cut.key if cut.kind == REGION else cut.key[1] for cut in cuts if cut.kind in (REGION, UNDECLARED)
        )
        self._undo = {cut.key[1:]: cut.kind for cut in cuts if cut.kind not in (REGION, UNDECLARED)}
        self._names = {str(key[0]) for key in self._undo}
        self._lost: dict[int, list[torch.Tensor]] = {}
        self._in_the_loss: list[torch.Tensor] = []
        self._next = _Lost()

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """Replace what torch's modules hold; it is put back afterwards."""
        original, applied = checkpoints.CheckpointFunction, Function.__dict__["apply"]
        with patches.undone():
            patches.replace(checkpoints, "CheckpointFunction", _plain(original, self.skip))
            patches.replace(Function, "apply", _without_function(applied, self.skip))
            if FILLED in self._names or any(key[:1] == (BACKWARD,) for key in self.skip):
                patches.replace(torch.autograd, "backward", _recorded(torch.autograd.backward))
            with torch.set_grad_enabled(torch.is_grad_enabled() or (PRESET,) in self.skip):
                yield

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """``numpy()`` refuses what requires grad, which it did not before the cut in front of it was undone.

        A derivative keeps its own history if that was what it lacked.
        """
        if getattr(func, "__name__", "") in ("numpy", "__array__") and args[0].requires_grad:
            args = (args[0].detach(), *args[1:])
        if isinstance(out := kwargs.get("out"), torch.Tensor) and torch.is_grad_enabled():
            return partial(_copied_into, out, func), args, {**kwargs, "out": None}
        if func is torch.Tensor.detach_ and self._kind("detach_", moment):
            return _itself, args, kwargs
        if func is torch.Tensor.requires_grad_ and not args[0].is_leaf:  # it was one, and needs no flag now
            return _itself, args[:1], {}
        if func is torch.autograd.grad and self._kind(GRAD, moment):
            args, kwargs = args[:3], {**kwargs, "create_graph": True}
        return func, args, kwargs

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """Undo the cut if this call is one; else join on what an earlier one lost."""
        if self._alone and (not torch.is_grad_enabled() or (name, *spot(moment.chain())) in self._kept):
            return result
        kind = self._kind(name, moment)
        if kind and name == GRAD:
            return result
        if kind in (DETACH, DATA):
            result, kind = (result if name == "detach_" else given[0].view_as(given[0])), ""
        lost = [x for number in inputs for x in self._lost.get(number, ())]
        if kind:
            lost += [x for x in given if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if self._joins.left:
            key = (name, *spot(moment.chain()))
            self._in_the_loss += lost if kind and key in self._joins.left else []
            lost += self._in_the_loss if key in self._joins.back else []
        if not lost:
            return result
        if isinstance(result, torch.Tensor) and result.is_floating_point() and torch.is_grad_enabled():
            if any(result is x for x in given):
                return result
            return result + _nothing(lost).to(result)
        self._next.tensors = lost
        return result

    def may_set(self, moment: Moment, name: str, tensor: torch.Tensor) -> bool:
        """A flag can be set on leaves only; what has its history back is none, and needs no flag."""
        return name != "requires_grad=" or tensor.is_leaf

    def after_collective(self, moment: Moment, name: str, targets: Sequence[torch.Tensor], read: Sequence[Any]) -> None:
        """Undo the cut of a collective: what it filled goes on from what it was filled from."""
        lost = [x for x in read if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if not lost or not self._kind(name, moment) or not torch.is_grad_enabled():
            return
        with torch._C.DisableTorchFunction():
            for target in targets:
                if target.is_floating_point() and not any(target is x for x in lost):
                    target.add_(_nothing(lost).to(target))

    def parameter_made(self, moment: Moment, name: str, made: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        """What is computed from a Parameter whose making is a cut is joined to what the Parameter was made of.

        A Variable need be no leaf: it may be the loss, from which nothing is computed.
        """
        if self._kind(name, moment) or (name == operations.COPY and data.requires_grad):
            before = [x for number in moment.ledger.inputs([data]) for x in self._lost.get(number, ())]
            if name == operations.VARIABLE and data.is_floating_point():
                with torch._C.DisableTorchFunction():
                    return data + _nothing(before).to(data) if before else data.view_as(data)
            self._next.tensors = [data, *before]
        return made

    def recorded(self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """What a call has made that cannot carry a gradient either: whatever is made of it will be joined."""
        lost, self._next.tensors = self._next.tensors, None
        if lost is None and name == UNSEEN:
            lost = [x for number in inputs for x in self._lost.get(number, ())]
        if lost:
            for number in outputs:
                self._lost[number] = lost

    def _kind(self, name: str, moment: Moment) -> str:
        return self._undo.get((name, *spot(moment.chain())), "") if name in self._names else ""


@on_behalf
def _copied_into(out: torch.Tensor, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return out.copy_(func(*args, **kwargs))


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _nothing(lost: Sequence[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros((), device=lost[0].device)
    for tensor in {id(x): x for x in lost}.values():
        total = total + (tensor.sum() * 0).nan_to_num().to(total)
    return total


def _plain(original: Any, skip: frozenset[Any]) -> Any:
    class CheckpointFunction:
        """Reentrant checkpointing, without its Function where the cut there is undone."""

        @staticmethod
        @on_behalf
        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            chain = frames.chain(sys._getframe(1), Tracer.run.__code__)
            if (CHECKPOINT, *spot(chain)) in skip:
                return function(*args)
            return original.apply(function, preserve, *args)

    return CheckpointFunction


def _recorded(original: Any) -> Any:
    """``torch.autograd.backward``, which records itself: what it fills has a history, and so has what hooks compute."""

    @on_behalf
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        named = dict.fromkeys(("retain_graph", "create_graph")[len(args) :], True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a cycle between a parameter and its gradient, which is put back
            original(tensors, grad_tensors, *[True, True][: len(args)], *args[2:], **{**kwargs, **named})

    return backward


class _Context:
    """Stands for ``ctx`` where the forward of a custom Function runs as a plain function."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs

    def _ignore(self, *_: Any, **__: Any) -> None: ...

    save_for_backward = save_for_forward = mark_dirty = mark_non_differentiable = set_materialize_grads = _ignore


def _without_function(applied: Any, skip: frozenset[Any]) -> Any:
    """``Function.apply``, which leaves the differentiating to autograd where a cut in the Function is undone."""

    @on_behalf
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        chain = frames.chain(sys._getframe(1), Tracer.run.__code__)
        if (FUNCTION, cls.__name__, *spot(chain)) not in skip:
            return applied.__get__(None, cls)(*args, **kwargs)
        if cls.setup_context is not Function.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(_Context(tuple(getattr(x, "requires_grad", False) for x in args)), *args, **kwargs)

    return classmethod(apply)


def rerun_without_cuts(
    session: Session, cuts: Iterable[Cut], joins: Joins = NO_JOINS, kept: Iterable[Cut] | None = None,
    also: Iterable[Intervention] = (),
) -> Rerun:  # fmt: skip
    """Run the step once more with ``cuts`` undone, and see which parameters backward reaches.

    Args:
        joins, kept: as ``UndoCuts`` takes them.
        also: what else is changed in this run.
    """
    cuts = tuple(cuts)
    run = session.run(UndoCuts(cuts, joins, kept), *also)
    if run.trace is None:
        return Rerun(None, 1, run.error)
    norms = run.reached.norms
    if any(cut.key[:2] == (OPERATION, FILLED) or cut.key[0] == BACKWARD for cut in cuts):
        behind = run.graph.leaves  # what the backward itself reached is no proof
        norms = {name: norm for name, norm in norms.items() if name in behind}
    zero = frozenset(name for name, norm in norms.items() if norm == 0)
    return Rerun(frozenset(norms), 1, run.error, run.trace, run.graph, zero)
