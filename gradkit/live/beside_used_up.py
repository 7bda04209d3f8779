"""Modules that stand beside what an optimizer trains, and whose generator of parameters was used up before it got it.

``params = model.parameters()`` is printed, counted or clipped by, and then handed over beside a head's parameters: the
optimizer holds the head alone, and nothing is raised. That a module is trained by nobody may be meant so; here the
source says that it was to be: it hands the optimizer all that the module gives, without a condition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import introspection
from gradkit.source import frames, locations
from gradkit.source.used_up import Kept, kept
from gradkit.state import registered
from gradkit.witness.deeds import BUILT
from gradkit.witness.histories import deeds_of

_MOST = 64


def left_out(
    optimizer: Optimizer, variables: Sequence[tuple[str, str, Any]], held: Collection[int], files: Iterable[str]
) -> Iterator[torch.Tensor]:
    """The parameters of modules of which an optimizer was handed a used-up generator.

    Args:
        optimizer: the one that steps. Who built it has to be known: nothing is told of one that nobody saw built.
        variables: of the frames that wait for the step: the function's qualified name, the variable's, and its value.
        held: ids of what it holds.
        files: of these frames.

    Example:
        >>> body, head = nn.Linear(2, 2), nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(head.parameters())
        >>> list(left_out(optimizer, [("train", "body", body)], {id(one) for one in head.parameters()}, ()))
        []
    """
    known = list(_modules(variables))
    lacking = [(name, one) for name, one in known if _is_lacking(one, held)]
    made = _handed(optimizer, [one for one in files if frames.is_user_file(one)]) if lacking else []
    others = {name for name, one in known if any(id(p) in held for p in _trainable(one))}
    made = [one for one in made if one.sure and others.isdisjoint(one.owners)]
    found = {id(p): p for name, one in lacking if any(name in each.owners for each in made) for p in _trainable(one)}
    yield from found.values()


def _handed(optimizer: Optimizer, files: Sequence[str]) -> list[Kept]:
    """The generators that were handed to the optimizer where it was seen to be built."""
    built = next((deed for deed in deeds_of(optimizer) if deed.kind == BUILT and deed.chain), None)
    if built is None:
        return []
    return kept(locations.locate(built.chain[0], whole=True), type(optimizer).__name__, files)


def _modules(variables: Iterable[tuple[str, str, Any]]) -> Iterator[tuple[tuple[str, str], nn.Module]]:
    """The modules that variables hold, and those that these or plain objects hold by an attribute, by their words."""
    for function, name, value in variables:
        if introspection.is_a(value, nn.Module):
            yield (function, name), value
            yield from (((".", inner), one) for inner, one in registered.children(value))
        elif not isinstance(value, (type, torch.Tensor, list, tuple, dict)):
            for inner, one in list(introspection.items(introspection.attributes(value)))[:_MOST]:
                if introspection.is_a(one, nn.Module):
                    yield (".", str(inner)), one


def _is_lacking(module: nn.Module, held: Collection[int]) -> bool:
    """Whether an optimizer holds nothing of a module that a gradient reaches."""
    own = _trainable(module)
    grads = [one.grad for one in own if one.grad is not None]
    return bool(own) and all(id(one) not in held for one in own) and any(bool(one.any()) for one in grads)


def _trainable(module: nn.Module) -> list[torch.Tensor]:
    return [one for _, one in registered.parameters(module) if one.requires_grad]
