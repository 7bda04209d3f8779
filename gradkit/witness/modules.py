"""What is heard of modules: which parameter and which module was put where, in whose place, and what wraps a model.

torch's global registration hooks tell of each. What writes into ``module._parameters`` itself is not heard. That a
module finds a place where there was none is told only once there is an optimizer, which may lack what is in it.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.module.register_module_parameter_registration_hook.html
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.hooks import RemovableHandle

from gradkit.witness import deeds, histories, optimizers, tensors
from gradkit.witness.deeds import ATTACHED, REGISTERED, REPLACED, WRAPPED

_WRAPPERS = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module", "base_model"))
_WRAPPING = frozenset(("torch", "peft", "accelerate", "deepspeed"))


def hooks(hears: Callable[[], bool]) -> list[RemovableHandle]:
    """Hear all registrations from now on.

    Args:
        hears: whether somebody listens, in this thread.
    """

    def parameter(module: nn.Module, name: str, tensor: Any) -> None:
        if tensor is not None and hears():
            _tell_parameter(module, name, tensor)

    def submodule(module: nn.Module, name: str, inner: Any) -> None:
        if inner is not None and hears():
            _tell_module(module, name, inner)

    return [
        register_module_parameter_registration_hook(parameter),
        register_module_module_registration_hook(submodule),
    ]


@functools.lru_cache(1024)  # few are different, and each is only read
def _facts(module: str, name: str, instead: bool, frozen: bool = False) -> dict[str, str]:
    facts = {"module": module, "name": name}
    facts |= {"instead": "yes"} if instead else {}
    return {**facts, "frozen": "yes"} if frozen else facts


def _tell_parameter(module: nn.Module, name: str, tensor: Any) -> None:
    try:
        old = module.__dict__["_parameters"].get(name)  # it is still in place
        if old is tensor:
            return
        frame = sys._getframe(2)
        facts = _facts(type(module).__name__, name, old is not None, tensors.is_made_frozen(tensor, frame))
        deed = deeds.noted(REGISTERED, frame, facts)
        histories.remember(tensor, deed)
        tensors.place(tensor)
        if old is not None:
            histories.remember(old, deeds.noted_again(deed, REPLACED))
    except Exception:  # noqa: BLE001  what only listens never stops the program
        return


def _tell_module(module: nn.Module, name: str, inner: nn.Module) -> None:
    try:
        old = module.__dict__["_modules"].get(name)  # it is still in place
        if old is None and name not in _WRAPPERS and not optimizers.any_built():
            return
        if old is inner:
            return
        wraps = name in _WRAPPERS and type(module).__module__.partition(".")[0] in _WRAPPING
        facts = _facts(type(module).__name__, name, old is not None)
        deed = deeds.noted(WRAPPED if wraps else ATTACHED, sys._getframe(2), facts)
        histories.remember(inner, deed)
        if old is not None:
            histories.remember(old, deeds.noted_again(deed, REPLACED))
    except Exception:  # noqa: BLE001  as above
        return
