"""What a run can change outside of the model: random state, grad mode, and whatever else a process has one of."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizers
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _device, _python_dispatch

from gradkit.core import patches

Back = Callable[[], None]

_NONE: Any = object()

_autograd: Any = torch._C._autograd
_TABLES: tuple[dict[Any, Any], ...] = (
    *(table for name, table in vars(module_hooks).items() if name.startswith("_global_") and isinstance(table, dict)),
    optimizers._global_optimizer_pre_hooks,  # noqa: SLF001
    optimizers._global_optimizer_post_hooks,  # noqa: SLF001
)
_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))


def remember_process() -> list[Back]:
    """Functions that put everything back as it is now. They may be called more than once."""
    parts = [random_draws(), modes_left_open(), _grad_mode(), *(_table(one) for one in _TABLES)]
    parts += [_autocast(kind) for kind in ("cpu", *(["cuda"] if torch.cuda.is_available() else []))]
    parts += [_setting(get, put) for get, put in _settings()]
    parts += [_filters(), _environment(), _traced(), _entries(sys.path), _entries(sys.argv)]
    return [*parts, _signals()]


def random_draws() -> Back:
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


def _random() -> Back:
    state, torch_state = random.getstate(), torch.get_rng_state()

    def back() -> None:
        random.setstate(state)
        torch.set_rng_state(torch_state)

    return back


def _cuda() -> Back:
    state = torch.cuda.get_rng_state_all()
    return lambda: torch.cuda.set_rng_state_all(state)


def _numpy() -> Back:
    import numpy as np

    state = np.random.get_state()
    return lambda: np.random.set_state(state)


def _grad_mode() -> Back:
    on = torch.is_grad_enabled()
    return lambda: torch._C._set_grad_enabled(on)  # noqa: SLF001  set_grad_enabled() is an object that does more


# -- modes that were entered and not left ---------------------------------------------------------------------------


def modes_left_open() -> Back:
    """A function that leaves the modes entered since: function modes, dispatch modes, hooks for saved tensors.

    Example:
        >>> from torch.overrides import TorchFunctionMode
        >>> back = modes_left_open()
        >>> _ = TorchFunctionMode().__enter__()
        >>> back(); torch._C._len_torch_function_stack()
        0
    """
    functions: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    held = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    default, current = getattr(held, "device_context", _NONE), vars(_device).get("CURRENT_DEVICE")
    dispatch, saved, hearing = _dispatching(), _saved_hooks(), _hearing()

    def back() -> None:
        hearing()
        now: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        if [id(one) for one in now] != [id(one) for one in functions]:
            for _ in now:
                _pop_mode()  # type: ignore[no-untyped-call]
            for one in functions:
                _push_mode(one)  # type: ignore[no-untyped-call]
        if held is not None and getattr(held, "device_context", _NONE) is not default:
            if default is _NONE:
                del held.device_context
            else:
                held.device_context = default
        vars(_device)["CURRENT_DEVICE"] = current
        dispatch()
        saved()

    return back


def _hearing() -> Back:
    """Whether function modes are asked at all: ``DisableTorchFunction``."""
    get, put = (getattr(torch._C, f"_{verb}_torch_function_state", None) for verb in ("get", "set"))
    if get is None or put is None:
        return lambda: None
    state = get()
    return lambda: put(state)


def _dispatching() -> Back:
    count = torch._C._len_torch_dispatch_stack()  # noqa: SLF001

    def back() -> None:
        while torch._C._len_torch_dispatch_stack() > count:  # noqa: SLF001
            top: Any = _python_dispatch._get_current_dispatch_mode_stack()[-1]  # noqa: SLF001
            top.__exit__(None, None, None)  # it has set more than its place on the stack

    return back


def _saved_hooks() -> Back:
    top = getattr(_autograd, "_top_saved_tensors_default_hooks", None)
    if top is None:
        return lambda: None
    before = top(True)

    def back() -> None:
        while (now := top(True)) is not None and not _same_pair(now, before):
            _autograd._pop_saved_tensors_default_hooks()  # noqa: SLF001

    return back


def _same_pair(now: Any, before: Any) -> bool:
    return before is not None and all(one is other for one, other in zip(now, before, strict=True))


def _autocast(kind: str) -> Back:
    enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    cache, depth = torch.is_autocast_cache_enabled(), _autocast_depth()

    def back() -> None:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(cache)
        while _autocast_depth() > depth:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()

    return back


def _autocast_depth() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


# -- settings -------------------------------------------------------------------------------------------------------


def _settings() -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """How each setting is read and set."""
    backends: Any = torch.backends
    settings: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.is_warn_always_enabled, torch.set_warn_always),
        (_anomaly, lambda both: torch.set_anomaly_enabled(*both)),
        (sys.getrecursionlimit, sys.setrecursionlimit),
        (sys.getswitchinterval, sys.setswitchinterval),
        (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        (gc.get_threshold, lambda three: gc.set_threshold(*three)),
        (_cwd, lambda path: os.chdir(path or ".")),
        *(
            (getattr(backends.cuda, f"{kind}_sdp_enabled"), getattr(backends.cuda, f"enable_{kind}_sdp"))
            for kind in ("flash", "math", "mem_efficient", "cudnn")
            if hasattr(backends.cuda, f"enable_{kind}_sdp")
        ),
        *(_attribute(backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
        _attribute(backends.mkldnn, "enabled"),
        _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
        *(_attribute(sys, name) for name in ("stdout", "stderr", "stdin", "excepthook", "displayhook")),
        _attribute(sys, "dont_write_bytecode"),
        _attribute(threading, "excepthook"),
        _attribute(warnings, "showwarning"),
    ]
    mode: Any = torch._C
    settings.append((mode._is_multithreading_enabled, mode._set_multithreading_enabled))  # noqa: SLF001
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        settings.append((numpy.geterr, lambda how: numpy.seterr(**how)))
    return settings


def _attribute(holder: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return lambda: getattr(holder, name), lambda value: setattr(holder, name, value)


def _setting(get: Callable[[], Any], put: Callable[[Any], object]) -> Back:
    try:
        kept = get()
    except (RuntimeError, OSError, AttributeError):  # a folder that is gone, a setting of two minds
        return lambda: None

    def back() -> None:
        now = get()
        if now is not kept and now != kept:
            put(kept)

    return back


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _cwd() -> str:
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return ""


def _filters() -> Back:
    """The list itself too: ``catch_warnings`` puts another in its place."""
    holder: Any = warnings
    filters, entries = holder.filters, list(holder.filters)

    def back() -> None:
        if holder.filters is not filters or filters != entries:
            filters[:] = entries
            holder.filters = filters
            holder._filters_mutated() if hasattr(holder, "_filters_mutated") else holder._filters_mutated_lock_held()  # noqa: SLF001

    return back


def _environment() -> Back:
    kept = dict(os.environ)

    def back() -> None:
        if dict(os.environ) != kept:
            for name in [name for name in os.environ if name not in kept]:
                del os.environ[name]
            os.environ.update(kept)

    return back


def _traced() -> Back:
    """A trace function that the step has set and left; one from before is a debugger's, which may change it."""
    traced, profiled = sys.gettrace(), sys.getprofile()

    def back() -> None:
        if traced is None and sys.gettrace() is not None:
            sys.settrace(None)
        if profiled is None and sys.getprofile() is not None:
            sys.setprofile(None)

    return back


def _signals() -> Back:
    kept = {number: handler for number in _SIGNALS if (handler := patches.handler(number)) is not None}

    def back() -> None:
        for number, handler in kept.items():
            patches.set_handler(number, handler)

    return back


def _entries(held: list[Any]) -> Back:
    kept = list(held)

    def back() -> None:
        if held != kept:
            held[:] = kept

    return back


def _table(table: dict[Any, Any]) -> Back:
    copy = dict(table)

    def back() -> None:
        if table.keys() != copy.keys():
            table.clear()
            table.update(copy)

    return back
