"""What a run can change outside of the model: random state, grad mode, autocast, default dtype, global module hooks."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

_GLOBAL_HOOKS = tuple(name for name in vars(module_hooks) if name.startswith("_global_") and name.endswith("hooks"))


def remember() -> list[Callable[[], None]]:
    """Functions that put everything back as it is now. They may be called more than once."""
    parts = [draws(), _grad_mode(), _dtype(), _hooks()]
    parts += [_autocast(kind) for kind in ("cpu", *(["cuda"] if torch.cuda.is_available() else []))]
    return parts


def draws() -> Callable[[], None]:
    """A function that puts the process's own random generators back: of torch on CPU and GPU, NumPy, ``random``."""
    parts = [_random()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        parts.append(_cuda())
    if "numpy" in sys.modules:
        parts.append(_numpy())

    def back() -> None:
        for part in parts:
            part()

    return back


def _random() -> Callable[[], None]:
    state, torch_state = random.getstate(), torch.get_rng_state()

    def back() -> None:
        random.setstate(state)
        torch.set_rng_state(torch_state)

    return back


def _cuda() -> Callable[[], None]:
    state = torch.cuda.get_rng_state_all()
    return lambda: torch.cuda.set_rng_state_all(state)


def _numpy() -> Callable[[], None]:
    import numpy as np

    state = np.random.get_state()
    return lambda: np.random.set_state(state)


def _grad_mode() -> Callable[[], None]:
    on = torch.is_grad_enabled()
    return lambda: torch._C._set_grad_enabled(on)  # noqa: SLF001  set_grad_enabled() is an object that does more


def _dtype() -> Callable[[], None]:
    dtype = torch.get_default_dtype()
    return lambda: torch.set_default_dtype(dtype)


def _autocast(kind: str) -> Callable[[], None]:
    enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

    def back() -> None:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)

    return back


def _hooks() -> Callable[[], None]:
    tables: list[dict[Any, Any]] = [vars(module_hooks)[name] for name in _GLOBAL_HOOKS]
    copies = [dict(table) for table in tables]

    def back() -> None:
        for table, copy in zip(tables, copies, strict=True):
            if table.keys() != copy.keys():
                table.clear()
                table.update(copy)

    return back
