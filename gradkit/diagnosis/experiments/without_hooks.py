"""The step run again with the user's hooks transparent: which of them keep which parameters from learning."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from gradkit.core import patches
from gradkit.core.trace import Chain, Key
from gradkit.diagnosis.experiments.hook_probe import HIDDEN, REFUSED, Hook, HookEffect
from gradkit.diagnosis.facts.hooks import AFTER_ACCUMULATION, TENSOR_TABLES, hook_table, users_hooks
from gradkit.source import faults, frames
from gradkit.source.faults import on_behalf
from gradkit.tracing import backward
from gradkit.tracing.interventions import Intervention
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer


class Transparent:
    """The user's hooks of one run, each called on a copy of the gradient, and what it would have put in its place.

    Args:
        parameters: the model's, by name.
        acting: keys of the hooks that are to act as ever.

    Attributes:
        tampered: every call that would have put zeros or nan in the place of a gradient.

    Example:
        >>> def hook(grad): return grad * 0
        >>> weight = nn.Parameter(torch.ones(2))
        >>> _ = weight.register_hook(hook)
        >>> with Transparent({"weight": weight}).listening() as hooks:
        ...     weight.sum().backward()
        >>> weight.grad.tolist(), [(one.kind, one.owner) for one in hooks.tampered]
        ([1.0, 1.0], [('zero', 'weight')])
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor], acting: Iterable[Key] = ()) -> None:
        self._acting = frozenset(acting)
        self._parameters = parameters
        self._names = {id(p): name for name, p in reversed(list(parameters.items()))}
        self._ours: dict[int, Any] = {}
        self.tampered: list[HookEffect] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[Transparent]:
        """While the block runs, the hooks are transparent; afterwards all tables of hooks are as they were."""
        with patches.undone():
            for name in ("register_hook", AFTER_ACCUMULATION):
                patches.replace(torch.Tensor, name, self._registering(vars(torch.Tensor)[name]))
            for name in ("_get_backward_hooks", "_get_backward_pre_hooks"):
                patches.replace(nn.Module, name, self._asked(vars(nn.Module)[name]))
            for parameter in self._parameters.values():
                for name, filled in TENSOR_TABLES.items():
                    self._replace(parameter, hook_table(parameter, name), filled=filled)
            yield self

    def _registering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        filled = original.__name__ == AFTER_ACCUMULATION

        @functools.wraps(original)
        @on_behalf
        def register(tensor: torch.Tensor, hook: Any) -> Any:
            chain = frames.chain(sys._getframe(1), Tracer.run.__code__)
            found = self._hook(hook, self._names.get(id(tensor), ""), chain)
            return original(tensor, self._put(found, filled=filled) if found is not None else hook)

        return register

    def _asked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A module hands out the hooks that the next backward is to call: a list, or one of full and one of others."""

        @functools.wraps(original)
        @on_behalf
        def asked(module: nn.Module) -> Any:
            found = original(module)
            return tuple(map(self._of_module, found)) if isinstance(found, tuple) else self._of_module(found)

        return asked

    def _of_module(self, hooks: Iterable[Any]) -> list[Any]:
        found = [(hook, self._hook(hook)) for hook in hooks]
        return [hook if one is None else self._known(one.on_module) for hook, one in found]

    def _replace(self, parameter: torch.Tensor, table: dict[Any, Any], *, filled: bool) -> None:
        """Hooks that a parameter has had all along: autograd reads them from this very dictionary at every call."""
        for key, hook in list(table.items()):
            found = self._hook(hook, self._names[id(parameter)])
            if found is not None:
                patches.later(partial(_put_back, table, key, hook))
                table[key] = self._put(found, filled=filled)

    def _hook(self, hook: Any, owner: str = "", chain: Chain = ()) -> Hook | None:
        """The hook as something to stand in for; None if it is none of the user's, or one that acts."""
        code = users_hooks(hook)
        plain = code is None and chain and isinstance(hook, _BUILT_IN)
        if id(hook) in self._ours or (code is None and not plain):
            return None
        key: Key = (code,) if code is not None else ("registered", chain[0])
        return None if key in self._acting else Hook(hook, key, code, chain, owner, self.tampered.append)

    def _put(self, hook: Hook, *, filled: bool) -> Any:
        return self._known(hook.on_filled if filled else hook.on_tensor)

    def _known(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @on_behalf
        def stand_in(*given: Any) -> Any:
            return call(*given)

        self._ours[id(stand_in)] = stand_in
        return stand_in


_BUILT_IN = (type(torch.zeros_like), type(torch.ones(1).sum), type(torch.Tensor.sum))


def _put_back(table: dict[Any, Any], key: Any, hook: Any) -> None:
    if key in table:
        table[key] = hook


MOST = 5  # hooks that are looked at one by one


@dataclass(frozen=True)
class SilencingHook:
    """A hook that keeps parameters from learning.

    Attributes:
        calls: what it did, each time that it was called.
        parameters: those that get a gradient with the hook transparent, and none, zeros or nan with it;
            where it hides nan, those that get nan with it transparent.
        spoiler: where it hides nan, index of the call whose derivative is nan, -1 if not known.
    """

    calls: tuple[HookEffect, ...]
    parameters: tuple[str, ...]
    spoiler: int = -1

    @property
    def kind(self) -> str:
        """The kind of its first call."""
        return self.calls[0].kind

    @property
    def owners(self) -> frozenset[str]:
        """The parameters that it is a hook of."""
        return frozenset(call.owner for call in self.calls) - {""}


@dataclass(frozen=True)
class Unhooked:
    """What the runs showed: the hooks, and how many runs it took."""

    silencers: tuple[SilencingHook, ...] = ()
    runs: int = 0


def silencing_hooks(session: Session, dead: Iterable[str], filled: Iterable[str] = ()) -> Unhooked:
    """The hooks without which parameters would get a gradient.

    Args:
        dead: parameters that should train and have no gradient, or one of nothing but zeros, or one that holds nan.
        filled: parameters that should train whose hook is called after their ``.grad`` was filled, and may empty it.

    Example:
        >>> from gradkit.state.preserve import Preserved
        >>> model = torch.nn.Linear(2, 1)
        >>> with Preserved(model) as preserved:
        ...     silencing_hooks(Session(lambda: model(torch.ones(1, 2)).sum(), model, preserved), ["weight"])
        Unhooked(silencers=(), runs=1)
    """
    runner = _Runner(session)
    norms, effects = runner.run()
    effects = [effect for effect in effects if effect.kind != REFUSED]
    groups: dict[Key, list[HookEffect]] = {}
    for effect in effects:
        groups.setdefault(effect.key, []).append(effect)
    emptied = {effect.owner for effect in effects if effect.emptied}.intersection(filled)
    lost = [*dict.fromkeys((*dead, *sorted(emptied)))]
    revived = [name for name in lost if _alive(norms, name)]
    spoiled = [name for name in lost if (norm := norms.get(name)) is not None and not math.isfinite(norm)]
    hooks = []
    for key, calls in groups.items():
        names = spoiled if calls[0].kind == HIDDEN else revived
        hooks.append(SilencingHook(tuple(calls), tuple(runner.silenced(key, calls, names, alone=len(groups) == 1))))
    told = {name for hook in hooks for name in hook.parameters}
    hooks = [replace(hook, parameters=_all(hook, revived, spoiled, told)) for hook in hooks]
    hooks = [hook for hook in hooks if hook.parameters]
    if any(hook.kind == HIDDEN for hook in hooks):
        spoiler = runner.spoiler()
        hooks = [replace(hook, spoiler=spoiler) if hook.kind == HIDDEN else hook for hook in hooks]
    return Unhooked(tuple(hooks), runner.runs)


def refused_by_autograd(session: Session) -> Unhooked:
    """The hooks that return what torch does not take in the place of a gradient, so that a backward raised."""
    runner = _Runner(session)
    norms, tampered = runner.run()
    groups: dict[Key, list[HookEffect]] = {}
    for one in tampered:
        if one.kind == REFUSED:
            groups.setdefault(one.key, []).append(one)
    names = tuple(name for name in norms if _alive(norms, name))
    return Unhooked(tuple(SilencingHook(tuple(calls), names) for calls in groups.values()), runner.runs)


def _alive(norms: dict[str, float | None], name: str) -> bool:
    norm = norms.get(name)
    return norm is not None and norm > 0 and math.isfinite(norm)


def _all(one: SilencingHook, revived: list[str], spoiled: list[str], told: set[str]) -> tuple[str, ...]:
    """A hook's own parameters, and those that no hook silences alone: all of them do it together."""
    return tuple(n for n in (spoiled if one.kind == HIDDEN else revived) if n in one.parameters or n not in told)


class UserHooksTransparent(Intervention):
    """Calls the user's hooks on copies of the gradients, and changes nothing by what comes of it.

    Args:
        session: whose parameters have them.
        acting: keys of the hooks that are to act as ever.
    """

    def __init__(self, session: Session, acting: Iterable[Key] = ()) -> None:
        self._hooks = Transparent(session.preserved.parameters, acting)

    @property
    def tampered(self) -> list[HookEffect]:
        """Every call that would have put something wrong in the place of a gradient."""
        return self._hooks.tampered

    @contextmanager
    def during(self) -> Iterator[None]:
        """Hooks are called in the backward, so that they are stood in for until that is over."""
        with self._hooks.listening():
            yield


class _Runner:
    """Runs the step with hooks made transparent, as often as there are questions."""

    def __init__(self, session: Session) -> None:
        self._session, self.runs = session, 0

    def run(self, acting: Iterable[Key] = ()) -> tuple[dict[str, float | None], list[HookEffect]]:
        """The norms of the gradients with all hooks but the acting ones transparent, and what the others did."""
        self.runs += 1
        heard = UserHooksTransparent(self._session, acting)
        run = self._session.run(heard)
        return (run.reached.norms, heard.tampered) if not run.error else ({}, [])

    def silenced(self, key: Key, calls: list[HookEffect], names: list[str], *, alone: bool) -> list[str]:
        """Those of the named parameters that have no gradient if this hook alone acts as ever."""
        if alone or self.runs > MOST or not names:
            return names
        emptied = {one.owner for one in calls if one.emptied}
        norms, _ = self.run([key])
        return [name for name in names if name in emptied or (norms and not _alive(norms, name))]

    def spoiler(self) -> int:
        """The index of the call whose derivative is nan or inf, with all hooks transparent."""
        self.runs += 1
        try:
            return self._session.ask(self._spoiled_at, UserHooksTransparent(self._session))
        except Exception as error:
            if faults.is_ours(error):
                raise
            return -1

    def _spoiled_at(self, tracer: Tracer, loss: Any) -> int:
        if not isinstance(loss, torch.Tensor):  # after a backward of the step's own
            return -1
        found = backward.not_finite_at(loss, self._session.preserved)
        return tracer.index_at(found[0]) if found else -1
