"""While statements of a program are run again, they say nothing, tell no tracker, and step no optimizer.

What the program printed it has printed; a second time would be confusing, in a file that is open it would be wrong. All
of it holds in the thread of the rerun only: other threads of the program go on printing.
"""

from __future__ import annotations

import contextlib
import fnmatch
import gc
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradkit.core import introspection, patches
from gradkit.live import guard
from gradkit.state import reachable, warned

_WRITING = ("write", "writelines")
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.FileIO)
# What tells a screen, a tracker or a file: module, class ("" for the module's own functions), names of functions.
_TALKERS = (
    ("tqdm.std", "tqdm", "update refresh display close clear set_* write"),
    ("torch.utils.tensorboard.writer", "SummaryWriter", "add_* flush close"),
    ("tensorboardX.writer", "SummaryWriter", "add_* flush close"),
    ("wandb.sdk.wandb_run", "Run", "log log_* save finish alert watch"),
    ("mlflow", "", "log_* set_tag*"), ("comet_ml", "Experiment", "log_*"), ("aim", "Run", "track"),
    ("clearml", "Logger", "report_*"), ("swanlab", "", "log"), ("neptune", "Run", "log* stop sync wait"),
    ("loguru._logger", "Logger", "_log"), ("rich.console", "Console", "print log"),
    ("rich.progress", "Progress", "update advance refresh start stop"), ("IPython.display", "", "display"),
    ("matplotlib.pyplot", "", "show pause draw"), ("csv", "DictWriter", "writerow writerows writeheader"),
)  # fmt: skip


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """A block in which this thread prints nothing, logs nothing and tells no tracker; it is to lie in a ``Guard``.

    Example:
        >>> with guard.Guard(10), muted():
        ...     print("not heard")
    """
    with warned.untold(), patches.undone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warned.spare_torchs()
        for stream in _streams():
            for name in _WRITING:
                _silence(stream, name)
        _silence(logging.Logger, "callHandlers")
        if sys.stdin is not None:
            patches.replace(sys, "stdin", io.StringIO())
        for module, kind, names in _TALKERS:
            owner = sys.modules.get(module)
            owner = getattr(owner, kind, None) if kind and owner is not None else owner
            for name in [] if owner is None else _named(owner, names.split()):
                _silence(owner, name)
        yield


def _streams() -> list[Any]:
    """What the program writes to: its standard streams, and every file that is open for writing."""
    found = [one for one in gc.get_objects() if issubclass(type(one), _FILES)]
    below = {id(one) for outer in found for one in (_below(outer), _below(_below(outer)))}
    files = [one for one in found if id(one) not in below and _is_written(one)]
    standard = [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]
    return list({id(one): one for one in (*standard, *files) if one is not None}.values())


def _below(stream: Any) -> Any:
    """What a stream writes to in its turn: lines of the program's own may still wait to be handed on to that."""
    try:
        return getattr(stream, "buffer", getattr(stream, "raw", None))
    except ValueError:  # it was detached
        return None


def _is_written(stream: Any) -> bool:
    try:
        return not stream.closed and bool(stream.writable())
    except ValueError:
        return False


def _named(owner: Any, patterns: list[str]) -> list[str]:
    return [name for name in vars(owner) if any(fnmatch.fnmatchcase(name, one) for one in patterns)]


def _silence(owner: Any, name: str, instead: Callable[..., Any] = lambda *_, **__: None) -> None:
    """Replace a function or method by one that does something else in the thread of the rerun: as a rule nothing."""
    original = getattr(owner, name, None)
    if not callable(original) or not hasattr(owner, "__dict__"):
        return

    def silent(*args: Any, **kwargs: Any) -> Any:
        return instead(*args, **kwargs) if guard.is_again() else original(*args, **kwargs)

    bound = introspection.is_a(vars(owner).get(name), (classmethod, staticmethod))
    with contextlib.suppress(AttributeError, TypeError):  # a stream that is no Python object, or has slots
        patches.replace(owner, name, staticmethod(silent) if bound else silent)


@contextlib.contextmanager
def without_steps(step: Callable[[], object]) -> Iterator[None]:
    """A block in which no optimizer, scheduler or gradient scaler that a step can reach moves on; in a ``Guard``.

    They could be put back, but for that the whole model would have to be copied. A closure that is handed to an
    optimizer is called once.

    Example:
        >>> weight = torch.ones(1, requires_grad=True)
        >>> optimizer = torch.optim.SGD([weight], lr=1.0)
        >>> def step(): weight.sum().backward(); optimizer.step()
        >>> with guard.Guard(10), without_steps(step): step()
        >>> weight.item(), weight.grad.item()
        (1.0, 1.0)
    """
    with patches.undone():
        for thing in reachable.everything_reachable(step):
            if introspection.is_a(thing, Optimizer):
                _silence(thing, "step", _closed)
            elif introspection.is_a(thing, LRScheduler):
                _silence(thing, "step")
            elif introspection.is_a(thing, GradScaler):
                for name in ("step", "update", "unscale_"):
                    _silence(thing, name)
        yield


def _closed(closure: Callable[[], Any] | None = None, *_: Any, **__: Any) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
