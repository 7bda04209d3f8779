"""Modules that are kept as copies of what learns, and that no gradient of a step reaches: they are not to learn.

A target network, a teacher and an average of weights may well require grad: nobody has switched that off, as what they
compute is stopped. What tells them from a part that should learn and is cut off: a module of the same kind
beside them learns in this step, and an optimizer holds that one and not them, or the source says that they are its
copies. What any optimizer holds is to learn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from torch import nn

from gradkit.core.trace import Trace
from gradkit.diagnosis.facts import optimizers
from gradkit.source import copied_modules
from gradkit.source.frames import is_user_file
from gradkit.state import registered

_MOST = 16


def find(model: nn.Module, trace: Trace, want: Sequence[str], reached: Iterable[str]) -> tuple[str, ...]:
    """The names of parameters that belong to such copies.

    Args:
        trace: of a run of the step.
        want: those that require grad.
        reached: those that its backward reached.

    Example:
        >>> find(nn.Linear(1, 1), Trace((), (), (), (), -1, {}), (), ())
        ()
    """
    alive = frozenset(reached)
    idle = frozenset(name for name in want if name not in alive)
    if not idle or not alive:
        return ()
    used = {name for name in idle if trace.using([trace.parameters.get(name, -1)])}
    known = _Known(model, frozenset(want), alive)
    lazily = _Held(model, trace)
    found: dict[str, None] = {}
    for path, mine in known.own.items():
        if mine <= idle and mine <= used and found.keys().isdisjoint(mine):
            if any(lazily.is_copy(mine, path, other, known.learning[other]) for other in known.twins(path)):
                found.update(dict.fromkeys(mine))
    return tuple(name for name in want if name in found)


class _Known:
    """The modules of a model, and which are of the same kind.

    Attributes:
        own: the parameters below each module that require grad, by its path, the outermost first.
        learning: likewise those that a gradient reaches.
    """

    def __init__(self, model: nn.Module, want: Collection[str], alive: Collection[str]) -> None:
        self.modules = {path: one for path, one in registered.modules(model) if path}
        self.own, self.learning = _below(self.modules, want), _below(self.modules, alive)
        self._like: dict[object, list[str]] = {}

    def twins(self, path: str) -> list[str]:
        """Modules of the same kind with parameters of the same names and shapes, which learn; ``[]`` if very many.

        Those are the layers of a stack.
        """
        if not self._like:
            for name, one in self.modules.items():
                self._like.setdefault(_kind(one), []).append(name)
        like = self._like[_kind(self.modules[path])]
        if len(like) > _MOST:
            return []
        apart = (one for one in like if not one.startswith(f"{path}.") and not path.startswith(f"{one}."))
        return [one for one in apart if one != path and one in self.learning]


class _Held:
    """What the optimizers hold, and what the source says; looked up once, and only if it is asked for."""

    def __init__(self, model: nn.Module, trace: Trace) -> None:
        self._model, self._trace = model, trace

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: id(parameter) for name, parameter in registered.parameters(self._model)}

    @cached_property
    def _held(self) -> list[set[int]]:
        return optimizers.held_by_each()

    @cached_property
    def _files(self) -> list[str]:
        files = dict.fromkeys(code.co_filename for call in self._trace.calls for code, _ in call.chain)
        return [one for one in files if is_user_file(one)]

    def is_copy(self, mine: Collection[str], path: str, twin: str, its: Collection[str]) -> bool:
        """Whether an optimizer holds the twin and none this one; or the source says that it is a copy."""
        ours, theirs = ({self._ids[name] for name in names if name in self._ids} for names in (mine, its))
        if any(ours & one for one in self._held):
            return False
        return any(theirs & one for one in self._held) or copied_modules.is_copy(self._files, path, twin)


def _below(modules: Iterable[str], names: Iterable[str]) -> dict[str, set[str]]:
    """Of some parameters, those below each module that has any."""
    found: dict[str, set[str]] = {}
    for name in names:
        parts = name.split(".")[:-1]
        for depth in range(1, len(parts) + 1):
            found.setdefault(".".join(parts[:depth]), set()).add(name)
    return {path: found[path] for path in modules if path in found}


def _kind(module: nn.Module) -> object:
    return type(module), tuple((name, p.shape) for name, p in registered.parameters(module))
