"""Modules that are kept as copies of what learns, and that no gradient of a step reaches: they are not to learn.

A target network, a teacher and an average of weights may well require grad: nobody has switched that off, as what they
compute is stopped. What tells them from a part that should learn and is cut off: a module of the same kind
beside them learns in this step, and an optimizer holds that one and not them, or the source says that they are its
copies. What any optimizer holds is to learn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import torch
from torch import nn

from gradkit.core.trace import Trace
from gradkit.diagnosis.facts import optimizers
from gradkit.source import copied_modules
from gradkit.source.frames import is_user_file
from gradkit.state import registered


def find(
    model: nn.Module, parameters: Mapping[str, torch.Tensor], trace: Trace, want: Sequence[str], reached: Iterable[str]
) -> tuple[str, ...]:
    """The names of parameters that belong to such copies.

    Args:
        parameters: the model's, by name.
        trace: of a run of the step.
        want: those that require grad.
        reached: those that its backward reached.

    Example:
        >>> find(nn.Linear(1, 1), {}, Trace((), (), (), (), -1, {}), (), ())
        ()
    """
    alive, wanted = frozenset(reached), frozenset(want)
    idle = [name for name in want if name not in alive]
    if not idle or not alive:
        return ()
    modules = {name: one for name, one in _named(model) if next(one.parameters(), None) is not None}
    used = {name for name in idle if trace.using([trace.parameters.get(name, -1)])}
    found: dict[str, None] = {}
    for path, one in modules.items():
        mine = [name for name in idle if name.startswith(f"{path}.")]
        if mine and len(mine) == len(_own(path, wanted)) and used.issuperset(mine) and not found.keys() & set(mine):
            twins = [other for other, two in modules.items() if _is_twin(path, one, other, two, alive)]
            if any(_is_copy(parameters, mine, path, other, _own(other, alive), trace) for other in twins):
                found.update(dict.fromkeys(mine))
    return tuple(name for name in want if name in found)


def _named(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a model with their paths, the outermost first; without the model itself."""
    todo = [("", model)]
    while todo:
        path, module = todo.pop(0)
        children = [(f"{path}.{name}" if path else name, one) for name, one in registered.children(module)]
        yield from children
        todo += children


def _own(path: str, names: Collection[str]) -> list[str]:
    return [name for name in names if name.startswith(f"{path}.")]


def _is_twin(path: str, one: nn.Module, other: str, two: nn.Module, alive: Collection[str]) -> bool:
    """Whether another module is of the same kind, with parameters of the same names and shapes, and learns."""
    apart = other != path and not other.startswith(f"{path}.") and not path.startswith(f"{other}.")
    if not apart or type(one) is not type(two) or not _own(other, alive):
        return False
    shapes = [[(name, p.shape) for name, p in registered.parameters(module)] for module in (one, two)]
    return shapes[0] == shapes[1]


def _is_copy(
    parameters: Mapping[str, torch.Tensor], mine: Sequence[str], path: str, twin: str, its: Sequence[str], trace: Trace
) -> bool:
    ours, theirs = ({id(parameters[name]) for name in names if name in parameters} for names in (mine, its))
    held = optimizers.held_by_each()
    if any(ours & one for one in held):
        return False
    files = dict.fromkeys(code.co_filename for call in trace.calls for code, _ in call.chain)
    return any(theirs & one for one in held) or copied_modules.is_copy(filter(is_user_file, files), path, twin)
