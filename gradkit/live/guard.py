"""While statements of a program are run again, nothing leaves the process, and nothing waits for ever.

A process that is started, a file that is written or removed, a connection: the attempt raises ``NotAgain`` before
anything has happened. Python tells of them by its audit events; what is written in C++ or Rust, and collectives of
``torch.distributed``, is replaced. All of it holds in the thread of the rerun and in threads that the rerun starts,
never elsewhere, and not in the workers of a DataLoader.
Source: https://docs.python.org/3/library/audit_events.html
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from gradkit.core import patches, turns
from gradkit.source import faults
from gradkit.tracing import ranks
from gradkit.tracing.backward import leaves_of

STARTS, WRITES, CONNECTS, ASKS, RANKS, LATE, LEAVES = (
    "starts_process", "writes_file", "connects", "asks", "meets_ranks", "took_too_long", "leaves",
)  # fmt: skip
_EVENTS = {
    **dict.fromkeys(("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"), STARTS),
    **dict.fromkeys(("os.exec", "os.system", "subprocess.Popen"), STARTS),
    **dict.fromkeys(("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink"), WRITES),
    **dict.fromkeys(("os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr"), WRITES),
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"), CONNECTS),
    **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname", "sqlite3.connect"), CONNECTS),
    **dict.fromkeys(("builtins.input", "builtins.breakpoint"), ASKS),
    **dict.fromkeys(("os.kill", "os.killpg", "signal.pthread_kill"), LEAVES),
    "open": WRITES,
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NEARBY = ("localhost", "127.0.0.1", "::1", "", None)
# What no audit event tells of: module and name of functions, and of classes whose objects write.
_UNHEARD = (
    ("torch.serialization", "_open_zipfile_writer_file"), ("torch._C", "PyTorchFileWriter"),
    ("safetensors.torch", "serialize_file"), ("safetensors.numpy", "serialize_file"), ("h5py", "File"),
    ("cv2", "imwrite"), ("cv2", "VideoWriter"), ("pyarrow.parquet", "write_table"), ("soundfile", "write"),
)  # fmt: skip
_COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "irecv", "isend", "monitored_barrier",
    "new_group", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
    "batch_isend_irecv",
)  # fmt: skip
_installed: list[bool] = []
_again: dict[int, Guard] = {}


class NotAgain(BaseException):
    """A rerun was to do what cannot be undone, or took too long. No ``except Exception`` of the user's swallows it.

    Attributes:
        reason: one of this module's constants; names its sentence, ``origin.refused.<reason>``.
        what: the path, the address, the function.
    """

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(reason, what)
        self.reason, self.what = reason, what


class Guard:
    """A block in which nothing leaves the process.

    Args:
        seconds: the time limit. It holds in the main thread, unless the program uses ``SIGALRM`` itself.

    Attributes:
        refused: what was refused, also where the step has swallowed that.

    Example:
        >>> with Guard(10) as guard:
        ...     try: open("never_written.txt", "w")
        ...     except NotAgain as refused: print(refused.reason)
        writes_file
        >>> os.path.exists("never_written.txt")
        False
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.refused: list[NotAgain] = []
        self._pid, self._rings, self._mark = os.getpid(), False, -1

    def __enter__(self) -> Guard:
        turns.take(self)
        self._mark = patches.depth()
        try:
            _install()
            thread = threading.get_ident()
            patches.later(functools.partial(_restore, thread, _again.get(thread)))
            _again[thread] = self
            _hear_the_unheard()
            self._rings = _limit(self)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            patches.insist(self._close)
        except NotAgain:  # the alarm rang in this very moment
            patches.insist(self._close)

    def _close(self) -> None:
        """Put back what was replaced; may be called more than once."""
        patches.undo(self._mark)
        turns.give(self)

    def refuse(self, reason: str, what: object) -> NoReturn:
        """Raise, and remember it.

        Raises:
            NotAgain: always.
        """
        refused = NotAgain(reason, str(what)[:200])
        self.refused.append(refused)
        raise refused

    def allow(self, seconds: float) -> None:
        """Set the time limit anew: what follows may take longer than what was."""
        self.seconds = seconds
        if self._rings:
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)

    @property
    def is_here(self) -> bool:
        """Whether this process is the one that runs again: a worker of a DataLoader is another."""
        return os.getpid() == self._pid


def is_again() -> bool:
    """Whether this thread runs statements again."""
    return _guard() is not None


def _guard() -> Guard | None:
    if not _again:
        return None
    thread = threading.get_ident()
    found = _again.get(thread)
    if found is None and turns.is_inside(thread):
        found = next(iter(_again.values()), None)
    return found if found is not None and found.is_here else None


def _restore(thread: int, before: Guard | None) -> None:
    if before is None:
        _again.pop(thread, None)
    else:
        _again[thread] = before


# -- what Python tells of -------------------------------------------------------------------------------------------


def _install() -> None:
    if not _installed:
        _installed.append(True)  # an audit hook stays for good; it asks one thing where nothing is run again
        sys.addaudithook(_hear)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if not _again:
        return
    reason = _EVENTS.get(event)
    if reason is None:
        return
    guard = _guard()
    if guard is None or _passes(event, args) or _starts_workers(sys._getframe(1)):
        return
    what = next((one for one in args if isinstance(one, (str, bytes, os.PathLike, tuple))), event)
    guard.refuse(reason, os.fsdecode(what) if isinstance(what, bytes) else what)


def _passes(event: str, args: tuple[Any, ...]) -> bool:
    """Whether it stays on this machine, and leaves nothing there."""
    if event == "open":
        return not (isinstance(args[2], int) and args[2] & _WRITING) or _is_nothing(args[0])
    if event == "sqlite3.connect":
        return isinstance(args[0], (str, bytes)) and os.fsdecode(args[0]) in (":memory:", "")  # bytes until 3.11
    if event.startswith("socket."):
        if event.startswith("socket.get"):
            return args[0] in _NEARBY
        if args[0].family == getattr(socket, "AF_UNIX", -1):
            return True
        return isinstance(args[1], tuple) and args[1][0] in _NEARBY
    return _EVENTS[event] == WRITES and _is_nothing(args[0])


def _is_nothing(path: object) -> bool:
    """Whether to write there writes no file: an open descriptor, the null device, shared memory, compiled modules."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return True
    name = os.fsdecode(path)
    return name in (os.devnull, "") or "__pycache__" in name or name.startswith(("/dev/shm", "/dev/nvidia"))  # noqa: S108  no file is made


def _starts_workers(frame: FrameType | None) -> bool:
    """Whether a DataLoader is starting its workers."""
    while frame is not None:
        if frame.f_code is _MultiProcessingDataLoaderIter.__init__.__code__:
            return True
        frame = frame.f_back
    return False


# -- what nobody tells of -------------------------------------------------------------------------------------------


def _hear_the_unheard() -> None:
    for module, name in _UNHEARD:
        _replace(sys.modules.get(module), name, WRITES, unless=_in_memory)
    _replace(os, "_exit", LEAVES)
    _replace(os, "abort", LEAVES)
    _replace(BaseProcess, "start", STARTS, unless=lambda *_: _starts_workers(sys._getframe(2)))
    for name in ("send", "sendall"):
        _replace(socket.socket, name, CONNECTS, unless=lambda own, *_: own.family == getattr(socket, "AF_UNIX", -1))
    _keep_from_ranks()


def _in_memory(*given: Any) -> bool:
    """Whether the first thing that is handed over is no path."""
    return not any(isinstance(one, (str, bytes, os.PathLike)) for one in given[:2])


def _replace(owner: Any, name: str, reason: str, unless: Callable[..., bool] = lambda *_: False) -> None:
    """Let a function or class refuse where statements are run again."""
    original = getattr(owner, name, None)
    if original is None:
        return

    def refusing(*args: Any, **kwargs: Any) -> Any:
        guard = _guard()
        if guard is None or unless(*args, *kwargs.values()):
            return original(*args, **kwargs)
        return guard.refuse(reason, next((one for one in args if isinstance(one, (str, os.PathLike))), name))

    patches.replace(owner, name, refusing)


def _keep_from_ranks() -> None:
    """One rank of several is run alone: what waits for the others is refused, or it would wait for ever.

    The module inside of ``DistributedDataParallel`` is called directly, and ``Join`` waits for nobody. What averages
    gradients hangs, in C++, on the nodes that add to ``.grad``; so a backward asks for the gradients, which passes
    these nodes by, and adds them.
    """
    patches.replace(DistributedDataParallel, "forward", _forward_alone(DistributedDataParallel.forward))
    if not ranks.several():
        return
    join = getattr(sys.modules.get("torch.distributed.algorithms.join"), "Join", None)
    if join is not None:
        patches.replace(join, "__exit__", _unless_again(join.__exit__))
        patches.replace(join, "notify_join_context", staticmethod(_unless_again(join.notify_join_context)))
    for name in _COLLECTIVES:
        _replace(torch.distributed, name, RANKS)
    patches.replace(torch.autograd, "backward", _backward_alone(torch.autograd.backward, torch.autograd.grad))


def _backward_alone(original: Callable[..., Any], grad: Callable[..., Any]) -> Callable[..., Any]:
    """A backward that sets off no hook of DistributedDataParallel.

    Args:
        original: ``torch.autograd.backward``.
        grad: ``torch.autograd.grad``.
    """

    @faults.on_behalf
    def backward(
        tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
        grad_variables: Any = None, inputs: Any = None,
    ) -> Any:  # fmt: skip
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        wanted = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs or ())
        leaves = wanted or _leaves(roots)
        start = grad_tensors if grad_tensors is not None else grad_variables
        if not is_again() or not leaves:
            return original(tensors, start, retain_graph, create_graph, inputs=inputs)
        start = [start] if isinstance(start, torch.Tensor) else start
        found = grad(roots, leaves, start, retain_graph, create_graph, allow_unused=True)
        with torch.set_grad_enabled(create_graph):
            for leaf, one in zip(leaves, found, strict=True):
                if one is not None:
                    leaf.grad = one if leaf.grad is None else leaf.grad + one
        return None

    return backward


def _leaves(roots: list[torch.Tensor]) -> list[torch.Tensor]:
    found = {id(leaf): leaf for root in roots for leaf in leaves_of(root)}
    return list(found.values())


def _unless_again(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: None if is_again() else original(*args, **kwargs)


def _forward_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs) if is_again() else original(self, *args, **kwargs)

    return forward


# -- time -----------------------------------------------------------------------------------------------------------


def _limit(guard: Guard) -> bool:
    """Let the rerun end after a while, where nobody else uses the alarm; it rings again where the step swallows it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        return False
    if signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
        return False

    def ring(_number: int, _frame: object) -> None:
        if _guard() is not None and not patches.are_held():  # never while things are put back
            guard.refuse(LATE, f"{guard.seconds:g}")

    patches.later(functools.partial(signal.signal, signal.SIGALRM, signal.SIG_DFL))
    patches.later(functools.partial(signal.setitimer, signal.ITIMER_REAL, 0))
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, guard.seconds, 1.0)
    return True
