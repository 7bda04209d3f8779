"""What averages the gradients of ``DistributedDataParallel``: whether it still waits for a parameter after a backward.

Where a rank's loss leaves a parameter out, its own backward ends, while the other ranks wait for that gradient; the
rank itself hears of it a step later, when the batch that was the reason is gone. Its reducer can be asked before.
Source: https://pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

import re
import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from gradkit.core import introspection
from gradkit.state import registered

_LATE = re.compile("finished reduction|not used in producing")  # torch's words, and Lightning's for the same
_INDICES = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


class Reducers:
    """Those of all models that are wrapped from ``open`` to ``close``.

    Example:
        >>> Reducers().open().close()
    """

    def __init__(self) -> None:
        self._wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._hook: Any = None

    def open(self) -> Reducers:
        """Listen for models being wrapped."""
        self._hook = register_module_module_registration_hook(self._registers)
        return self

    def close(self) -> None:
        """Listen no longer."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _registers(self, module: nn.Module, _name: str, _inner: Any) -> None:
        if type(module) is DistributedDataParallel:
            self._wrapped.add(module)

    def any_wrapped(self) -> bool:
        """Whether a model that was wrapped is alive."""
        return len(self._wrapped) > 0

    def left_out(self) -> list[nn.Parameter]:
        """The parameters that a reducer still waits for, after the backward in which it should have heard of them."""
        found: list[nn.Parameter] = []
        for one in self._wrapped:
            try:
                one.reducer._check_reducer_finalized()  # noqa: SLF001  torch asks so before the next forward
            except AttributeError:  # it is not yet made, or this torch has no such question
                continue
            except RuntimeError as error:
                found += _named(one, introspection.text(error))
        return found


def is_of_the_step_before(text: str) -> bool:
    """Whether an error tells of a parameter that the step before has left out: the batch of that step is gone.

    Example:
        >>> is_of_the_step_before("element 0 of tensors does not require grad")
        False
    """
    return _LATE.search(text) is not None


def _named(wrapped: DistributedDataParallel, words: str) -> list[nn.Parameter]:
    """The parameters that an error of the reducer names by their positions among those that require grad."""
    found, ignored = _INDICES.search(words), set(getattr(wrapped, "parameters_to_ignore", ()))
    held = [p for name, p in registered.parameters(wrapped.module) if name not in ignored and p.requires_grad]
    at = [int(one) for one in found[1].split()] if found is not None else []
    return [held[one] for one in at if one < len(held) and isinstance(held[one], torch.Tensor)]
