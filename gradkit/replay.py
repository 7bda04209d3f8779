"""Run the step again with chosen cuts undone, and see which parameters come alive.

A switch of grad mode is skipped; ``detach`` and ``.data`` become a view; where a value was turned into something that
cannot carry a gradient, the next floating tensor computed from it is joined to the lost one by adding
``0 * lost.sum()``, so that every number of the rerun is the one of the run, and only the history differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.utils import checkpoint as checkpoints

from gradkit import births, frames, patches, strangers
from gradkit.autograd import AutogradGraph
from gradkit.calls import GRAD, UNSEEN
from gradkit.cuts import DATA, DETACH, REGION, UNDECLARED, Cut
from gradkit.outcome import outcome
from gradkit.preserve import Preserved
from gradkit.trace import Tracer
from gradkit.traces import CHECKPOINT, FUNCTION, PRESET, Trace, spot


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


def can_undo(cut: Cut) -> bool:
    """Whether a rerun can undo a cut: not where a value is stored away as the data of another tensor."""
    return cut.kind in (REGION, UNDECLARED) or cut.key[1] != "data="


class Replayer(Tracer):
    """A tracer that undoes ``cuts`` while it runs the step."""

    def __init__(self, model: nn.Module, preserved: Preserved, cuts: Iterable[Cut]) -> None:
        super().__init__(model, preserved)
        cuts = tuple(cuts)
        self.switches.skip = frozenset(
            cut.key if cut.kind == REGION else cut.key[1] for cut in cuts if cut.kind in (REGION, UNDECLARED)
        )
        self._undo = {cut.key[1:]: cut.kind for cut in cuts if cut.kind not in (REGION, UNDECLARED)}
        self._names = {str(key[0]) for key in self._undo}
        self._lost: dict[int, list[torch.Tensor]] = {}

    def run(self, step: Callable[[], Any]) -> Any:
        """Run the step with the cuts undone; what torch's modules hold is put back afterwards."""
        original, applied = checkpoints.CheckpointFunction, Function.__dict__["apply"]
        with patches.undone():
            patches.replace(checkpoints, "CheckpointFunction", _plain(original, self.switches.skip))
            patches.replace(Function, "apply", _without_function(applied, self.switches.skip))
            with torch.set_grad_enabled(torch.is_grad_enabled() or (PRESET,) in self.switches.skip):
                return super().run(step)

    def changed(self, name: str, inputs: tuple[int, ...], found: list[Any], result: Any) -> Any:
        """Undo the cut if this call is one; else join on what an earlier one lost."""
        kind = self._kind(name)
        if kind and name == GRAD:
            return result
        if kind in (DETACH, DATA):
            result, kind = (result if name == "detach_" else found[0].view_as(found[0])), ""
        lost = [x for number in inputs for x in self._lost.get(number, ())]
        if kind:
            lost += [x for x in found if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if not lost:
            return result
        if isinstance(result, torch.Tensor) and result.is_floating_point() and torch.is_grad_enabled():
            if any(result is x for x in found):
                return result
            return result + _nothing(lost).to(result)
        self._pass_on(lost)
        return result

    def put(self, func: Any, name: str, args: Any) -> Any:
        """A flag can be set on leaves only; what has its history back is none, and needs no flag."""
        return None if name == "requires_grad=" and not args[0].is_leaf else super().put(func, name, args)

    def joined(self, name: str, targets: list[torch.Tensor], found: list[Any]) -> None:
        """Undo the cut of a collective: what it filled goes on from what it was filled from."""
        lost = [x for x in found if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if not lost or not self._kind(name) or not torch.is_grad_enabled():
            return
        with torch._C.DisableTorchFunction():
            for target in targets:
                if target.is_floating_point() and not any(target is x for x in lost):
                    target.add_(_nothing(lost).to(target))

    def _carry_out(self, func: Any, args: Any, kwargs: Any) -> Any:
        """``numpy()`` refuses what requires grad, which it did not before the cut in front of it was undone.

        A derivative keeps its own history if that was what it lacked.
        """
        if getattr(func, "__name__", "") in ("numpy", "__array__") and args[0].requires_grad:
            args = (args[0].detach(), *args[1:])
        if isinstance(out := kwargs.get("out"), torch.Tensor) and torch.is_grad_enabled():
            return out.copy_(func(*args, **{**kwargs, "out": None}))
        if func is torch.Tensor.detach_ and self._kind("detach_"):
            return args[0]
        if func is torch.autograd.grad and self._kind(GRAD):
            args, kwargs = args[:3], {**kwargs, "create_graph": True}
        return super()._carry_out(func, args, kwargs)

    def _born(self, name: str, made: torch.Tensor, data: torch.Tensor, frame: FrameType) -> None:
        """What is computed from a Parameter whose making is a cut is joined to what the Parameter was made of."""
        self._frame = frame
        if self._kind(name) or (name == births.COPY and data.requires_grad):
            before = [x for number in self.ledger.inputs([data]) for x in self._lost.get(number, ())]
            self._pass_on([data, *before])
        super()._born(name, made, data, frame)

    def _kind(self, name: str) -> str:
        if name not in self._names:
            return ""
        chain = frames.chain(self._frame, Tracer.run.__code__)
        return self._undo.get((name, *spot(chain)), "")

    def _pass_on(self, lost: list[torch.Tensor]) -> None:
        """What this call makes cannot carry a gradient either: whatever is made of it will be joined."""
        self._next_lost = lost

    _next_lost: list[torch.Tensor] | None = None

    def _append(self, name: str, inputs: Any, outputs: Any, begin: int, state: bool) -> None:
        lost, self._next_lost = self._next_lost, None
        if lost is None and name == UNSEEN:
            lost = [x for number in inputs for x in self._lost.get(number, ())]
        if lost:
            for number in outputs:
                self._lost[number] = lost
        super()._append(name, inputs, outputs, begin, state)


def _nothing(lost: Sequence[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros((), device=lost[0].device)
    for tensor in {id(x): x for x in lost}.values():
        total = total + (tensor.sum() * 0).nan_to_num().to(total)
    return total


def _plain(original: Any, skip: frozenset[Any]) -> Any:
    class CheckpointFunction:
        """Reentrant checkpointing, without its Function where the cut there is undone."""

        @staticmethod
        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            chain = frames.chain(sys._getframe(1), Tracer.run.__code__)
            if (CHECKPOINT, *spot(chain)) in skip:
                return function(*args)
            return original.apply(function, preserve, *args)

    return CheckpointFunction


class _Context:
    """Stands for ``ctx`` where the forward of a custom Function runs as a plain function."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs

    def _ignore(self, *_: Any, **__: Any) -> None: ...

    save_for_backward = save_for_forward = mark_dirty = mark_non_differentiable = set_materialize_grads = _ignore


def _without_function(applied: Any, skip: frozenset[Any]) -> Any:
    """``Function.apply``, which leaves the differentiating to autograd where a cut in the Function is undone."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        chain = frames.chain(sys._getframe(1), Tracer.run.__code__)
        if (FUNCTION, cls.__name__, *spot(chain)) not in skip:
            return applied.__get__(None, cls)(*args, **kwargs)
        if cls.setup_context is not Function.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(_Context(tuple(getattr(x, "requires_grad", False) for x in args)), *args, **kwargs)

    return classmethod(apply)


def rerun(step: Callable[[], Any], model: nn.Module, preserved: Preserved, cuts: Iterable[Cut]) -> Rerun:
    """Put the model back, run ``step`` once more with ``cuts`` undone, and see which parameters backward reaches."""
    preserved.rewind()
    replayer = Replayer(model, preserved, cuts)
    try:
        loss = replayer.run(step)
        trace = replayer.trace(loss)
        graph, reached = outcome(replayer, loss, preserved)
    except Exception as error:  # noqa: BLE001  whatever the changed step raises, the first run stands
        return Rerun(None, 1, f"{type(error).__name__}: {strangers.text(error)}")
    zero = frozenset(name for name, norm in reached.norms.items() if norm == 0)
    return Rerun(frozenset(reached.norms), 1, reached.error, trace, graph, zero)
