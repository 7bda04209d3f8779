"""What a diagnosis refuses before it runs anything: models in pieces, models without shapes, what is no optimizer."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.state import registered


def check(model: nn.Module, used: Iterable[nn.Module], given: Iterable[object]) -> None:
    """Refuse what no diagnosis can be made of.

    Args:
        model: the model of the step.
        used: the modules that the step uses, those of the model among them.
        given: what the user gave as optimizers.

    Raises:
        GradkitError: ``sharded_model``, ``lazy_model`` or ``not_an_optimizer``.

    Example:
        >>> try: check(nn.LazyLinear(2), [], ())
        ... except GradkitError as error: print(error.key)
        lazy_model
    """
    refuse_sharded(used)
    refuse_lazy(model)
    for one in given:
        if not is_optimizer(one):
            raise GradkitError("not_an_optimizer", got=introspection.one_line(one))


def refuse_lazy(model: nn.Module) -> None:
    """Refuse a model with parameters or buffers that have no shape before the first forward pass.

    Raises:
        GradkitError: there is one (``lazy_model``).
    """
    for name, tensor in (*registered.parameters(model), *registered.buffers(model)):
        if is_lazy(tensor):
            raise GradkitError("lazy_model", name=name)


def refuse_sharded(modules: Iterable[nn.Module]) -> None:
    """Refuse modules whose parameters lie in pieces on several ranks: what forward uses is put together anew each time.

    Raises:
        GradkitError: there is one (``sharded_model``).

    Example:
        >>> refuse_sharded(nn.Sequential(nn.Linear(1, 1)).modules())
    """
    for module in modules:
        kind = _kind_of_shards(module)
        if kind:
            raise GradkitError("sharded_model", kind=kind, model=type(module).__name__)


_SHARDED = (("FullyShardedDataParallel", "FullyShardedDataParallel"), ("fully_shard", "FSDPModule"))


def _kind_of_shards(module: nn.Module) -> str:
    fsdp, tensor = sys.modules.get("torch.distributed.fsdp"), sys.modules.get("torch.distributed.tensor")
    for name, kind in _SHARDED:
        if introspection.is_a(module, getattr(fsdp, kind, ())):
            return name
    if tensor is None:
        return ""
    held = [*module._parameters.values(), *module._buffers.values()]
    return "DTensor" if any(introspection.is_a(one, tensor.DTensor) for one in held) else ""


def is_optimizer(thing: Any) -> bool:
    """Whether something has groups of parameters, as an optimizer has, of whatever class it is.

    Example:
        >>> from torch.optim import SGD
        >>> weights = list(nn.Linear(1, 1).parameters())
        >>> is_optimizer(SGD(weights)), is_optimizer(weights)
        (True, False)
    """
    groups = introspection.ask(thing, "param_groups")
    return introspection.is_a(groups, list) and all(
        introspection.is_a(group, dict) and introspection.is_a(dict.get(group, "params"), (list, tuple))
        for group in groups
    )
