"""All that a diagnosis could change about a model and its process, taken down so that before and after compare."""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import amp, autograd, nn
from torch._functorch import eager_transforms, vmap
from torch.autograd import grad_mode
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizers
from torch.utils import checkpoint


def _value(tensor: torch.Tensor | None) -> Any:
    """Its content as comparable bytes, nan and sign of zero included."""
    if tensor is None or tensor.is_meta or nn.parameter.is_lazy(tensor):
        return None
    plain = tensor.detach().clone()
    if plain.is_quantized:
        plain = plain.int_repr()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    return tuple(plain.shape), plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else ()


def of_tensor(tensor: torch.Tensor | None) -> dict[str, Any]:
    """Which tensor it is, what is in it, its memory, its flags, and the same of its gradient."""
    if tensor is None:
        return {}
    memory = 0
    if not nn.parameter.is_lazy(tensor) and tensor.layout is torch.strided:
        memory = tensor.data_ptr()
    grad = tensor.grad if tensor.is_leaf else None
    return {
        "object": id(tensor), "class": type(tensor).__name__, "dtype": tensor.dtype, "memory": memory,
        "value": _value(tensor), "requires_grad": tensor.requires_grad, "leaf": tensor.is_leaf,
        "grad": id(grad) if grad is not None else None, "grad value": _value(grad),
        "hooks": _table(tensor._backward_hooks),
        "post hooks": _table(getattr(tensor, "_post_accumulate_grad_hooks", None)),
    }  # fmt: skip


def _table(hooks: Any) -> list[tuple[Any, int]]:
    return [(key, id(hook)) for key, hook in (hooks or {}).items()]


def _attribute(value: Any) -> Any:
    """Containers by the identity of what is in them, tensors by all of them, everything else by identity."""
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, dict):
        return id(value), [(k, id(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return id(value), [id(v) for v in value]
    if isinstance(value, set):
        return id(value), sorted(map(repr, value))
    return id(value)


def of_module(model: nn.Module) -> dict[str, Any]:
    """Every module with all of its attributes, tables of hooks among them."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        found[path, "class"] = type(module)
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers") and isinstance(value, dict):
                found[path, name] = id(value), list(value)
                for key, tensor in value.items():
                    found.update({(path, name, key, aspect): seen for aspect, seen in of_tensor(tensor).items()})
            else:
                found[path, name] = _attribute(value)
    return found


# Older releases of torch do not tell it.
TOP_OF_HOOKS = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def of_process() -> dict[str, Any]:
    """Random states, modes, hooks for all modules, and the functions that a trace patches."""
    hooks = {
        name: list(table)
        for name, table in vars(module_hooks).items()
        if name.startswith("_global_") and isinstance(table, dict)
    }
    return {
        "torch random": torch.get_rng_state().tolist(),
        "numpy random": [str(part) for part in np.random.get_state()],
        "random": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "default dtype": torch.get_default_dtype(),
        "anomaly": torch.is_anomaly_enabled(),
        "global hooks": hooks,
        "inference enter": grad_mode.inference_mode.__enter__,
        "inference exit": grad_mode.inference_mode.__exit__,
        "checkpoint": checkpoint.CheckpointFunction,
        "backward": torch.autograd.backward,
        "tensor hooks": (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook),
        "module hooks": (nn.Module._get_backward_hooks, nn.Module._get_backward_pre_hooks),
        "optimizer hooks": list(optimizers._global_optimizer_pre_hooks),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "function modes are asked": torch._C._is_torch_function_enabled(),
        "hooks for saved tensors": str(TOP_OF_HOOKS(True)) if TOP_OF_HOOKS is not None else None,
        "device": torch.get_default_device(),
        "determinism": (torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "backends": (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark),
        "warnings": (id(warnings.filters), [str(one) for one in warnings.filters], torch.is_warn_always_enabled()),
        "numpy errors": np.geterr(),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval()),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "path": list(sys.path),
        "streams": (id(sys.stdout), id(sys.stderr), sys.excepthook, threading.excepthook),
        "traced": (sys.gettrace(), sys.getprofile()),
        "signals": (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)),
        "functions": of_functions(),
    }  # fmt: skip


_PATCHED = (
    math, np, torch.Tensor, torch.autograd, autograd.Function, nn.Module, threading.Thread, ThreadPoolExecutor,
    amp.GradScaler, optimizers.Optimizer, checkpoint, type(nn.Parameter), type(autograd.Variable), vmap,
    eager_transforms,
)  # fmt: skip


def of_functions() -> dict[tuple[str, str], int]:
    """The functions that a diagnosis may put others in the place of."""
    return {
        (owner.__name__, name): id(value)
        for owner in _PATCHED
        for name, value in list(vars(owner).items())
        if callable(value) or isinstance(value, (staticmethod, classmethod))
    }


def take(model: nn.Module, *others: nn.Module | torch.Tensor) -> dict[str, Any]:
    """Everything. ``others``: tensors and modules that are not in the model and that the step touches."""
    found: dict[str, Any] = {("model", *key): value for key, value in of_module(model).items()}
    for i, other in enumerate(others):
        if isinstance(other, torch.Tensor):
            found.update({(f"tensor {i}", aspect): seen for aspect, seen in of_tensor(other).items()})
        else:
            found.update({(f"other {i}", *key): value for key, value in of_module(other).items()})
    found.update(of_process())
    return found


def differences(before: dict[Any, Any], after: dict[Any, Any]) -> list[str]:
    """What changed, as short lines; empty if nothing did."""
    return [
        _line(key, before.get(key), after.get(key)) for key in _keys(before, after) if before.get(key) != after.get(key)
    ]


def _keys(*tables: dict[Any, Any]) -> Iterable[Any]:
    return dict.fromkeys(key for table in tables for key in table)


def _line(key: Any, was: Any, now: Any) -> str:
    return f"{key}: {str(was)[:200]} -> {str(now)[:200]}"
