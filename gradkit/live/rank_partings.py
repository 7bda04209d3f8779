"""Which ranks leave out a part of a sharded model that others run, by which condition, and how sure that is.

Seen, where each rank's loss could be asked what it reaches, or where torch's record of collectives tells which part one
has begun to gather; likely, where only batches and the source tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gradkit.core.i18n import words
from gradkit.live.flight import Collective, first_mismatch
from gradkit.live.rank_parts import Asked
from gradkit.live.rank_places import same_on_all

_MOST_NAMES = 4


class Says(Protocol):
    """What a rank says of its parts; as in :class:`~gradkit.live.rank_records.RankRecord`."""

    @property
    def rank(self) -> int:
        """Its number."""

    @property
    def batch(self) -> tuple[tuple[str, str], ...]:
        """Names and shapes of what its lines hold."""

    @property
    def sharded(self) -> bool:
        """Whether its model is split by ``fully_shard``."""

    @property
    def took(self) -> tuple[str, ...]:
        """The parameters that the loss of its backward reaches; empty if it is in none."""

    @property
    def asks(self) -> tuple[Asked, ...]:
        """The parts that are called under a condition."""

    @property
    def made(self) -> tuple[Collective, ...]:
        """The last collectives that it has begun."""


@dataclass(frozen=True)
class Begun:
    """The first collective that does not fit, which is the one of a part on some ranks and goes past it on others.

    Attributes:
        number: its number.
        ran: the part's call, by rank; None where the rank goes past it.
    """

    number: int
    ran: dict[int, Asked | None]


def begun(records: Sequence[Says]) -> Begun | None:
    """Which of the ranks have begun to gather a part that the others go past, as torch's record of collectives tells.

    None where all fit, where no part is called at the line of the first that does not, or where it is a collective of
    another kind, or comes late: then a rank makes one of its own.
    """
    unlike = first_mismatch([one.made for one in records])
    made = {one.rank: it for one, it in zip(records, unlike or (), strict=False) if it is not None}
    if len({it.name for it in made.values()}) != 1:
        return None
    at = {same_on_all(asked.place): asked for one in records for asked in one.asks}
    ran = {rank: at.get(same_on_all(it.place)) for rank, it in made.items()}
    places, number = {same_on_all(one.place) for one in ran.values() if one}, next(iter(made.values())).number
    late = (
        same_on_all(it.place) in places and it.number > number
        for one in records
        if not ran.get(one.rank)
        for it in one.made
    )
    return None if any(late) or len({one and one.part for one in ran.values()}) < 2 else Begun(number, ran)


def odd(records: Sequence[Says]) -> list[int]:
    """The ranks on which other parts take part than on most; of as many, those that lack what a part asks for.

    ``[]`` where that is not seen, and neither the batches nor the source make it likely.
    """
    if not any(one.sharded for one in records):
        return []
    seen = [one for one in records if one.took]
    if len({one.took for one in seen}) > 1:
        return _fewer(seen, lambda one: one.took)
    if (seen_begun := begun(records)) is not None:
        ran = {rank: (asked.part,) if asked else () for rank, asked in seen_begun.ran.items()}
        return _fewer([one for one in records if one.rank in ran], lambda one: ran[one.rank])
    told = [one for one in records if one.batch]
    keys = {asked.key for one in records for asked in one.asks if asked.key}
    held = {one.rank: tuple(sorted(key for key in keys if holds(one, key))) for one in told}
    return _fewer(told, lambda one: held[one.rank]) if len(set(held.values())) > 1 else []


def _fewer(records: Sequence[Says], of: Callable[[Says], tuple[str, ...]]) -> list[int]:
    groups = [of(one) for one in records]
    usual = max(groups, key=lambda one: (groups.count(one), len(one)))
    return [one.rank for one in records if of(one) != usual]


def holds(record: Says, key: str) -> bool:
    """Whether a rank's batch holds something by a key or a name."""
    return any(name == key or name.endswith(f"[{key!r}]") for name, _ in record.batch)


def between(one: Says, other: Says) -> list[str]:
    """In words: what takes part on one of two ranks only, by which condition, and how sure that is."""
    fewer, more = (one, other) if len(one.took) <= len(other.took) else (other, one)
    unreached = sorted({*more.took} - {*fewer.took}) if one.took and other.took else []
    made = begun([one, other]) if not unreached else None
    if made is not None:
        return _made(made, one, other)
    lines, told = list[str](), set[str]()
    for part, asks in _by_part(one, other).items():
        seen = [] if any(_is_in(part, name) for name in fewer.took) else [x for x in unreached if _is_in(part, x)]
        keyed = [asked for asked in asks if asked.key and holds(one, asked.key) != holds(other, asked.key)]
        if seen or (keyed and not unreached):
            without, with_it = (other, one) if keyed and holds(one, keyed[0].key) else (one, other)
            without, with_it = (fewer, more) if seen else (without, with_it)
            ways = _taken(keyed or asks, with_it)
            lines += [_called(ways[0], without, with_it, keyed=bool(keyed))] if ways else []
            key = f"ranks.part_{'seen' if seen else 'likely'}"
            lines.append(words(key, part=part, rank=without.rank, other=with_it.rank))
            told |= {*seen}
    if names := [name for name in unreached if name not in told]:
        shown = ", ".join([*names[:_MOST_NAMES], *(["..."] if len(names) > _MOST_NAMES else [])])
        lines.append(words("ranks.part_unreached", rank=fewer.rank, other=more.rank, names=shown))
    return lines


def _made(made: Begun, one: Says, other: Says) -> list[str]:
    lines = list[str]()
    for with_it, without in ((one, other), (other, one)):
        if (asked := made.ran.get(with_it.rank)) is not None:
            keyed = bool(asked.key) and holds(with_it, asked.key) and not holds(without, asked.key)
            about = {"part": asked.part, "number": made.number, "rank": without.rank, "other": with_it.rank}
            lines += [_called(asked, without, with_it, keyed=keyed), words("ranks.part_begun", **about)]
    return lines


def _called(asked: Asked, without: Says, with_it: Says, *, keyed: bool) -> str:
    told = {**vars(asked), "rank": without.rank, "other": with_it.rank}
    return words(f"ranks.part_{'if' if keyed else 'under'}", **told)


def _by_part(one: Says, other: Says) -> dict[str, list[Asked]]:
    found = dict[str, list[Asked]]()
    for asked in dict.fromkeys((*one.asks, *other.asks)):
        found.setdefault(asked.part, []).append(asked)
    return found


def _taken(asks: Sequence[Asked], record: Says) -> list[Asked]:
    """The one call of a part that a rank has made: of several, that at whose line it has begun a collective."""
    ways = list({one.place: one for one in asks}.values())
    if len(ways) > 1:
        begun = {one.place for one in record.made}
        ways = [one for one in ways if one.place in begun]
    return ways if len(ways) == 1 else []


def _is_in(part: str, name: str) -> bool:
    return f".{part}." in f".{name}"
