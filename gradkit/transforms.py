"""The wrapping and unwrapping that ``vmap`` and ``grad`` of ``torch.func`` do with what a function takes and returns.

A function mode sees the calls inside, on tensors of their own, but not that these come from those outside. The helpers
that wrap are taken from the transforms' modules, where they are replaced while a run lasts.
Source: https://github.com/pytorch/pytorch/tree/main/torch/_functorch
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from gradkit import patches
from gradkit.faults import on_behalf

NAME = "vmap"
_HELPERS = (
    ("torch._functorch.vmap", "_add_batch_dim"),
    ("torch._functorch.vmap", "_remove_batch_dim"),
    ("torch._functorch.eager_transforms", "_wrap_for_grad"),
    ("torch._functorch.eager_transforms", "_unwrap_for_grad"),
)


@contextlib.contextmanager
def heard(tell: Callable[[torch.Tensor, torch.Tensor, FrameType], None]) -> Iterator[None]:
    """While the block runs, ``tell(made, given, frame)`` is called for each tensor that they wrap in this thread."""
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


def requires_grad(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or one that it wraps, requires grad: inside ``vmap`` a tensor itself always says no.

    Example:
        >>> seen = []
        >>> ask = lambda x: seen.append((x.requires_grad, requires_grad(x))) or x
        >>> _ = torch.func.vmap(ask)(torch.ones(2, requires_grad=True))
        >>> seen
        [(False, True)]
    """
    functorch = torch._C._functorch
    while not tensor.requires_grad and functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor.requires_grad
