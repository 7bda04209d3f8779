"""The collectives that a rank has begun, and at which line: torch's own flight recorder, read where ranks do not agree.

Source: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from gradkit.live.rank_places import place_and_branch
from gradkit.source import frames

MOST = 24
"""Collectives of each process group that are kept: the last ones."""
_SAME_SIZE = ("all_reduce", "_all_gather_base", "_reduce_scatter_base")  # of others, ranks may hand in unlike sizes


@dataclass(frozen=True)
class Collective:
    """A collective that a rank has begun.

    Attributes:
        group: the name of its process group.
        number: its number among those of its group, from 1.
        name: what it does, as ``"all_reduce"``.
        elements: how many the rank hands in.
        place: ``"file:line"`` of the user's line that called for it; ``""`` if autograd's own thread did.
        branch: ``"file:line"`` of the innermost ``if`` round that; ``""`` if it stands under none.
    """

    group: str
    number: int
    name: str
    elements: int
    place: str = ""
    branch: str = ""

    def told(self) -> str:
        """What it does, and on how much.

        Example:
            >>> Collective("0", 8, "all_reduce", 507).told()
            'all_reduce (507)'
        """
        return f"{self.name} ({self.elements})"


def recent() -> tuple[Collective, ...]:
    """Those of this rank, the last ones of each group; ``()`` where torch keeps no record.

    Example:
        >>> made = recent()  # in a process that trains alone, none
        >>> all(isinstance(one, Collective) for one in made)
        True
    """
    found = dict[str, list[Collective]]()
    with contextlib.suppress(Exception):  # what it records, and how, differs from version to version
        for one in _entries():
            if not one.get("is_p2p"):
                made = _collective(one)
                found.setdefault(made.group, []).append(made)
    return tuple(one for of_group in found.values() for one in of_group[-MOST:])


def _entries() -> list[dict[str, Any]]:
    c10d: Any = torch._C._distributed_c10d  # noqa: SLF001  the recorder has no public name
    dumps = (getattr(c10d, name, None) for name in ("_dump_nccl_trace", "_dump_fr_trace"))
    traces = [pickle.loads(dump(True, True, False)) for dump in dumps if dump is not None]  # noqa: S301  torch's own
    return [one for trace in traces for one in trace.get("entries", ())]


def _collective(entry: dict[str, Any]) -> Collective:
    group = entry["process_group"]
    place, branch = "", ""
    for frame in entry.get("frames", ()):
        if frames.is_user_file(frame["filename"]) and not frame["filename"].startswith("??"):
            place, branch = place_and_branch(frame["filename"], frame["line"])
            break
    elements = sum(prod(size) for size in entry.get("input_sizes", ()))
    name = entry["profiling_name"].rpartition(":")[2]
    return Collective(str(group[0]), entry["collective_seq_id"], name, elements, place, branch)


def first_mismatch(made: Sequence[Iterable[Collective]]) -> list[Collective | None] | None:
    """The first collective in which ranks do not do the same: what each of them did as that one, None if it did not.

    Args:
        made: of each rank, what it has begun.

    Example:
        >>> mine, other = Collective("0", 8, "all_reduce", 1), Collective("0", 8, "all_reduce", 507)
        >>> first_mismatch([[mine], [other]]) == [mine, other], first_mismatch([[mine], [mine]])
        (True, None)
    """
    by_rank = [{(one.group, one.number): one for one in of_rank} for of_rank in made]
    for key in sorted({key for of_rank in by_rank for key in of_rank}):
        mine = [of_rank.get(key) for of_rank in by_rank]
        if len(set(_kinds(mine))) > 1:
            return mine
    return None


def _kinds(mine: Iterable[Collective | None]) -> Iterator[tuple[str, int]]:
    for one in mine:
        if one is not None:
            yield one.name, one.elements if one.name in _SAME_SIZE else 0
