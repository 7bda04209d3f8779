"""What a notebook holds: its models, batches and functions by name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from gradkit import cells, trainings
from gradkit.batches import describe
from gradkit.signatures import accepts

_OF_THE_SHELL = frozenset("In Out exit quit open get_ipython display".split())
_LARGEST = 256
_NOT_THEIRS = frozenset("gradkit IPython ipykernel builtins".split())


def variables() -> Mapping[str, Any]:
    """The variables of the notebook, or of the program if there is no notebook."""
    shell = cells.shell()
    return vars(sys.modules["__main__"]) if shell is None else shell.user_ns


def models(names: Mapping[str, Any]) -> list[str]:
    """Names of the modules that have parameters, latest first.

    Example:
        >>> models({"net": nn.Linear(2, 1), "act": nn.ReLU(), "x": 3})
        ['net']
    """
    return [name for name, value in _theirs(names) if isinstance(value, nn.Module) and _has_weights(value)]


def batches(names: Mapping[str, Any]) -> list[str]:
    """Names of the tensors, of the containers that hold tensors, and of the data loaders, latest first."""
    return [name for name, value in _theirs(names) if _is_batch(value)]


def losses(names: Mapping[str, Any]) -> list[str]:
    """Names of what can be called on an output, and perhaps a batch: functions and modules, latest first."""
    return [name for name, value in _theirs(names) if _is_loss_module(value) or _takes(value, 1, 2)]


def steps(names: Mapping[str, Any]) -> list[str]:
    """Names of the functions that can be called without arguments and do not train for a whole run, latest first."""
    found = [name for name, value in _theirs(names) if _takes(value, 0, 0)]
    return [name for name in found if not trainings.is_whole_run(names[name])]


def optimizers(names: Mapping[str, Any]) -> list[str]:
    """Names of the optimizers, latest first."""
    return [name for name, value in _theirs(names) if isinstance(value, torch.optim.Optimizer)]


def _theirs(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in reversed(list(names.items())):
        if not name.startswith("_") and name not in _OF_THE_SHELL and not inspect.ismodule(value):
            yield name, value


def _is_batch(value: Any) -> bool:
    if isinstance(value, (nn.Module, type)) or inspect.isroutine(value):
        return False
    if isinstance(value, (Mapping, list, tuple)) and len(value) > _LARGEST:
        return False
    return isinstance(value, DataLoader) or any(row.device for row in describe(value))


def _is_loss_module(value: Any) -> bool:
    return isinstance(value, nn.Module) and not _has_weights(value)


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _takes(value: Any, least: int, most: int) -> bool:
    if not inspect.isfunction(value) or (value.__module__ or "").split(".")[0] in _NOT_THEIRS:
        return False
    return least <= len(accepts(value).required) <= most
