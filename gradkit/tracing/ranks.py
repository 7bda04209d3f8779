"""Several processes that train one model: what of it can be diagnosed, and whether all of them take part.

A collective waits for every rank. Where one rank diagnoses alone, or goes on longer than the others, it would wait for
ever; so before a collective the ranks meet in the store of the process group, and who meets nobody refuses.
Source: https://pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gradkit.core import introspection, patches
from gradkit.core.errors import GradkitError

PATIENCE = 30.0
"""Seconds that a rank waits for the others to come to a run."""
_BETWEEN = 0.005
_BACKENDS = ("gloo", "nccl", "xccl", "mpi", "ucc")
_ALONE, _TOGETHER = "alone", "together"
_waiting: list[Any] = []
_met: set[str] = set()
_turns: dict[str, tuple[int, int]] = {}


@contextlib.contextmanager
def ranks_together(modules: Iterable[nn.Module]) -> Iterator[None]:
    """While the block runs, ``meet_ranks()`` waits for the ranks that some of these modules average gradients with."""
    before, turns = list(_waiting), dict(_turns)
    with patches.undone():
        patches.later(partial(_wait_for, before, turns))
        _wait_for([one.process_group for one in modules if introspection.is_a(one, DistributedDataParallel)], {})
        yield


def several() -> bool:
    """Whether this process is one of several that train together."""
    group = torch.distributed
    return group.is_available() and group.is_initialized() and group.get_world_size() > 1


def _wait_for(groups: list[Any], turns: dict[str, tuple[int, int]]) -> None:
    _waiting[:] = groups
    _turns.clear()
    _turns.update(turns)


def meet_ranks() -> None:
    """A run, or a backward of its loss, is about to begin: wait for the other ranks.

    Raises:
        GradkitError: they do not come (``rank_alone``).
    """
    _met.clear()
    for group in _waiting:
        arrive_at(group)


def arrive_at(group: Any) -> None:
    """Wait for the other ranks of a group, once a run.

    Raises:
        GradkitError: they do not come (``rank_alone``).
    """
    if group is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    name, size = str(getattr(group, "group_name", "")), group.size()
    if size < 2 or name in _met or torch.distributed.get_backend(group) not in _BACKENDS:
        return
    _met.add(name)
    if _decided(name, size) != _TOGETHER:
        raise GradkitError("rank_alone", rank=torch.distributed.get_rank(), size=size, seconds=round(PATIENCE))


def _decided(name: str, size: int) -> str:
    """The first rank that knows writes it down for all: whoever comes late is told that the others have gone.

    Diagnoses are counted in the store, so that a rank which was alone in one is in step with the others in the next.
    """
    from torch.distributed import distributed_c10d  # torch may be built without it

    store, base = distributed_c10d._get_default_store(), f"gradkit/{name}"  # noqa: SLF001  no public name tells it
    turn, phase = _turns.get(name) or (store.add(f"{base}/turn", 0), 0)
    _turns[name] = turn, phase + 1
    key = f"{base}/{turn}/{phase}"
    store.add(f"{key}/here", 1)
    end = time.monotonic() + PATIENCE
    while store.add(f"{key}/here", 0) < size and not store.check([f"{key}/said"]) and time.monotonic() < end:
        time.sleep(_BETWEEN)
    mine = _TOGETHER if store.add(f"{key}/here", 0) >= size else _ALONE
    said: bytes = store.compare_set(f"{key}/said", "", mine)
    if not phase and store.add(f"{key}/over", 1) == 1:
        store.add(f"{base}/turn", 1)
    return said.decode()
