"""What stands beside a step, by the frames that lead to it: gradient scalers, schedulers, other optimizers."""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch.amp import GradScaler, grad_scaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradkit.core import introspection
from gradkit.live.surroundings import locals_of
from gradkit.source import frames, syntax
from gradkit.tracing.after_backward import held_by

_MOST = 64


def optimizers_in(frame: FrameType | None) -> dict[int, tuple[Optimizer, frozenset[str]]]:
    """The optimizers that the frames from here outwards can name, by id, each with its names."""
    found: dict[int, tuple[Optimizer, frozenset[str]]] = {}
    for name, value in _things(frame):
        if introspection.is_a(value, Optimizer):
            _, names = found.get(id(value), (value, frozenset[str]()))
            found[id(value)] = value, names | {name}
    return found


def scaler_is_suspicious(frame: FrameType | None, optimizer: Optimizer) -> bool:
    """Whether a scaler is in use, and the optimizer steps without it, or gradients are clipped with no ``unscale_``
    before in the same function. That is no proof: what the step does in which order, a run of it tells.

    Where two optimizers hold the same parameters, it is not known which of them the scaler is meant for.
    """
    inner = frame
    if not any(_is_in_use(value) for _, value in _things(frame)):
        return False
    files, by_scaler = dict[str, None](), False
    while frame is not None:
        by_scaler = by_scaler or frame.f_code.co_filename == grad_scaler.__file__
        if frames.is_user_file(frame.f_code.co_filename):
            files[frame.f_code.co_filename] = None
        frame = frame.f_back
    held = set(map(id, held_by(optimizer)))
    others = [one for one, _ in optimizers_in(inner).values() if one is not optimizer] if not by_scaler else []
    if any(not held.isdisjoint(map(id, held_by(one))) for one in others):
        return False
    return not by_scaler or any(map(_clips_scaled, files))


def schedulers_of(optimizer: Optimizer) -> list[LRScheduler]:
    """The schedulers of an optimizer that are alive."""
    found = [one for one in gc.get_objects() if issubclass(type(one), LRScheduler)]
    return [one for one in found if introspection.attributes(one).get("optimizer") is optimizer]


def _is_in_use(value: Any) -> bool:
    """Whether a scaler is switched on and has scaled a loss."""
    if not introspection.is_a(value, GradScaler):
        return False
    held = introspection.attributes(value)
    return bool(held.get("_enabled")) and held.get("_scale") is not None


def _clips_scaled(file: str) -> bool:
    clips, unscales = list[tuple[str, int]](), list[tuple[str, int]]()
    for node, around in syntax.statements(file):
        if isinstance(node, ast.Call):
            name, place = syntax.call_name(node), (syntax.function_of(around), node.lineno)
            clips += [place] if name.startswith("clip_grad") else []
            unscales += [place] if name == "unscale_" else []
    return any(not any(one[0] == clip[0] and one[1] <= clip[1] for one in unscales) for clip in clips)


def _things(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """What the frames can name: variables, their attributes, and what these hold in short lists and dictionaries."""
    seen = set[int]()
    while frame is not None:
        known = [*locals_of(frame).items()]
        if frames.is_user_file(frame.f_code.co_filename) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            names = frame.f_code.co_names
            known += [(name, frame.f_globals[name]) for name in names if name in frame.f_globals]
        for name, value in known:
            if id(value) not in seen:
                seen.add(id(value))
                yield from _opened(name, value)
        frame = frame.f_back


def _opened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield name, value
    if introspection.is_a(value, (list, tuple, dict)):
        yield from ((name, one) for one in list(introspection.entries(value))[:_MOST])
    elif not introspection.is_a(value, (Optimizer, type)):
        held = introspection.attributes(value)
        for key, one in list(held.items())[:_MOST]:
            yield str(key), one
            if introspection.is_a(one, (list, tuple, dict)):
                yield from ((str(key), inner) for inner in list(introspection.entries(one))[:_MOST])
