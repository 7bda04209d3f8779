"""Put back everything that a run could change.

``Preserved`` is a context manager around all runs of one diagnosis. It remembers by reference wherever it can (a
module's dictionaries, the ``.grad`` tensors themselves) and copies only what is written in place: buffers always (they
are small, and BatchNorm writes them unseen), parameters and other tensors at their first write, told by the tracer.
"""

from __future__ import annotations

import random
import sys
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy


class Preserved:
    """Everything as it was before, also after an exception or Ctrl-C.

    Covers weights, buffers, ``.grad``, ``requires_grad`` and train/eval flags, hooks, the attributes of every module
    seen, tensors written in place, the random state (torch on CPU and GPU, NumPy, ``random``), grad mode and autocast.
    Does not cover what a step does to objects that are neither modules nor tensors (a counter, a list, a file).

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
        self._buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._leaves: dict[int, tuple[torch.Tensor, torch.Tensor | None, bool]] = {}

    def __enter__(self) -> Preserved:
        self._random = _random_state()
        self._grad_mode = torch.is_grad_enabled()
        self._autocast = _autocast_state()
        self.watch(self.model)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rewind()
        for tensor, grad, _ in self._leaves.values():
            if tensor.grad is not grad:
                tensor.grad = grad

    def watch(self, root: nn.Module) -> None:
        """Remember a module and all below it, unless already known."""
        for module in root.modules():
            if id(module) in self._modules:
                continue
            self._modules[id(module)] = (module, _shallow(module))
            for buffer in module._buffers.values():
                if buffer is not None and id(buffer) not in self._buffers:
                    self._buffers[id(buffer)] = (buffer, buffer.detach().clone())
            for parameter in module._parameters.values():
                if parameter is not None:
                    self.leaf(parameter)

    def leaf(self, tensor: torch.Tensor) -> None:
        """Remember a leaf's ``.grad`` and flag, before a backward fills it."""
        if id(tensor) not in self._leaves and not is_lazy(tensor):
            self._leaves[id(tensor)] = (tensor, tensor.grad, tensor.requires_grad)

    def before_write(self, tensor: torch.Tensor) -> None:
        """Copy a tensor that is about to be written in place, unless already copied."""
        if id(tensor) not in self._written:
            self._written[id(tensor)] = (tensor, tensor.detach().clone())

    def rewind(self) -> None:
        """Put back all but the gradients: also between two runs of the same step."""
        torch.set_grad_enabled(self._grad_mode)
        _restore_autocast(self._autocast)
        for module, state in self._modules.values():
            _put_back(module, state)
        for tensor, copy in [*reversed(self._written.values()), *self._buffers.values()]:
            if not _same(tensor, copy):
                _overwrite(tensor, copy)
        self._written.clear()
        for tensor, _, flag in self._leaves.values():
            if tensor.requires_grad is not flag and tensor.is_leaf:
                tensor.requires_grad_(flag)
        _restore_random(self._random)

    def clear_grads(self) -> None:
        """Take the gradients of every leaf away, so that a backward starts from nothing."""
        for tensor, _, _ in self._leaves.values():
            tensor.grad = None

    def leaves(self) -> list[torch.Tensor]:
        """Every leaf known so far."""
        return [tensor for tensor, _, _ in self._leaves.values()]


def _shallow(module: nn.Module) -> dict[str, Any]:
    state = dict(module.__dict__)
    return {
        k: (v, type(v)(v)) if k.startswith("_") and type(v).__name__ in _TABLES else (v, None) for k, v in state.items()
    }


_TABLES = ("dict", "OrderedDict", "set")


def _put_back(module: nn.Module, state: dict[str, Any]) -> None:
    now = module.__dict__
    for name in [name for name in now if name not in state]:
        del now[name]
    for name, (value, entries) in state.items():
        if now.get(name) is not value:
            now[name] = value
        if entries is not None and _changed(value, entries):
            value.clear()
            value.update(entries)


def _changed(value: Any, entries: Any) -> bool:
    """Compare by identity: tensors cannot be compared by ``==`` inside a dictionary."""
    if isinstance(value, set):
        return bool(value != entries)
    return [(k, id(v)) for k, v in value.items()] != [(k, id(v)) for k, v in entries.items()]


def _same(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    if tensor.is_meta or copy.is_meta or tensor.shape != copy.shape:
        return tensor.is_meta or copy.is_meta
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    with torch.no_grad():
        return bool(((tensor == copy) | ((tensor != tensor) & (copy != copy))).all())


def _overwrite(tensor: torch.Tensor, copy: torch.Tensor) -> None:
    with torch.no_grad():
        if tensor.is_inference():
            with torch.inference_mode():
                tensor.copy_(copy)
        else:
            tensor.data.copy_(copy)


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"random": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        import numpy as np

        state["numpy"] = np.random.get_state()
    return state


def _restore_random(state: dict[str, Any]) -> None:
    random.setstate(state["random"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        import numpy as np

        np.random.set_state(state["numpy"])


def _autocast_state() -> list[tuple[str, bool, torch.dtype]]:
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]


def _restore_autocast(state: list[tuple[str, bool, torch.dtype]]) -> None:
    for kind, enabled, dtype in state:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
