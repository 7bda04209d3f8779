"""Which parts of a sharded model take part on a rank, and what has to be given for them to.

With ``fully_shard`` each part gathers its parameters by a collective of its own, and a backward reduces only those that
took part: where one rank leaves a part out, the collectives of all of them no longer fit. Nothing can be run again, as
the shards of the others would be needed; but what the loss reaches can be read off its graph, and what a part asks for
off the source.
Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn

from gradkit.core import introspection
from gradkit.live.surroundings import locals_of
from gradkit.report import layout
from gradkit.source import attributes
from gradkit.source.asked_for import asked_for
from gradkit.state import registered
from gradkit.tracing.backward import leaves_of

_MOST_ASKED = 16
_BACKWARD = ("torch/autograd/__init__.py", "backward")


@dataclass(frozen=True)
class Asked:
    """A part of the model that is called under a condition.

    Attributes:
        key: what has to be given for it: the key of a mapping, or the name of a variable; ``""`` if it is another.
        part: the part's name, without those of wrappers.
        place, code: where it is called, and the text of that line.
        branch, condition: where that is asked, and the text of that line.
    """

    key: str
    part: str
    place: str
    code: str
    branch: str
    condition: str


def sharded_of(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules of which ``fully_shard`` has split something.

    Example:
        >>> sharded_of([nn.Linear(1, 1)])
        []
    """
    return [one for one in modules if next(split_parts(one), None) is not None]


def split_parts(module: nn.Module) -> Iterator[nn.Module]:
    """The modules in one that ``fully_shard`` was called on.

    Example:
        >>> list(split_parts(nn.Linear(1, 1)))
        []
    """
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    return (part for part in registered.each(module) if introspection.is_a(part, kind))


def asked_of(sharded: Sequence[nn.Module], files: Iterable[str], plain: Callable[[str], str]) -> tuple[Asked, ...]:
    """The parts of sharded modules that are called under a condition.

    Args:
        files: where they may be called, beside the files that their classes are written in.
        plain: takes the names of wrappers out of a module's.
    """
    named = [(plain(f"{path}.")[:-1], part) for one in sharded for path, part in registered.modules(one)]
    parts = dict[str, str]()
    for path, part in named:
        if path and any(value is not None for each in registered.each(part) for value in each._parameters.values()):
            parts.setdefault(path.rpartition(".")[2], path)
    written = attributes.class_files(dict.fromkeys(type(part) for _, part in named))
    told = (_asked(file, parts) for file in dict.fromkeys((*files, *written)))
    return tuple(one for of_file in told for one in of_file)[:_MOST_ASKED]


def _asked(file: str, parts: Mapping[str, str]) -> Iterator[Asked]:
    shown = layout.shown_path(file)
    for one in asked_for(file):
        if one.attribute in parts:
            code, condition = (linecache.getline(file, at).strip().rstrip(":") for at in (one.line, one.condition))
            place, branch = f"{shown}:{one.line}", f"{shown}:{one.condition}"
            yield Asked(one.key, parts[one.attribute], place, code, branch, condition)


def took_part(frame: FrameType | None, sharded: Iterable[nn.Module], plain: Callable[[str], str]) -> tuple[str, ...]:
    """The parameters of sharded modules that a loss reaches whose backward runs in one of the frames.

    Args:
        frame: the innermost.
        plain: takes the names of wrappers out of a parameter's.
    """
    sharded = list(sharded)
    return tuple(sorted({name for loss in _losses(frame) for name in took_by(loss, sharded, plain)}))


def took_by(loss: torch.Tensor, sharded: Iterable[nn.Module], plain: Callable[[str], str]) -> tuple[str, ...]:
    """The parameters of sharded modules that a loss reaches.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> took_by(layer.weight.sum(), [layer], str)
        ()
    """
    reached = {id(leaf) for leaf in leaves_of(loss)}
    names = {id(whole): name for whole, _, name in gathered(sharded)} if reached else {}
    return tuple(sorted(plain(name) for key, name in names.items() if key in reached))


def shards_of(sharded: Iterable[nn.Module]) -> dict[int, nn.Parameter]:
    """The shards on this rank, by the ids of the whole parameters that stand in for them during a pass.

    Example:
        >>> shards_of([nn.Linear(1, 1)])
        {}
    """
    return {id(whole): shard for whole, shard, _ in gathered(sharded)}


def _losses(frame: FrameType | None) -> list[torch.Tensor]:
    while frame is not None:
        code = frame.f_code
        if code.co_name == _BACKWARD[1] and code.co_filename.replace("\\", "/").endswith(_BACKWARD[0]):
            given = locals_of(frame).get("tensors", ())
            given = [given] if introspection.is_a(given, torch.Tensor) else list(given)
            return [one for one in given if introspection.is_a(one, torch.Tensor)]
        frame = frame.f_back
    return []


def gathered(sharded: Iterable[nn.Module]) -> Iterator[tuple[nn.Parameter, nn.Parameter, str]]:
    """The whole parameters that forward has used in place of the shards, these, and their names.

    None where torch keeps them otherwise.

    Example:
        >>> list(gathered([nn.Linear(1, 1)]))
        []
    """
    for part in (part for one in sharded for part in split_parts(one)):
        for one in split_parameters(part):
            whole, shard = getattr(one, "_unsharded_param", None), getattr(one, "sharded_param", None)
            name = getattr(one, "_param_fqn", None)
            if whole is not None and shard is not None and name:
                yield whole, shard, name


def split_parameters(part: nn.Module) -> list[Any]:
    """What ``fully_shard`` keeps of each parameter that it was to split at one of ``split_parts``.

    Example:
        >>> split_parameters(nn.Linear(1, 1))
        []
    """
    state: Any = getattr(part, "_get_fsdp_state", lambda: None)()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    return [one for group in groups for one in getattr(group, "fsdp_params", ())]
