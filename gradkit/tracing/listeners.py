"""What no function mode hears: Parameters made in the step, ``torch.func``, collectives, and threads.

Each is heard by what replaces a method of torch's or Python's while a run lasts. Calls of the classes Parameter and
Variable are heard by their metaclasses; the helpers that wrap and unwrap for ``vmap`` and ``grad`` are taken from the
transforms' modules; all collectives end in a method of ``ProcessGroup``; function modes hold in one thread only. What
``torch.compile`` compiled is run as it was written (``eager``).
Sources: https://github.com/pytorch/pytorch/tree/main/torch/_functorch,
https://pytorch.org/docs/stable/distributed.html, https://docs.python.org/3/library/threading.html#threading.Thread.run
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.nn import parameter as parameters
from torch.nn.modules import module as module_hooks

from gradkit.core import patches
from gradkit.core.operations import COPY, PARAMETER, VARIABLE
from gradkit.source.faults import on_behalf
from gradkit.tracing import ranks

HeardParameter = Callable[[str, torch.Tensor, torch.Tensor, FrameType], torch.Tensor]


@contextlib.contextmanager
def hear_parameters(tell: HeardParameter) -> Iterator[None]:
    """While the block runs, ``tell(name, made, data, frame)`` is called for each Parameter or Variable of this thread.

    What it returns is handed out.

    ``name`` is ``"Parameter"``, ``"deepcopy"`` (a Parameter that ``copy.deepcopy`` makes of another) or ``"Variable"``.
    """
    thread = threading.get_ident()

    @on_behalf
    def make(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = type.__call__(cls, *args, **kwargs)
        data = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)), None)
        if data is not None and isinstance(made, torch.Tensor) and threading.get_ident() == thread:
            frame = sys._getframe(1)
            copied = frame.f_code.co_filename == parameters.__file__
            return tell(VARIABLE if cls is Variable else COPY if copied else PARAMETER, made, data, frame)
        return made

    # Their classes are left alone: a class that is changed is slow from then on, and every call reads parameters.
    makers: tuple[Any, ...] = (type(nn.Parameter), type(Variable))
    with patches.undone():
        for maker in makers:
            patches.replace(maker, "__call__", make)
        yield


Carried = Callable[[], Any]
HeardCollective = Callable[[str, list[Any], list[Any], Carried, FrameType], Any]

_FILLING = {
    "allgather": "all_gather", "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor", "gather": "gather", "scatter": "scatter",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor", "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single", "all_to_all_single": "all_to_all_single",
}  # fmt: skip
_IN_PLACE = {"allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce"}


@contextlib.contextmanager
def hear_collectives(tell: HeardCollective) -> Iterator[None]:
    """While the block runs, ``tell(name, written, read, carry_out, frame)`` is called for each collective.

    Args:
        tell: carries the collective out by ``carry_out()`` and returns what that returned. ``written`` and ``read`` are
            tensors or lists of such, ``frame`` is that of the caller.
    """
    group = getattr(sys.modules.get("torch.distributed"), "ProcessGroup", None)
    if group is None or not torch.distributed.is_initialized():
        yield
        return
    with patches.undone():
        for name in (*_FILLING, *_IN_PLACE):
            if name in vars(group):
                patches.replace(group, name, _wrapped(name, getattr(group, name), tell))
        yield


def _wrapped(name: str, original: Any, tell: HeardCollective) -> Any:
    @functools.wraps(original)
    def collective(group: Any, *args: Any, **kwargs: Any) -> Any:
        ranks.arrive_at(group)
        written, read = list(args[:1]), list(args[1:2] if name in _FILLING else args[:1])

        @on_behalf
        def carry_out() -> Any:
            return original(group, *args, **kwargs)

        return tell(_FILLING.get(name) or _IN_PLACE[name], written, read, carry_out, sys._getframe(1))

    return collective


Fork = Callable[[FrameType], AbstractContextManager[None] | None]


@contextlib.contextmanager
def hear_threads(fork: Fork) -> Iterator[None]:
    """While the block runs, what is started in other threads runs inside of what ``fork(frame)`` returned for it.

    Args:
        fork: is called by the thread that starts another, with the frame that does; the context manager that it returns
            is entered and left by the other. None leaves that one alone.

    Example:
        >>> with hear_threads(lambda frame: contextlib.nullcontext(print("started"))):
        ...     thread = threading.Thread(target=print, args=("running",))
        ...     thread.start()
        ...     thread.join()
        started
        running
    """
    thread_class: Any = threading.Thread
    pool_class: Any = ThreadPoolExecutor
    start, submit = thread_class.start, pool_class.submit
    pooling = threading.local()

    @functools.wraps(start)
    @on_behalf
    def start_heard(thread: threading.Thread) -> None:
        around = None if getattr(pooling, "on", False) else fork(sys._getframe(1))
        if around is not None:
            _surround(thread, around)
        try:
            start(thread)
        except BaseException:
            vars(thread).pop("run", None)
            raise

    @functools.wraps(submit)
    @on_behalf
    def submit_heard(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        around = fork(sys._getframe(1))
        pooling.on = True  # the pool's own threads outlive the work
        try:
            return submit(pool, function if around is None else _inside(around, function), *args, **kwargs)
        finally:
            pooling.on = False

    with patches.undone():
        patches.replace(thread_class, "start", start_heard)
        patches.replace(pool_class, "submit", submit_heard)
        yield


def _surround(thread: threading.Thread, around: AbstractContextManager[None]) -> None:
    """What the thread runs, it runs inside of ``around``; nothing of that is left on it once it runs."""
    run = thread.run

    @on_behalf
    def run_inside() -> None:
        vars(thread).pop("run", None)
        with around:
            run()

    thread.run = run_inside  # type: ignore[method-assign]


def _inside(around: AbstractContextManager[None], function: Callable[..., Any]) -> Callable[..., Any]:
    @on_behalf
    def work(*args: Any, **kwargs: Any) -> Any:
        with around:
            return function(*args, **kwargs)

    return work


NAME = "vmap"
_HELPERS = (
    ("torch._functorch.vmap", "_add_batch_dim"),
    ("torch._functorch.vmap", "_remove_batch_dim"),
    ("torch._functorch.eager_transforms", "_wrap_for_grad"),
    ("torch._functorch.eager_transforms", "_unwrap_for_grad"),
)


@contextlib.contextmanager
def hear_vmap(tell: Callable[[torch.Tensor, torch.Tensor, FrameType], None]) -> Iterator[None]:
    """While the block runs, ``tell(made, given, frame)`` is called for each tensor that a transform wraps or unwraps.

    Heard are the transforms of ``torch.func``, and what they do in this thread.
    """
    modules = [(sys.modules[module], name) for module, name in _HELPERS if module in sys.modules]
    originals = [(module, name, getattr(module, name)) for module, name in modules]
    thread = threading.get_ident()

    def hearing(original: Callable[..., Any]) -> Callable[..., Any]:
        @on_behalf
        def helper(given: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(given, *args, **kwargs)
            tensors = isinstance(given, torch.Tensor) and isinstance(made, torch.Tensor)
            if tensors and made is not given and threading.get_ident() == thread:
                tell(made, given, sys._getframe(1))
            return made

        return helper

    with patches.undone():
        for module, name, original in originals:
            patches.replace(module, name, hearing(original))
        yield


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Run as it was written what ``torch.compile`` compiled: the user's lines are not in compiled code.

    The stance is set as the value that it is: torch refuses to change it where a compilation broke off.
    """
    before: list[tuple[ModuleType, Any]] = []
    with patches.undone():
        patches.later(partial(_take_back_stances, before))
        if _COMPILER in sys.modules:
            _force_eager(before)
        else:
            patches.replace(torch, "compile", _eager_first(torch.compile, before))
        yield


_COMPILER = "torch._dynamo.eval_frame"  # torch imports it when something is compiled for the first time


def _force_eager(before: list[tuple[ModuleType, Any]]) -> None:
    compiler: Any = importlib.import_module(_COMPILER)
    before.append((compiler, compiler._stance))  # noqa: SLF001
    compiler._stance = compiler.DynamoStance("force_eager")  # noqa: SLF001


def _take_back_stances(before: list[tuple[ModuleType, Any]]) -> None:
    for compiler, stance in reversed(before):
        compiler._stance = stance  # noqa: SLF001


def _eager_first(compiles: Callable[..., Any], before: list[tuple[ModuleType, Any]]) -> Callable[..., Any]:
    @on_behalf
    @functools.wraps(compiles)
    def compile_(*args: Any, **kwargs: Any) -> Any:
        if not before:
            _force_eager(before)
        return compiles(*args, **kwargs)

    return compile_


def has_other_hooks(ours: set[int]) -> bool:
    """Whether there are hooks of all modules beside ours. Compiled modules ask for it, and warn."""
    tables = (f"_global_{name}_hooks" for name in ("forward_pre", "forward", "backward_pre", "backward"))
    return any(key not in ours for name in tables for key in getattr(module_hooks, name))
