"""How ranks reach each other while a collective hangs: through the store that the process group was made with.

Nothing is sent while nothing is wrong: each rank has one request open at the store, which answers when somebody rings.
The store is the process group's own, over a connection of its own, so that neither waits for the other.
Source: https://pytorch.org/docs/stable/distributed.html#distributed-key-value-store
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch

from gradkit.live.rank_records import RankRecord
from gradkit.tracing import ranks

_BASE = "gradkit/ranks"
_FOR_EVER = timedelta(days=365)
_SHORT = timedelta(seconds=2)
_BETWEEN = 0.02
_BYE, _RING = "bye", "ring"


class StoreGoneError(Exception):
    """The store does not answer: its process has ended, or its network."""


class Exchange:
    """One rank's two connections to the store: one that waits for a ring, one that speaks.

    Args:
        store: that of the default process group.
        rank, world: this rank's number, and how many there are.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._ears, self._mouth = _another(store), _another(store)
        self._mouth.set_timeout(_SHORT)

    @staticmethod
    def of_default_group() -> Exchange | None:
        """For the default process group; None if there is none, or its store knows no second connection."""
        if not ranks.several():
            return None
        from torch.distributed import distributed_c10d

        store = distributed_c10d._get_default_store()  # noqa: SLF001  no public name tells it
        with contextlib.suppress(Exception):
            return Exchange(store, torch.distributed.get_rank(), torch.distributed.get_world_size())
        return None

    def wait_for_ring(self, case: int) -> bool:
        """Wait until somebody rings for a case, or this rank itself says goodbye.

        Returns:
            Whether it was a ring.

        Raises:
            StoreGoneError: it does not answer any more.
        """
        key = f"{_BASE}/{case}/ring/{self.rank}"
        with _told():
            self._ears.wait([key], _FOR_EVER)
            return bool(self._ears.get(key) == _RING.encode())

    def ring(self, case: int) -> None:
        """Ask all ranks, also this one, to say where they stand."""
        with _told():
            self._mouth.multi_set([f"{_BASE}/{case}/ring/{one}" for one in range(self.world)], [_RING] * self.world)

    def goodbye(self, case: int, steps: int) -> None:
        """Let this rank's own wait end, and leave word that it has come to its end after so many steps."""
        with _told():
            keys = [f"{_BASE}/done/{self.rank}", f"{_BASE}/{case}/ring/{self.rank}"]
            self._mouth.multi_set(keys, [str(steps), _BYE])

    def done(self, rank: int) -> int | None:
        """After how many steps a rank has come to its end; None if it has not."""
        key = f"{_BASE}/done/{rank}"
        with _told():
            return int(self._mouth.get(key)) if self._mouth.check([key]) else None

    def post(self, case: int, record: RankRecord, *, again: bool = False) -> None:
        """Write down what this rank says; the first word stays, unless ``again``."""
        key = f"{_BASE}/{case}/record/{self.rank}"
        with _told():
            if again:
                self._mouth.set(key, record.written())
            else:
                self._mouth.compare_set(key, "", record.written())

    def laid(self, name: str, text: str) -> str:
        """Lay a text down for all ranks under a name, unless one lies there; what lies there then."""
        with _told():
            found: bytes = self._mouth.compare_set(f"{_BASE}/{name}", "", text)
            return found.decode()

    def gathered(self, case: int, patience: float) -> list[RankRecord]:
        """The records of all ranks, or of those that have come after ``patience`` seconds."""
        end = time.monotonic() + patience
        keys = {one: f"{_BASE}/{case}/record/{one}" for one in range(self.world)}
        here = set[int]()
        with _told():
            while True:
                here |= {one for one, key in keys.items() if one not in here and self._mouth.check([key])}
                if len(here) == self.world or time.monotonic() > end:
                    break
                time.sleep(_BETWEEN)
            found = self._mouth.multi_get([keys[one] for one in sorted(here)]) if here else []
        return [RankRecord.read(one) for one in found]

    def speaks(self, case: int, records: list[RankRecord]) -> bool:
        """Whether it is this rank that tells: the lowest that has answered."""
        return bool(records) and min(one.rank for one in records) == self.rank

    def say_told(self, case: int, something: bool, odd: Sequence[int] = ()) -> None:
        """Let the others know that this case is over, whether anything was told, and which ranks differ."""
        with _told():
            self._mouth.set(f"{_BASE}/{case}/told", " ".join(map(str, (int(something), *odd))))

    def differs(self, case: int) -> bool:
        """Whether this rank, and not all of them, was told to differ in a case that is over."""
        key = f"{_BASE}/{case}/told"
        with contextlib.suppress(Exception):
            odd = self._mouth.get(key).decode().split()[1:] if self._mouth.check([key]) else []
            return str(self.rank) in odd and len(odd) < self.world
        return False

    def was_told(self, case: int, patience: float) -> bool:
        """Wait until the case is over; whether something was told."""
        key, end = f"{_BASE}/{case}/told", time.monotonic() + patience
        with contextlib.suppress(Exception):
            while not self._mouth.check([key]) and time.monotonic() < end:
                time.sleep(_BETWEEN)  # not store.wait: this rank's other thread speaks over the same connection
            return bool(self._mouth.check([key]) and self._mouth.get(key).startswith(b"1"))
        return False


def _another(store: Any) -> Any:
    """A connection of its own to the same store; before torch 2.7 a store has no ``clone``.

    Raises:
        AttributeError: it is of a kind that knows none.
    """
    if hasattr(store, "clone"):
        return store.clone()
    c10d: Any = torch.distributed
    while isinstance(store, c10d.PrefixStore):
        store = store.underlying_store
    made = c10d.TCPStore(store.host, store.port, is_master=False, wait_for_workers=False)
    return c10d.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), made)


def place() -> tuple[int, int]:
    """This rank's number, and how many there are; where the group is gone, or is not made yet, as torchrun told them.

    Example:
        >>> place()  # of a process that trains alone
        (0, 1)
    """
    if ranks.several():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    told = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    return (int(told[0]), int(told[1])) if all(one.isdigit() for one in told) else (0, 1)


def begun() -> int:
    """How many collectives of the default process group this rank has begun; 0 if that is not counted."""
    if not ranks.several():
        return 0
    with contextlib.suppress(Exception):
        from torch.distributed import distributed_c10d

        group: Any = distributed_c10d._get_default_group()  # noqa: SLF001  as above
        return int(group._get_sequence_number_for_group())  # noqa: SLF001
    return 0


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, ConnectionError) as error:
        raise StoreGoneError(str(error)) from error
