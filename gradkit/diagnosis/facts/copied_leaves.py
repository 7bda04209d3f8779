"""Attributes that hold a copy of a leaf which nobody holds: ``self.scale = nn.Parameter(torch.ones(1)).to(device)``.

``.to()``, ``.cuda()``, ``.double()``, a slice or a product of a Parameter is a tensor with a history, and no Parameter:
a module does not register it, and no optimizer can be handed it. The gradient goes on to the leaf behind it, which
lives in the graph alone. Where somebody else holds the leaf, the copy may be meant: a hypernetwork's output, a tie.
Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#setting-requires-grad
"""

from __future__ import annotations

import gc

import torch
from torch import nn

from gradkit.core.trace import Trace
from gradkit.diagnosis.facts import inventory, optimizers
from gradkit.diagnosis.facts.inventory import UnregisteredParameter
from gradkit.state import reachable, registered
from gradkit.tracing.autograd_graph import leaf_of
from gradkit.tracing.backward import nodes_of
from gradkit.tracing.ledger import Ledger

_MOST = 8
"""A copy has a short history; a longer one was computed."""


def lost(model: nn.Module, trace: Trace, ledger: Ledger) -> tuple[UnregisteredParameter, ...]:
    """The attributes of a model's own classes that hold such a copy and that a gradient reaches, in the step's order.

    Args:
        trace, ledger: of a run of the step.
    """
    held = {n: v for n, v in enumerate(trace.values) if v.past and v.attribute and v.requires_grad}
    live = optimizers.live_values(trace) if held else ()
    values = {n: v for n, v in held.items() if n in live}
    tensors = ledger.alive([number for number, value in values.items() if not value.leaf])
    names = dict.fromkeys(values[n].attribute for n, one in tensors.items() if _is_copy_of_lost(one))
    modules = dict(registered.modules(model, twice=True))
    found = []
    for name in names:
        owner = modules.get(name.rpartition(".")[0])
        if owner is not None and reachable.is_users(type(owner)):
            found.append(inventory.follow(model, name.split(".")))
    return tuple(one for one in found if one is not None and one.history)


def _is_copy_of_lost(tensor: torch.Tensor) -> bool:
    """Whether a tensor is little more than a Parameter that nobody holds.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> _is_copy_of_lost(nn.Parameter(torch.ones(2)).double()), _is_copy_of_lost(layer.weight.double())
        (True, False)
    """
    nodes = nodes_of(tensor)
    leaves = [leaf for node in nodes if (leaf := leaf_of(node)) is not None]
    return len(nodes) <= _MOST and len(leaves) == 1 and isinstance(leaves[0], nn.Parameter) and not _is_held(leaves)


def _is_held(leaves: list[torch.Tensor]) -> bool:
    """Whether a table, list or tuple other than this list holds the one leaf."""
    return any(type(one) in (dict, list, tuple) and one is not leaves for one in gc.get_referrers(leaves[0]))
