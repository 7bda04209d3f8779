"""Put back everything that a run could change.

``Preserved`` is a context manager around all runs of one diagnosis. It remembers by reference wherever it can (a
module's dictionaries, the ``.grad`` tensors themselves) and copies only what is written in place: buffers always (they
are small, and BatchNorm writes them unseen), parameters and other tensors at their first write, told by the tracer.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradkit import surroundings

_CONTAINERS = (dict, OrderedDict, list, set, deque)


class Preserved:
    """Everything as it was before, also after an exception or Ctrl-C.

    Covers weights, buffers, ``.grad``, ``requires_grad`` and train/eval flags, hooks, the attributes of every module
    seen and the lists and dictionaries in them, tensors written in place, the state of optimizers that step, the random
    state (torch on CPU and GPU, NumPy, ``random``), grad mode, autocast and default dtype. Does not cover what a step
    does to objects that are neither (a counter of its own, a file).

    Attributes:
        parameters: the model's parameters by name, as they were: a step may put others in their place.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
        >>> with Preserved(model):
        ...     _ = model(torch.randn(4, 2)).sum().backward()
        >>> model[0].running_mean.tolist(), model[0].weight.grad
        ([0.0, 0.0], None)
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        self._modules: dict[int, tuple[nn.Module, dict[str, Any]]] = {}
        self._memory: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._contents: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._leaves: dict[int, _Leaf] = {}
        self._optimizers: dict[int, tuple[torch.optim.Optimizer, dict[Any, Any], list[dict[str, Any]]]] = {}

    def __enter__(self) -> Preserved:
        self._around = surroundings.remember()
        self.watch(self.model)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        errors = self.rewind()
        for leaf in self._leaves.values():
            _attempt(leaf.restore_grad, errors)
        if errors and error is None:
            raise errors[0]

    @property
    def modules(self) -> list[nn.Module]:
        """Every module seen: the model's, and those that a step ran beside it."""
        return [module for module, _ in self._modules.values()]

    # -- what to remember ---------------------------------------------------------------------------------------

    def watch(self, root: nn.Module) -> None:
        """Remember a module and all below it, unless already known."""
        for module in root.modules():
            if id(module) in self._modules:
                continue
            self._modules[id(module)] = (module, _shallow(module))
            for buffer in module._buffers.values():
                if buffer is not None and not is_lazy(buffer):
                    self.before_write(buffer)
            for parameter in module._parameters.values():
                if parameter is not None:
                    self.leaf(parameter)

    def leaf(self, tensor: torch.Tensor) -> bool:
        """Remember a leaf's memory, ``.grad``, flag and hooks, before a backward fills it. False if already known."""
        if id(tensor) in self._leaves or is_lazy(tensor):
            return False
        self._leaves[id(tensor)] = _Leaf(tensor)
        self._memory.setdefault(id(tensor), (tensor, tensor.detach()))
        return True

    def before_write(self, tensor: torch.Tensor) -> None:
        """Copy a tensor that is about to be written in place, unless already copied."""
        if id(tensor) not in self._contents:
            self._memory.setdefault(id(tensor), (tensor, tensor.detach()))
            self._contents[id(tensor)] = (tensor, tensor.detach().clone())

    def optimizer(self, optimizer: Any) -> None:
        """Remember an optimizer's state and settings, before it steps; of one that wraps others, theirs."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            for inner in _optimizers_in(vars(optimizer).values()) if hasattr(optimizer, "__dict__") else ():
                self.optimizer(inner)
        elif id(optimizer) not in self._optimizers:
            state = {p: dict(entries) for p, entries in optimizer.state.items()}
            self._optimizers[id(optimizer)] = (optimizer, state, [dict(group) for group in optimizer.param_groups])

    # -- putting back -------------------------------------------------------------------------------------------

    def rewind(self) -> list[Exception]:
        """Put back all but the gradients: also between two runs of the same step. Returns what could not be."""
        errors: list[Exception] = []
        for back in self._around[1:]:
            _attempt(back, errors)
        for module, state in self._modules.values():
            _attempt(partial(_put_back, module, state), errors)
        for tensor, memory in self._memory.values():
            _attempt(partial(_restore_memory, tensor, memory), errors)
        for tensor, copy in reversed(self._contents.values()):
            _attempt(partial(_restore_contents, tensor, copy), errors)
        for leaf in self._leaves.values():
            _attempt(leaf.restore_flags, errors)
        for entry in self._optimizers.values():
            _attempt(partial(_restore_optimizer, *entry), errors)
        _attempt(self._around[0], errors)
        return errors

    def clear_grads(self, *, only_old: bool = False) -> None:
        """Take the gradients of every leaf away, so that a backward starts from nothing.

        Args:
            only_old: leave those that came into being since.
        """
        for leaf in self._leaves.values():
            if not only_old or leaf.tensor.grad is leaf.grad:
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


def _shallow(module: nn.Module) -> dict[str, Any]:
    return {
        name: (value, type(value)(value) if type(value) in _CONTAINERS else None)
        for name, value in module.__dict__.items()
    }


def _put_back(module: nn.Module, state: dict[str, Any]) -> None:
    now = module.__dict__
    for name in [name for name in now if name not in state]:
        del now[name]
    for name, (value, entries) in state.items():
        if now.get(name) is not value:
            now[name] = value
        if entries is not None and _changed(value, entries):
            value.clear()
            (value.update if isinstance(value, (dict, set)) else value.extend)(entries)


def _changed(value: Any, entries: Any) -> bool:
    """Compare by identity: tensors cannot be compared by ``==`` inside a dictionary."""
    if isinstance(value, dict):
        return [(k, id(v)) for k, v in value.items()] != [(k, id(v)) for k, v in entries.items()]
    if isinstance(value, set):
        return bool(value.symmetric_difference(entries))
    return [id(v) for v in value] != [id(v) for v in entries]


def _restore_memory(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Undo ``p.data = ...``, ``.to(dtype)``, ``set_`` and ``resize_``: the tensor gets its own memory back."""
    if tensor.is_meta or tensor.layout is not torch.strided or memory.layout is not torch.strided:
        return
    if tensor.dtype != memory.dtype or tensor.shape != memory.shape or tensor.data_ptr() != memory.data_ptr():
        tensor.data = memory


def _restore_contents(tensor: torch.Tensor, copy: torch.Tensor) -> None:
    if not _same(tensor, copy):
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            (tensor if tensor.is_inference() else tensor.data).copy_(copy)


def _same(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    if tensor.is_meta or copy.is_meta:
        return True
    if tensor.shape != copy.shape or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    with torch.no_grad():
        return bool(((tensor == copy) | ((tensor != tensor) & (copy != copy))).all())


def _optimizers_in(values: Iterable[Any]) -> Iterator[torch.optim.Optimizer]:
    """Optimizers among values, and in lists, tuples and dicts of them."""
    for value in values:
        if isinstance(value, torch.optim.Optimizer):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _optimizers_in(value)
        elif isinstance(value, dict):
            yield from _optimizers_in(value.values())


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: dict[Any, Any], groups: list[dict[str, Any]]) -> None:
    optimizer.state.clear()
    optimizer.state.update({p: dict(entries) for p, entries in state.items()})
    del optimizer.param_groups[len(groups) :]
    for group, saved in zip(optimizer.param_groups, groups, strict=True):
        group.clear()
        group.update(saved)
