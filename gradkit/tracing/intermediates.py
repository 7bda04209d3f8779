"""What the forwards of custom Functions compute on the way and keep for a backward, given the history that it lacks.

While a forward runs nothing is recorded. Of what it keeps on ``ctx``, its inputs and outputs get a history from
autograd, an intermediate result has none: a backward under ``create_graph`` takes it for a constant, and the second
derivative lacks what depends on it. Here the forward is computed once more from the same inputs, with recording on, and
that backward is handed the intermediates of it: the same numbers, with their history.
Source: https://pytorch.org/tutorials/intermediate/custom_function_double_backward_tutorial.html
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
from torch.autograd import Function, function
from torch.overrides import TorchFunctionMode

from gradkit.core import patches
from gradkit.core.trace import Chain
from gradkit.source import frames
from gradkit.source.faults import on_behalf
from gradkit.tracing import backward
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.ledger import leaves

_SHAPES = frozenset(
    "view view_as reshape reshape_as unsqueeze squeeze expand expand_as permute transpose flatten __getitem__ unbind "
    "split chunk to contiguous clone".split()
)


class Intermediates(Intervention):
    """Hands the backwards of custom Functions their intermediates with a history, where it is recorded.

    Args:
        only: the name of the one Function of which that is done; ``""`` for all.

    Attributes:
        used: the name of each Function, with the user's frames of the first call in its backward that computes with
            such an intermediate, innermost first and up to the backward.
    """

    def __init__(self, only: str = "") -> None:
        self._only = only
        self.used: dict[tuple[str, Chain], None] = {}
        self._given: dict[int, tuple[Any, Any, Any]] = {}

    @contextmanager
    def during(self) -> Iterator[None]:
        """Hear what each Function is handed, and stand between autograd and its backward."""
        inner: Any = Function.__mro__[1]  # asked by Function.apply, which a program may hold: ``square = Square.apply``
        plain: Any = function.BackwardCFunction.apply

        @on_behalf
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            held: Any = super(inner, cls)
            result = held.apply(*args, **kwargs)
            self._applied(result, args, kwargs)
            return result

        @on_behalf
        def differentiate(node: Any, *grads: Any) -> Any:
            context = self._context(node)
            if context is None:
                return plain(node, *grads)
            with _Listening(self, context, differentiate.__code__):
                return _backward_of(node)(context, *grads)

        with patches.undone():
            patches.replace(inner, "apply", classmethod(apply))
            patches.replace(function.BackwardCFunction, "apply", differentiate)
            try:
                yield
            finally:
                self._given.clear()

    def _applied(self, result: Any, args: Any, kwargs: Any) -> None:
        for made in leaves([result]):
            node: Any = made.grad_fn if isinstance(made, torch.Tensor) else None
            if isinstance(node, function.BackwardCFunction):
                self._given[id(node)] = (node, args, kwargs)

    def _context(self, node: Any) -> _Context | None:
        """What a backward is handed in place of its node; None if nothing would differ."""
        known = self._given.get(id(node))
        cls = node._forward_cls  # noqa: SLF001
        other = getattr(cls, "boxed_grads_call", False) or self._only not in ("", cls.__name__)
        if known is None or known[0] is not node or other or not torch.is_grad_enabled():
            return None
        again = _once_more(cls, known[1], known[2], node.needs_input_grad)
        saved = [_with_history(old, new, again) for old, new in _pairs(node.saved_tensors, again.saved)]
        kept = {name: _with_history(old, vars(again).get(name), again) for name, old in vars(node).items()}
        changed = [
            new for old, new in (*_pairs(node.saved_tensors, saved), *((vars(node)[n], kept[n]) for n in kept))
            if new is not old
        ]  # fmt: skip
        return _Context(node, tuple(saved), kept, changed) if changed else None


class _Again:
    """The ``ctx`` of a forward that is computed once more."""

    def __init__(self, needs: Any) -> None:
        self.needs_input_grad = needs
        self.saved: tuple[Any, ...] = ()
        self.fixed: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.fixed = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """What is written into are copies."""

    def save_for_forward(self, *tensors: Any) -> None:
        """Nothing is differentiated forward."""

    def set_materialize_grads(self, value: bool) -> None:
        """The backward is called by the node itself."""


@on_behalf
def _once_more(cls: Any, args: Any, kwargs: Any, needs: Any) -> _Again:
    """Compute a forward from copies of what it was handed, with recording on; what it draws leaves no trace."""
    again = _Again(needs)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        given = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
        if cls.setup_context is not Function.setup_context:
            cls.setup_context(again, tuple(given), cls.forward(*given, **kwargs))
        else:
            cls.forward(again, *given, **kwargs)
    return again


def _pairs(old: Any, new: Any) -> list[tuple[Any, Any]]:
    return list(zip(old, new, strict=True)) if len(old) == len(new) else [(one, one) for one in old]


def _with_history(old: Any, new: Any, again: _Again) -> Any:
    """The second, if it has a history that the first lacks, and the same numbers."""
    if not (backward.is_strided(old) and backward.is_strided(new)) or old.requires_grad or not new.requires_grad:
        return old
    if any(new is one for one in again.fixed) or old.shape != new.shape or old.dtype != new.dtype:
        return old
    return new if torch.equal(old, new.detach()) else old


class _Context:
    """A node, as its backward sees it, with other values kept on it.

    Attributes:
        gradkit_changed: those that have a history now, and what is only another shape of one.
    """

    def __init__(self, node: Any, saved: tuple[Any, ...], kept: dict[str, Any], changed: list[torch.Tensor]) -> None:
        vars(self).update(kept)
        vars(self)["saved_tensors"] = saved
        vars(self)["gradkit_node"] = node
        vars(self)["gradkit_changed"] = changed

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["gradkit_node"], name)


class _Listening(TorchFunctionMode):
    """Hears the first call that computes with what was changed."""

    def __init__(self, told: Intermediates, context: _Context, stop: CodeType) -> None:
        super().__init__()
        self._told, self._stop = told, stop
        self._name = vars(context)["gradkit_node"]._forward_cls.__name__  # noqa: SLF001
        self._changed: list[torch.Tensor] | None = list(vars(context)["gradkit_changed"])

    @on_behalf
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._hear(getattr(func, "__name__", ""), [*args, *(kwargs or {}).values()], result, sys._getframe(1))
        return result

    def _hear(self, name: str, given: list[Any], result: Any, frame: FrameType) -> None:
        made = [one for one in leaves([result]) if isinstance(one, torch.Tensor) and one.requires_grad]
        handed = {id(one) for one in leaves(given)}
        if self._changed is None or not made or not any(id(one) in handed for one in self._changed):
            return
        if name in _SHAPES:
            self._changed += made
            return
        chain = frames.chain(frame, self._stop)
        if chain:
            self._told.used[self._name, chain] = None
            self._changed = None


@on_behalf
def _backward_of(node: Any) -> Any:
    """The user's ``backward``, or ``vjp``, which is the same."""
    cls = node._forward_cls  # noqa: SLF001
    return cls.backward if getattr(cls, "vjp", None) in (None, Function.vjp) else cls.vjp
