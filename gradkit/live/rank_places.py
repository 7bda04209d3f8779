"""Where a rank stands, and what it holds there: read from its frames by a thread beside it.

Source: https://docs.python.org/3/library/sys.html#sys._current_frames
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType

from torch import nn

from gradkit.core import introspection
from gradkit.live import plain_names, rank_batches, rank_parts
from gradkit.live.rank_batches import Batch
from gradkit.live.rank_parts import Asked
from gradkit.live.surroundings import locals_of
from gradkit.report import layout
from gradkit.source import frames
from gradkit.source.locations import locate
from gradkit.state import registered
from gradkit.witness.deeds import FROZEN, THAWED, Deed
from gradkit.witness.histories import deeds_of

_STAGES = "torch.distributed.pipelining"
_WAITS = ("torch/distributed/", "torch/nn/parallel/", "torch/autograd/")
_MOST_NAMES, _MOST_FRAMES = 3000, 4


@dataclass(frozen=True)
class Stand:
    """Where a rank stands.

    Attributes:
        place, code, branch, waits, batch, batch_in, computed, trainable, frozen_at, staged, sharded, took, asks: as in
            :class:`~gradkit.live.rank_records.RankRecord`.
    """

    place: str = ""
    code: str = ""
    branch: str = ""
    waits: bool = False
    batch: tuple[tuple[str, str], ...] = ()
    batch_in: str = ""
    computed: tuple[str, ...] = ()
    trainable: tuple[str, ...] = field(default=(), repr=False)
    frozen_at: tuple[str, ...] = ()
    staged: bool = False
    sharded: bool = False
    took: tuple[str, ...] = field(default=(), repr=False)
    asks: tuple[Asked, ...] = field(default=(), repr=False)


def stand_of(frame: FrameType | None, line: int | None = None) -> Stand:
    """Where a frame, and those that called it, stand.

    Args:
        frame: the innermost.
        line: the line in the innermost of the user's, if that is not the one that runs now (of a traceback).
    """
    waits = _is_waiting(frame)
    mine = list(_users(frame, line))
    if not mine:
        return Stand(waits=waits)
    (_, file, at), seen = mine[0], [one for one, _, _ in mine[:_MOST_FRAMES]]
    (place, branch), librarys = place_and_branch(file, at), rank_batches.loops.frame_of(frame)
    modules, batch = modules_in([*seen, *([librarys] if librarys else [])]), rank_batches.batch_in(librarys, seen)
    trainable, frozen_at = _parameters(modules)
    sharded = rank_parts.sharded_of(modules)
    files = dict.fromkeys(one.f_code.co_filename for one in seen) if sharded else ()
    return Stand(
        place, linecache.getline(file, at).strip(), branch, waits, batch.held, batch.lies_in, batch.computed,
        trainable, frozen_at, _is_staged(frame, seen), bool(sharded),
        rank_parts.took_part(frame, sharded, plain_name), rank_parts.asked_of(sharded, files, plain_name),
    )  # fmt: skip


def batch_of(frame: FrameType | None) -> Batch:
    """What the frames hold that is data, with names and shapes.

    Args:
        frame: the innermost.
    """
    mine = frames_of(frame)
    return rank_batches.batch_in(rank_batches.loops.frame_of(frame), mine)


def _users(frame: FrameType | None, line: int | None) -> Iterator[tuple[FrameType, str, int]]:
    while frame is not None:
        file = frame.f_code.co_filename
        if frames.is_user_file(file):
            yield frame, file, line or frame.f_lineno
            line = None
        frame = frame.f_back


def _is_waiting(frame: FrameType | None) -> bool:
    """Whether the innermost frames, up to the user's, are those of a collective, of DDP or of a backward."""
    while frame is not None and not frames.is_user_file(frame.f_code.co_filename):
        if any(part in frame.f_code.co_filename.replace("\\", "/") for part in _WAITS):
            return True
        frame = frame.f_back
    return False


def place_and_branch(file: str, line: int) -> tuple[str, str]:
    """A line, and the innermost ``if`` round it, each as ``"file:line"``; ``""`` for the second if it stands in none.

    Example:
        >>> place_and_branch("no such file.py", 3)
        ('no such file.py:3', '')
    """
    shown, branch = layout.shown_path(file), condition_round(file, line)
    return f"{shown}:{line}", f"{shown}:{branch}" if branch else ""


def same_on_all(place: str) -> str:
    """A place without the folders, which are others on another machine or for a rank that was started elsewhere.

    Example:
        >>> same_on_all("../runs/train.py:40")
        'train.py:40'
    """
    return place.replace("\\", "/").rpartition("/")[2]


def _is_staged(frame: FrameType | None, seen: list[FrameType]) -> bool:
    """Whether a schedule of a pipeline runs in one of the frames, or the user's hold a stage of one."""
    part = _STAGES.replace(".", "/")
    while frame is not None:
        if part in frame.f_code.co_filename.replace("\\", "/"):
            return True
        frame = frame.f_back
    return any(type(value).__module__.startswith(_STAGES) for one in seen for value in locals_of(one).values())


@functools.lru_cache(64)
def condition_round(file: str, line: int) -> int:
    """The line of the innermost ``if`` in whose body a line stands, within its function; 0 if it stands in none.

    Example:
        >>> condition_round("no such file.py", 3)
        0
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return 0
    found = 0
    for node in ast.walk(tree):  # outer ones come first
        if isinstance(node, ast.If):
            bodies = [one for one in (*node.body, *node.orelse) if one.lineno <= line <= (one.end_lineno or one.lineno)]
            found = node.lineno if bodies else found
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            holds = node.lineno < line <= (node.end_lineno or node.lineno)
            found = 0 if holds else found
    return found


def frames_of(frame: FrameType | None) -> list[FrameType]:
    """The user's innermost frames.

    Args:
        frame: the innermost of all.

    Example:
        >>> frames_of(None)
        []
    """
    return [one for one, _, _ in _users(frame, None)][:_MOST_FRAMES]


def modules_in(seen: list[FrameType]) -> list[nn.Module]:
    """The outermost modules that the frames can name.

    Example:
        >>> modules_in([])
        []
    """
    found = {id(one): one for frame in seen for one in locals_of(frame).values() if introspection.is_a(one, nn.Module)}
    return registered.outermost(found.values())


def _parameters(modules: list[nn.Module]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the parameters of modules that require grad; and where the others were frozen."""
    names, places = set[str](), set[str]()
    shards = rank_parts.shards_of(modules)
    for module in modules:
        plain = plain_names.names_in(module)
        for name, one in registered.parameters(module):
            if one.requires_grad:
                names.add(plain[name])
            else:
                flags = [deed for deed in deeds_of(shards.get(id(one), one)) if deed.kind in (FROZEN, THAWED)]
                places |= {_frozen_at(deed) for deed in flags[-1:] if deed.kind == FROZEN and deed.chain}
    few = len(names) <= _MOST_NAMES
    return (tuple(sorted(names)), tuple(sorted(places))) if few else ((), ())


def _frozen_at(deed: Deed) -> str:
    spot = locate(deed.chain[0])
    return f"{layout.shown_path(spot.file)}:{spot.line}, {spot.text.strip()}"


def plain_name(name: str) -> str:
    """A parameter's name without those of wrappers, so that it is one on all ranks.

    Example:
        >>> plain_name("module._orig_mod.head.weight"), plain_name("blocks.0.module.weight")
        ('head.weight', 'blocks.0.weight')
    """
    for wrapper in (f"{one}." for one in plain_names.WRAPPED):
        while wrapper in f".{name}" and f".{wrapper}" in f".{name}":
            name = f".{name}".replace(f".{wrapper}", ".", 1)[1:]
    return name
