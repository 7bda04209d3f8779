"""One call of a user's hook on a copy of the gradient, watched: what becomes of it, and whether it goes elsewhere.

Every torch call of the hook is heard: where the gradient becomes zero or nan is seen. What is computed from it is
followed by its memory; what comes of it is thrown away.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from gradkit.core import operations
from gradkit.core.tensors import has_no_numbers
from gradkit.core.trace import Chain, Key, Point
from gradkit.source.faults import on_behalf
from gradkit.tracing.ledger import leaves, storage_key

FINE, ZERO, NAN = "fine", "zero", "nan"
_HANDED_OUT = frozenset("tolist numpy __array__ data_ptr untyped_storage storage __dlpack__".split())


def gradient_state(grad: torch.Tensor | None) -> str:
    """``"zero"`` (also if there is none), ``"nan"`` (it holds nan or inf) or ``"fine"``.

    Example:
        >>> [gradient_state(grad) for grad in (torch.zeros(2), torch.tensor([1.0, torch.nan]), torch.ones(2), None)]
        ['zero', 'nan', 'fine', 'zero']
    """
    if grad is None:
        return ZERO
    if has_no_numbers(grad) or not grad.numel():
        return FINE
    values = grad.detach().coalesce().values() if grad.layout is torch.sparse_coo else grad.detach()
    if not bool(values.any()):
        return ZERO
    return FINE if bool(torch.isfinite(values).all()) else NAN


class GradientWatch(TorchFunctionMode):
    """Follows some gradients through one call of a hook.

    Args:
        grads: what the hook is handed.
        code: the hook's own.

    Attributes:
        used: something else was changed by the gradient's numbers, as an optimizer would.
        put: where in the hook itself a ``.grad`` was last set, None if nowhere.

    Example:
        >>> def hook(grad): return grad * 0
        >>> with GradientWatch([torch.ones(2)], hook.__code__) as watch:
        ...     watch.point_of(hook(watch.given[0]))[0] is hook.__code__
        True
    """

    def __init__(self, grads: Iterable[torch.Tensor], code: CodeType | None) -> None:
        super().__init__()
        self.given = list(grads)
        self.used = False
        self.put: Point | None = None
        self._code = code
        self._alive: list[torch.Tensor] = []
        self._states: dict[int, tuple[str, Point | None]] = {}
        for grad in self.given:
            self._note(grad, gradient_state(grad), None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self._follow(_name(func), args, kwargs, result, sys._getframe(1))
        return result

    def point_of(self, result: torch.Tensor | None) -> Point | None:
        """Where in the hook itself the gradient became what ``result`` is; None if not seen."""
        return self._states.get(storage_key(result), ("", None))[1] if result is not None else None

    def kept(self) -> bool:
        """Whether the gradient, or something made of it, is used or held elsewhere after the hook; call this last."""
        fine = [x for x in self._alive if self._states[storage_key(x)][0] != ZERO]
        still = [weakref.ref(x) for x in fine]
        fine.clear()
        self._alive.clear()
        self.given.clear()
        return self.used or any(one() is not None for one in still)

    def _follow(self, name: str, args: Any, kwargs: Any, result: Any, frame: FrameType) -> None:
        if name == "grad=":
            self.put = self._own(frame)
            return
        found = [x for x in leaves((*args, *kwargs.values())) if isinstance(x, torch.Tensor)]
        ours = [x for x in found if storage_key(x) in self._states]
        if not ours:
            return
        target = args[0] if operations.writes(name) else kwargs.get("out")
        if target is not None:
            if not isinstance(target, torch.Tensor) or storage_key(target) not in self._states:
                self.used = True
                return
            made = [target]
        else:
            made = [x for x in leaves([result]) if isinstance(x, torch.Tensor)]
            self.used |= name in _HANDED_OUT or result is None
        for one in made:
            self._made(one, ours, frame)

    def _made(self, made: torch.Tensor, ours: list[torch.Tensor], frame: FrameType) -> None:
        now = gradient_state(made)
        before = [self._states[storage_key(x)] for x in ours if x.numel() == made.numel()]
        alike = [point for kind, point in before if kind == now]
        if now == FINE:
            point = None
        elif alike and (now == NAN or len(alike) == len(before)):
            point = alike[0]
        else:
            point = self._own(frame)
        self._note(made, now, point)

    def _note(self, tensor: torch.Tensor, kind: str, point: Point | None) -> None:
        self._alive.append(tensor)
        self._states[storage_key(tensor)] = kind, point

    def _own(self, frame: FrameType | None) -> Point | None:
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        return (frame.f_code, frame.f_lasti) if frame is not None else None


def _name(func: Any) -> str:
    name = str(getattr(func, "__name__", ""))
    if name in ("__get__", "__set__"):
        return f"{func.__self__.__name__}{'=' if name == '__set__' else ''}"
    return name


HIDDEN, REFUSED = "hidden", "refused"


@dataclass(frozen=True)
class HookEffect:
    """One call of a hook that put something wrong in the place of a gradient.

    Attributes:
        kind: ``"zero"`` (or nothing at all), ``"nan"``, or ``"hidden"``: zeros for a gradient that held nan or inf;
            ``"refused"``: what torch does not take.
        key: equal for hooks of the same code.
        code: the hook's own, None for a function of torch's.
        point: where in the hook that came about, None if not seen.
        registered: the user's frames where it was registered in this run, ``()`` if before.
        owner: name of the parameter that it is a hook of, ``""`` if of anything else.
        emptied: it worked on a parameter's ``.grad``, after that was filled.
        partial: of a parameter's hook: it lets a gradient through that is as large and spread evenly, as a mask does.
    """

    kind: str
    key: Key
    code: CodeType | None
    point: Point | None
    registered: Chain
    owner: str = ""
    emptied: bool = False
    partial: bool = False


@dataclass(frozen=True)
class Hook:
    """A hook of the user's: what is called, and what ``HookEffect`` is to say of it."""

    call: Callable[..., Any]
    key: Key
    code: CodeType | None
    registered: Chain
    owner: str
    tell: Callable[[HookEffect], None]

    def on_tensor(self, grad: torch.Tensor) -> None:
        """Stand for a hook of ``Tensor.register_hook``."""
        with torch._C.DisableTorchFunction():
            before, given = gradient_state(grad), grad.clone()
        with GradientWatch([given], self.code) as watch, _heard(watch):
            result = self._call(given)
        if result is not None and not _fits(result, grad):
            self._refuse()
            return
        after = given if result is None else result
        kind, point = _kind(before, after), watch.point_of(after)
        del given, result, after
        if kind:
            self._say(kind, point, watch, grad)

    def on_filled(self, parameter: torch.Tensor) -> None:
        """Stand for a hook of ``register_post_accumulate_grad_hook``; the parameter keeps its ``.grad``."""
        filled = parameter.grad
        if filled is None:
            self._call(parameter)
            return
        try:
            with torch._C.DisableTorchFunction():
                before, parameter.grad = gradient_state(filled), filled.clone()
            with GradientWatch([parameter.grad], self.code) as watch, _heard(watch):
                if self._call(parameter) is not None:
                    self._refuse()
            kind = _kind(before, parameter.grad)
            point = watch.point_of(parameter.grad) or watch.put
            if kind:
                self._say(kind, point, watch, filled, parameter)
        finally:
            parameter.grad = filled

    def on_module(self, module: Any, *groups: Any) -> None:
        """Stand for a hook of a module, which is handed the gradients of its inputs and outputs, or of its outputs."""
        with torch._C.DisableTorchFunction():
            copies = [tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in group) for group in groups]
        with GradientWatch([x for group in copies for x in group if isinstance(x, torch.Tensor)], self.code) as watch:
            result = self._call(module, *copies)
        after = copies[0] if result is None else result
        if not _fit(after, groups[0]):
            self._refuse()
            return
        for before, now in zip(groups[0], after, strict=True):
            kind = _kind(gradient_state(before), now) if isinstance(before, torch.Tensor) else ""
            if kind:
                self.tell(HookEffect(kind, self.key, self.code, watch.point_of(now), self.registered))
                break

    @on_behalf
    def _call(self, *given: Any) -> Any:
        return self.call(*given)

    def _refuse(self) -> None:
        self.tell(HookEffect(REFUSED, self.key, self.code, None, self.registered, self.owner))

    def _say(
        self,
        kind: str,
        point: Point | None,
        watch: GradientWatch,
        grad: torch.Tensor,
        parameter: torch.Tensor | None = None,
    ) -> None:
        """Tell of it, unless it is a parameter's hook that has put the gradient to use itself."""
        partial = False
        if self.owner:
            if watch.kept():
                return
            partial = kind == ZERO and self._lets_through(grad, parameter)
        emptied = parameter is not None
        self.tell(HookEffect(kind, self.key, self.code, point, self.registered, self.owner, emptied, partial))

    def _lets_through(self, grad: torch.Tensor, parameter: torch.Tensor | None) -> bool:
        if grad.layout is not torch.strided:
            return False
        with torch.no_grad(), torch._C.DisableTorchFunction(), contextlib.suppress(Exception):
            even = torch.full_like(grad, float(grad.norm()) / math.sqrt(grad.numel()))
            if parameter is None:
                result = self.call(even)
                return gradient_state(even if result is None else result) != ZERO
            parameter.grad = even
            self.call(parameter)
            return gradient_state(parameter.grad) != ZERO
        return False


def _fits(result: Any, grad: Any) -> bool:
    """Whether torch takes it in the place of a gradient."""
    if not isinstance(result, torch.Tensor) or not isinstance(grad, torch.Tensor):
        return result is None
    return result.shape == grad.shape and result.dtype == grad.dtype and result.device == grad.device


def _fit(results: Any, grads: Any) -> bool:
    if not isinstance(results, (tuple, list)) or len(results) != len(grads):
        return False
    return all(result is None or _fits(result, grad) for result, grad in zip(results, grads, strict=True))


def _kind(before: str, after: torch.Tensor | None) -> str:
    """What was put in the place of a gradient, ``""`` if nothing that matters."""
    now = gradient_state(after)
    if before == FINE:
        return now if now != FINE else ""
    return HIDDEN if (before, now) == (NAN, ZERO) else ""


@contextlib.contextmanager
def _heard(watch: GradientWatch) -> Iterator[None]:
    """An optimizer that steps in the hook makes use of the gradient."""

    def stepped(*_: Any) -> None:
        watch.used = True

    handle = register_optimizer_step_pre_hook(stepped)
    try:
        yield
    finally:
        handle.remove()
