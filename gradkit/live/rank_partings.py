"""Which ranks leave out a part of a sharded model that others run, by which condition, and how sure that is.

Seen, where each rank's loss could be asked what it reaches; likely, where only batches and the source tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gradkit.core.i18n import words
from gradkit.live.flight import Collective
from gradkit.live.rank_parts import Asked

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


def odd(records: Sequence[Says]) -> list[int]:
    """The ranks on which other parts take part than on most; of as many, those that lack what a part asks for.

    ``[]`` where that is not seen, and neither the batches nor the source make it likely.
    """
    if not any(one.sharded for one in records):
        return []
    seen = [one for one in records if one.took]
    if len({one.took for one in seen}) > 1:
        return _fewer(seen, lambda one: one.took)
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
    lines, told = list[str](), set[str]()
    for part, asks in _by_part(one, other).items():
        seen = [] if any(_is_in(part, name) for name in fewer.took) else [x for x in unreached if _is_in(part, x)]
        keyed = [asked for asked in asks if asked.key and holds(one, asked.key) != holds(other, asked.key)]
        if seen or (keyed and not unreached):
            without, with_it = (other, one) if keyed and holds(one, keyed[0].key) else (one, other)
            without, with_it = (fewer, more) if seen else (without, with_it)
            ways = _taken(keyed or asks, with_it)
            about = {"part": part, "rank": without.rank, "other": with_it.rank}
            lines += [words(f"ranks.part_{'if' if keyed else 'under'}", **{**vars(ways[0]), **about})] if ways else []
            lines.append(words(f"ranks.part_{'seen' if seen else 'likely'}", **about))
            told |= {*seen}
    if names := [name for name in unreached if name not in told]:
        shown = ", ".join([*names[:_MOST_NAMES], *(["..."] if len(names) > _MOST_NAMES else [])])
        lines.append(words("ranks.part_unreached", rank=fewer.rank, other=more.rank, names=shown))
    return lines


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
