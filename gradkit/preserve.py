"""Put back everything that a run could change.

``Preserved`` is a context manager around all runs of one diagnosis. It remembers by reference wherever it can (a
module's dictionaries, the ``.grad`` tensors themselves) and copies only what is written in place: buffers always (they
are small, and BatchNorm writes them unseen), parameters and other tensors at their first write, told by the tracer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradkit import belongings, registered, strangers, surroundings, tapes, undo
from gradkit.contents import Back
from gradkit.unreal import has_no_numbers


class Preserved:
    """Everything as it was before, also after an exception or Ctrl-C.

    Covers the model, the random state and modes of the process, and all that ``belongings`` finds within reach of the
    step: other modules, optimizers and schedulers, random generators, containers, objects of the user's, names, data
    that was begun. ``docs/no_trace.md`` says it in full, and what is not covered.

    Args:
        model: the model.
        step: the step that is going to be run; None if only the model is to be put back.

    Attributes:
        parameters: the model's parameters by name, as they were: a step may put others in their place.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
        >>> with Preserved(model):
        ...     _ = model(torch.randn(4, 2)).sum().backward()
        >>> model[0].running_mean.tolist(), model[0].weight.grad
        ([0.0, 0.0], None)
    """

    def __init__(self, model: nn.Module, step: object = None) -> None:
        self.model, self.step = model, step
        self.parameters = dict(registered.parameters(model, twice=True))
        self._memory: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._contents: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._leaves: dict[int, _Leaf] = {}
        self._cleared: set[int] = set()
        self._modules: dict[int, nn.Module] = {}
        self._reached: dict[int, tuple[Any, Back | None]] = {}

    def __enter__(self) -> Preserved:
        self._around = surroundings.remember()
        self.reach(self.step, self.model)
        self.watch(self.model)
        self._tapes = tapes.Tapes((thing for thing, _ in list(self._reached.values())), self.reach)
        try:
            self._tapes.start()
        except BaseException:
            self._put_back()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        errors = self._put_back()
        _attempt(self._tapes.end, errors)
        for leaf in self._leaves.values():
            _attempt(leaf.restore_grad, errors)
        if errors and error is None:
            raise errors[0]

    @property
    def modules(self) -> list[nn.Module]:
        """Every module seen: the model's, and those that a step ran beside it."""
        return list(self._modules.values())

    # -- what to remember ---------------------------------------------------------------------------------------

    def reach(self, *roots: Any) -> None:
        """Remember whatever can be reached from here, unless already known."""
        for thing in belongings.of(*roots):
            if id(thing) not in self._reached:
                self._reached[id(thing)] = thing, undo.of(thing, belongings.is_kept(thing))
                if strangers.is_a(thing, torch.Tensor) and isinstance(thing, nn.Parameter):
                    self._leaf(thing)

    def watch(self, root: nn.Module) -> None:
        """Remember a module that runs, and all below it, unless already known."""
        if id(root) not in self._reached:
            self.reach(root)
        for module in registered.each(root):
            if id(module) in self._modules:
                continue
            self._modules[id(module)] = module
            for parameter in module._parameters.values():
                if parameter is not None:
                    self.leaf(parameter)
            for buffer in module._buffers.values():
                if buffer is not None and not is_lazy(buffer):
                    self.before_write(buffer)

    def leaf(self, tensor: torch.Tensor) -> None:
        """Remember a leaf before a backward fills it; its gradient is one of those that are cleared."""
        self._leaf(tensor)
        self._cleared.add(id(tensor))

    def _leaf(self, tensor: torch.Tensor) -> None:
        """Remember a leaf's memory, ``.grad``, flag and hooks."""
        if id(tensor) not in self._leaves and not is_lazy(tensor):
            self._leaves[id(tensor)] = _Leaf(tensor)
            self._memory.setdefault(id(tensor), (tensor, tensor.detach()))

    def before_write(self, tensor: torch.Tensor) -> None:
        """Copy a tensor that is about to be written in place, unless already copied."""
        if id(tensor) not in self._contents:
            self._memory.setdefault(id(tensor), (tensor, tensor.detach()))
            self._contents[id(tensor)] = (tensor, tensor.detach().clone())

    def optimizer(self, optimizer: Any) -> None:
        """Remember an optimizer's state and settings, before it steps; of one that wraps others, theirs."""
        if id(optimizer) not in self._reached:
            self.reach(optimizer)

    # -- putting back -------------------------------------------------------------------------------------------

    def rewind(self) -> list[Exception]:
        """Put back all but the model's gradients, for another run of the same step. Returns what could not be."""
        errors = self._put_back()
        self._tapes.start()
        return errors

    def _put_back(self) -> list[Exception]:
        errors: list[Exception] = []
        for back in self._around[1:]:
            _attempt(back, errors)
        for _, known in self._reached.values():
            if known is not None:
                _attempt(known, errors)
        for tensor, memory in self._memory.values():
            _attempt(partial(_restore_memory, tensor, memory), errors)
        for tensor, copy in reversed(self._contents.values()):
            _attempt(partial(_restore_contents, tensor, copy), errors)
        own = {id(parameter) for parameter in self.parameters.values()}
        for key, leaf in self._leaves.items():
            _attempt(leaf.restore_flags, errors)
            if key not in own:
                _attempt(leaf.restore_grad, errors)
        _attempt(self._around[0], errors)
        return errors

    def clear_grads(self, *, only_old: bool = False) -> None:
        """Take gradients away, so that a backward starts from nothing: the model's, and those of whatever has run.

        Args:
            only_old: leave those that came into being since.
        """
        for key, leaf in self._leaves.items():
            if key in self._cleared and (not only_old or leaf.tensor.grad is leaf.grad):
                leaf.tensor.grad = None


class _Leaf:
    """A leaf tensor with its gradient, flag and hooks as they were."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.grad, self.flag = tensor, tensor.grad, tensor.requires_grad
        self.hooks = {name: _copy(getattr(tensor, name, None)) for name in TENSOR_HOOKS}

    def restore_grad(self) -> None:
        if self.tensor.grad is not self.grad:
            self.tensor.grad = self.grad

    def restore_flags(self) -> None:
        if self.tensor.requires_grad is not self.flag and self.tensor.is_leaf:
            self.tensor.requires_grad_(self.flag)
        for name, hooks in self.hooks.items():
            if dict(getattr(self.tensor, name, None) or {}) != (hooks or {}):
                setattr(self.tensor, name, None if hooks is None else OrderedDict(hooks))


TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _copy(hooks: Any) -> dict[Any, Any] | None:
    return None if hooks is None else dict(hooks)


def _attempt(back: Callable[[], object], errors: list[Exception]) -> None:
    """One part that cannot be put back must not keep the others from it."""
    try:
        back()
    except Exception as error:  # noqa: BLE001
        errors.append(error)


def _restore_memory(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Undo ``p.data = ...``, ``.to(dtype)``, ``set_`` and ``resize_``: the tensor gets its own memory back."""
    if has_no_numbers(tensor) or tensor.layout is not torch.strided or memory.layout is not torch.strided:
        return
    if tensor.dtype != memory.dtype or tensor.shape != memory.shape or tensor.data_ptr() != memory.data_ptr():
        tensor.data = memory


def _restore_contents(tensor: torch.Tensor, copy: torch.Tensor) -> None:
    if not _same(tensor, copy):
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            (tensor if tensor.is_inference() else tensor.data).copy_(copy)


def _same(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    if has_no_numbers(tensor) or has_no_numbers(copy):
        return True
    if tensor.shape != copy.shape or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    with torch.no_grad():
        return bool(((tensor == copy) | ((tensor != tensor) & (copy != copy))).all())
