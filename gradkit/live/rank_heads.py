"""Which rank's loss is scaled by what, told from how all of them make theirs, and from the line that does it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gradkit.core.i18n import words
from gradkit.live import loss_heads
from gradkit.live.loss_heads import Head, Term
from gradkit.live.rank_scales import Scaled


class Says(Protocol):
    """What a rank says of its losses; as in :class:`~gradkit.live.rank_records.RankRecord`."""

    @property
    def rank(self) -> int:
        """Its number."""

    @property
    def state(self) -> str:
        """What it is at, as ``"scaled"``."""

    @property
    def head(self) -> Head:
        """How it makes its losses."""

    @property
    def scales(self) -> tuple[Scaled, ...]:
        """Its lines that scale by the rank."""


@dataclass(frozen=True)
class Difference:
    """A term that one rank scales otherwise than another.

    Attributes:
        rank, other: their numbers.
        here, there: the term on either.
        line: what makes the difference.
        at: the rank that runs that line.
    """

    rank: int
    other: int
    here: Term
    there: Term
    line: Scaled
    at: int

    def text(self) -> list[str]:
        """What is scaled by what, at which line, and what comes of it."""
        told = {"rank": self.rank, "other": self.other}
        here, there = of_term(self.here), of_term(self.there)
        lines = [words("ranks.scales", here=here, there=there, **told)]
        lines.append(words("ranks.scales_at", rank=self.at, place=self.line.place, code=self.line.code))
        if self.line.branch:
            lines.append(words("ranks.scales_if", place=self.line.branch))
        by = self.here.weight / self.there.weight if self.there.weight else math.nan
        if self.here.reduced == self.there.reduced and math.isfinite(by):
            lines.append(words("ranks.scales_by", by=f"{by:g}", **told))
        else:
            lines.append(words("ranks.scales_unlike"))
        return lines


def odd(records: Sequence[Says]) -> list[int]:
    """The ranks whose loss is scaled otherwise than that of most; of two groups alike, those farther from a plain mean.

    ``[]`` where no line of the source makes the difference, or more than one may.
    """
    known = [one for one in records if one.head]
    groups = Counter(_key(one.head) for one in known)
    if not any(one.state == "scaled" for one in known) or len(groups) < 2:
        return []
    plain = {_key(one.head): -_distance(one.head) for one in known}
    usual = max(groups, key=lambda key: (groups[key], plain[key]))
    mine = [one for one in known if _key(one.head) != usual]
    other = next(one for one in known if _key(one.head) == usual)
    return [one.rank for one in mine if between(one, other) is not None]


def between(one: Says, other: Says) -> Difference | None:
    """What two ranks scale differently, and by which line; None if that is not sure."""
    pair = loss_heads.differing(one.head, other.head)
    if pair is None:
        return None
    here, there = pair
    for record, mine, its in ((one, here, there), (other, there, here)):
        lines = {line.place: line for line in record.scales if line.makes(mine, its)}
        if lines:
            line = next(iter(lines.values()))
            return Difference(one.rank, other.rank, here, there, line, record.rank) if len(lines) == 1 else None
    return None


def of_head(head: Head) -> str:
    """How the losses of a step are made.

    Example:
        >>> of_head(((Term((0.5,), ("mean",), ""), Term((), (), "")),))
        '0.5 * mean(...) + (...)'
    """
    return "; ".join(" + ".join(map(of_term, terms)) for terms in head)


def of_term(term: Term) -> str:
    """How a term is made, as ``"0.5 * mean(...)"``."""
    weight = "" if term.weight == 1 else f"{term.weight:g} * "
    return f"{weight}{'('.join(term.reduced)}(...){')' * (len(term.reduced) - 1)}"


def _key(head: Head) -> tuple[object, ...]:
    return tuple(tuple((f"{one.weight:.9g}", one.reduced, one.end) for one in terms) for terms in head)


def _distance(head: Head) -> float:
    """How far a loss is from the plain mean."""
    return sum(abs(math.log(abs(one.weight) or 1)) + one.reduced.count("sum") for terms in head for one in terms)
