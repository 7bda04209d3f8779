"""What stands beside the model and was made to learn, and no optimizer holds: a loss with weights of its own.

Much that requires grad beside a model is not to learn: a perceptual loss, a critic, a network under attack, a
reservoir. So a module is looked at only if all that it holds the user's own code made, as ``nn.Parameter(...)``, and
nobody loaded, froze or copied; if it is in training mode; and if what the model computes goes into it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

import torch
from torch import nn

from gradkit.core import introspection
from gradkit.core.trace import Trace
from gradkit.source import frames, gradients_read
from gradkit.state import registered
from gradkit.witness.deeds import CREATED, REGISTERED, WRITTEN
from gradkit.witness.histories import deeds_of

_FIRST = frozenset((CREATED, REGISTERED, WRITTEN))


def left_alone(
    modules: Iterable[nn.Module], values: Mapping[str, object], held: Collection[int], files: Sequence[str]
) -> Iterator[torch.Tensor]:
    """The parameters beside a model that were made to learn and that a gradient reaches.

    Args:
        modules, values: what the frames can name, the values by their names.
        held: ids of what the optimizer holds.
        files: the user's: what they read the gradient of is theirs to step.
    """
    outer = registered.outermost(modules)
    known = {id(p) for one in outer for _, p in registered.parameters(one)}.union(held)
    for one in outer:
        if is_learned_by_itself(one, held):
            own = registered.parameters(one)
            if all(
                _is_reached(p) and not gradients_read.is_read(files, f".{name.rpartition('.')[2]}") for name, p in own
            ):
                yield from (p for _, p in own)
    for name, value in values.items():
        if id(value) not in known and is_bare(value) and _is_reached(value):
            if not gradients_read.is_read(files, name):
                yield value


def _is_reached(parameter: torch.Tensor) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())


def is_learned_by_itself(module: nn.Module, held: Collection[int]) -> bool:
    """Whether all of a module was made to learn by the user's own code, and an optimizer holds nothing of it.

    Example:
        >>> is_learned_by_itself(nn.Linear(2, 1), held=())  # torch has made its parameters
        False
    """
    own = [one for _, one in registered.parameters(module)]
    return bool(own) and module.training and all(id(one) not in held and _is_made_to_learn(one) for one in own)


def is_bare(value: object) -> TypeGuard[nn.Parameter]:
    """Whether something is a Parameter that was made to learn and that was never in a module.

    Example:
        >>> is_bare(torch.ones(1)), is_bare(nn.Linear(2, 1).weight)
        (False, False)
    """
    kinds = {deed.kind for deed in deeds_of(value)} if introspection.is_a(value, nn.Parameter) else {REGISTERED}
    return REGISTERED not in kinds and _is_made_to_learn(value)


def _is_made_to_learn(value: object) -> bool:
    if not introspection.is_a(value, nn.Parameter) or not value.requires_grad:
        return False
    deeds = deeds_of(value)
    if not deeds or deeds[0].kind != CREATED or deeds[0].library is not None or not deeds[0].chain:
        return False
    made = deeds[0].chain[0][0].co_filename
    return _FIRST.issuperset(one.kind for one in deeds) and frames.is_user_file(made)


def not_meant(whole: nn.Module, trace: Trace, trained: Sequence[str]) -> set[int]:
    """The ids of what was made to learn beside a model and does not take in what that computes, in a step.

    Args:
        whole: the model and what stands beside it.
        trained: the names of what the optimizer holds.
    """
    parameters = dict(registered.parameters(whole))
    held = {id(parameters[name]) for name in trained}
    groups = {name: list(registered.parameters(part)) for name, part in whole.named_children()
              if is_learned_by_itself(part, held)}  # fmt: skip
    found = set[int]()
    for name, own in groups.items():
        if not comes_after(trace, [f"{name}.{inner}" for inner, _ in own], trained, name):
            found |= {id(one) for _, one in own}
    bare = [(name, one) for name, one in parameters.items() if "." not in name and id(one) not in held and is_bare(one)]
    return found | {id(one) for name, one in bare if not comes_after(trace, [name], trained)}


def comes_after(trace: Trace, mine: Iterable[str], trained: Iterable[str], path: str = "") -> bool:
    """Whether parameters meet, in a step, what others have computed; not whether both are used by the same loss.

    Args:
        mine: the names of those that nobody trains.
        trained: the names of those that an optimizer holds.
        path: of the module in which they have to meet; ``""`` for anywhere.
    """
    ours = {trace.parameters[name] for name in mine if name in trace.parameters}
    raw = {trace.parameters[name] for name in trained if name in trace.parameters}
    theirs = set[int]()
    for call in trace.calls:
        given = set(call.inputs)
        at = trace.modules[call.module] if call.module >= 0 else ""
        if given & ours and given & theirs and (not path or f"{at}.".startswith(f"{path}.")):
            return True
        if given & ours and not given & theirs:
            ours.update(() if given & raw else call.outputs)
        elif given & (raw | theirs) and not given & ours:
            theirs.update(call.outputs)
    return False
