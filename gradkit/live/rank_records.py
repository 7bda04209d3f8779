"""What each rank of a training says of itself, and which of them differs.

A rank that is stuck can't be asked, but a thread of its process can answer: where it stands, what it raised, how many
collectives it has begun, what its batch holds and which parameters train. All of it is text and numbers; no tensor is
sent. Source: https://pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from gradkit.core.i18n import words
from gradkit.live import loss_heads, rank_heads, rank_partings
from gradkit.live.flight import Collective, first_mismatch
from gradkit.live.loss_heads import Head
from gradkit.live.rank_parts import Asked
from gradkit.live.rank_places import same_on_all
from gradkit.live.rank_scales import Scaled

RAISED, FOUND, STUCK, RUNNING, SCALED, HANDED = "raised", "found", "stuck", "running", "scaled", "handed"
CRASHED, ENDED, DONE = "crashed", "ended", "done"

# Why ranks are said to differ, the surest first.
REASONS = (
    "parts", "gone", "error", "done", "finding", "handed", "scaled", "parameters", "mismatch", "batch", "collectives",
    "place",
)  # fmt: skip

_ABORTED = "Aborted"  # what faulthandler calls it
_MOST_RANKS = 8  # named in one line
_MOST_NAMES = 4
_MOST_SHAPES = 8


@dataclass(frozen=True)
class RankRecord:
    """What one rank says.

    Attributes:
        rank, world: its number, and how many there are.
        state: ``"raised"`` an error, ``"found"`` a silent fault, ``"stuck"`` on one instruction, ``"running"``,
            ``"scaled"`` where its loss is another than another's, ``"handed"`` where its stage of a pipeline hands back
            no gradient, ``"crashed"`` in C++, ``"ended"`` from outside.
        place: ``"file:line"`` of the user's innermost line; ``""`` if none is known.
        code: the text of that line.
        branch: ``"file:line"`` of the innermost ``if`` round it; ``""`` if it stands under none.
        waits: it is inside of a collective, or of a backward that makes some.
        steps: optimizer steps that it has taken.
        collectives: how many of the default process group it has begun.
        made: the last ones of each group.
        error: class and first line of what it raised; ``""``.
        echo: its error only says that another rank is gone or did not answer.
        batch: names and shapes of the tensors that its lines hold, as ``("batch['image']", "4 x 6")``.
        batch_in: the function of a library that holds the batch; ``""`` where the user's lines do.
        computed: names of what its lines hold that was computed with a history.
        trainable: names of the parameters that require grad, without wrappers' prefixes; empty if not known.
        frozen_at: ``"file:line, in code"`` where those that do not were frozen, as far as that was seen.
        staged: it holds one stage of a pipeline, so that its parameters, batch and collectives are others by right.
        sharded: ``fully_shard`` has split its model, so that a part which one rank leaves out is missed by all.
        took: names of the sharded parameters that the loss of its backward reaches; empty if it is in none.
        asks: the parts of a sharded model that are called only where something is given.
        cause: the cause id of what was found; ``""``.
        final: it has nothing more to find out about its error.
        passes: another batch may be without it.
        verdict: that in one sentence.
        report: the report in words, as it is told.
        apart: the same for the case that only some of the ranks have found it; ``""`` if nothing else is said then.
        head: how its losses are made of their terms, step by step alike.
        scales: the lines that scale by the rank.

    Example:
        >>> one = RankRecord(rank=1, world=2, state="stuck", place="train.py:40", waits=True)
        >>> RankRecord.read(one.written()) == one
        True
    """

    rank: int
    world: int
    state: str
    place: str = ""
    code: str = ""
    branch: str = ""
    waits: bool = False
    steps: int = 0
    collectives: int = 0
    made: tuple[Collective, ...] = ()
    error: str = ""
    echo: bool = False
    batch: tuple[tuple[str, str], ...] = ()
    batch_in: str = ""
    computed: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()
    frozen_at: tuple[str, ...] = ()
    staged: bool = False
    sharded: bool = False
    took: tuple[str, ...] = ()
    asks: tuple[Asked, ...] = ()
    final: bool = True
    cause: str = ""
    passes: bool = False
    verdict: str = ""
    report: str = ""
    apart: str = ""
    head: Head = ()
    scales: tuple[Scaled, ...] = ()

    def written(self) -> str:
        """As text for the store."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def read(text: str | bytes) -> RankRecord:
        """What ``written`` wrote."""
        given = json.loads(text)
        given["made"] = tuple(Collective(**one) for one in given["made"])
        given["batch"] = tuple((name, shape) for name, shape in given["batch"])
        given["asks"] = tuple(Asked(**one) for one in given["asks"])
        given["scales"] = tuple(Scaled(**one) for one in given["scales"])
        given["head"] = loss_heads.read(json.dumps(given["head"]))
        return RankRecord(
            **{**given, **{key: tuple(given[key]) for key in ("computed", "trainable", "frozen_at", "took")}}
        )

    def keys(self) -> frozenset[str]:
        """The names of what its batch holds."""
        return frozenset(name for name, _ in self.batch)

    def keys_beside(self, other: RankRecord) -> tuple[frozenset[str], frozenset[str]]:
        """What each of two batches holds that the other lacks; nothing where they were not found at the same place.

        A result of the model's is data where it has lost its history: it is no part of a batch.
        """
        if self.batch_in != other.batch_in or not (self.batch and other.batch):
            return frozenset(), frozenset()
        computed = {*self.computed, *other.computed}
        return self.keys() - other.keys() - computed, other.keys() - self.keys() - computed


@dataclass(frozen=True)
class Comparison:
    """Which ranks differ from the others, and in what.

    Attributes:
        records: of all that answered, by rank.
        gone: the ranks that did not.
        crashed: where those of them stood that have left word of it.
        odd: the ranks that differ; ``()`` if none does.
        reason: of ``REASONS``; ``""`` if none differs.
    """

    records: tuple[RankRecord, ...]
    gone: tuple[int, ...]
    odd: tuple[int, ...]
    reason: str
    crashed: tuple[RankRecord, ...] = ()

    @property
    def first(self) -> RankRecord | None:
        """The record that says most of what is wrong: of a rank that differs, with a finding if there is one."""
        mine = [one for one in self.records if one.rank in self.odd] or list(self.records)
        return max(mine, key=lambda one: (bool(one.cause), bool(one.error) and not one.echo), default=None)

    def others(self) -> tuple[RankRecord, ...]:
        """The records of the ranks that agree; those that have crashed last."""
        return tuple(one for one in (*self.records, *self.crashed) if one.rank not in self.odd)

    def text(self) -> str:
        """One report for all ranks: which differ, where each stands, and the finding of the rank that has one."""
        world = self.records[0].world if self.records else len(self.gone)
        head = words(f"ranks.{self.reason or 'agree'}", ranks=ranks_in_words(self.odd), world=world, n=len(self.odd))
        lines = [head, *self._table(), *self._apart()]
        lines += [words("ranks.staged")] if any(one.staged for one in self.records) else []
        first, sharded = self.first, any(one.sharded for one in (*self.records, *self.crashed))
        apart = 0 < len(self.odd) < world
        if first is not None and first.report:
            report = first.apart if apart and first.apart and not sharded else first.report
            lines += ["", words("ranks.of", rank=first.rank), report.rstrip("\n")]
        if self.reason == "parts" or (first is not None and first.passes and apart):
            cure = "ranks.cure_sharded" if sharded else "ranks.cure"
            lines += [words(cure), words("ranks.price"), words("ranks.more")]
        return "\n".join(lines)

    def groups(self) -> list[list[RankRecord]]:
        """The records, those that say the same together; the ranks that differ first."""
        found: dict[Hashable, list[RankRecord]] = {}
        for one in self.records:
            stands: Hashable = (one.state, same_on_all(one.place), one.error, one.cause, one.steps, one.collectives)
            if self.reason == SCALED:
                stands = rank_heads.of_head(one.head)
            found.setdefault((one.rank in self.odd, stands), []).append(one)
        return sorted(found.values(), key=lambda group: (group[0].rank not in self.odd, group[0].rank))

    def _table(self) -> list[str]:
        told = self.groups()
        lines = [_line([one.rank for one in group], group[0], scaled=self.reason == SCALED) for group in told]
        lines = [_line([one.rank], one) for one in self.crashed] + lines
        silent = set(self.gone) - {one.rank for one in self.crashed}
        return lines + ([words("ranks.line.gone", ranks=ranks_in_words(sorted(silent)))] if silent else [])

    def _apart(self) -> list[str]:
        """What the batches and parameters of the ranks that differ lack or have, and the condition that they met."""
        mine = [one for one in (*self.records, *self.crashed) if one.rank in self.odd]
        if not mine or not self.others() or any(one.staged for one in self.records):
            return []
        one, other = mine[0], self.others()[0]
        if self.reason == DONE:
            return [words("ranks.even", rank=one.rank, steps=one.steps, other=other.rank)]
        if self.reason == SCALED:
            told = rank_heads.between(one, next((o for o in self.others() if o.head), other))
            return told.text() if told is not None else []
        batch = [(name, shape) for name, shape in one.batch if name not in {*one.computed, *other.computed}]
        lines = [words("ranks.batch_holds", rank=one.rank, batch=_shapes(batch))] if batch else []
        lines += _lacks_and_has(one, other)
        lines += _frozen(one, other) if self.reason == "parameters" else []
        lines += rank_partings.between(one, other) if self.reason == "parts" else []
        lines += self._unlike(one, other) if self.reason == "mismatch" else []
        elsewhere = same_on_all(one.branch) != same_on_all(other.branch)
        if one.branch and elsewhere and self.reason in ("gone", "collectives", "place"):
            lines.append(words("ranks.branch", rank=one.rank, place=one.branch))
        return lines

    @staticmethod
    def _unlike(one: RankRecord, other: RankRecord) -> list[str]:
        """The collective that does not fit, on either side, and the condition round it."""
        here, there = first_mismatch([one.made, other.made]) or (None, None)
        if here is None or there is None:
            return []
        told = {
            "number": here.number,
            "here": here.told(),
            "there": there.told(),
            "rank": one.rank,
            "other": other.rank,
        }
        lines = [words("ranks.unlike", place=here.place or "-", beside=there.place or "-", **told)]
        return lines + ([words("ranks.branch", rank=one.rank, place=here.branch)] if here.branch else [])


def compared(records: Sequence[RankRecord], world: int, crashed: Sequence[RankRecord] = ()) -> Comparison:
    """Which ranks differ: the first of ``REASONS`` that divides them.

    An error that only says that another rank is gone is no reason. Where half of the ranks stand against the other
    half, those differ that raise, that lack something, or that stand under a condition.

    Args:
        records: of the ranks that answered.
        world: how many ranks there are.
        crashed: what those have left that crashed.

    Example:
        >>> here = [RankRecord(rank=n, world=3, state="stuck", place="train.py:9") for n in (0, 2)]
        >>> compared(here, 3).odd, compared(here, 3).reason
        ((1,), 'gone')
    """
    found = tuple(sorted(records, key=lambda one: one.rank))
    gone = tuple(sorted(set(range(world)) - {one.rank for one in found}))
    ends = any(one.error or one.state in (STUCK, ENDED) for one in found)  # else who is gone may have come to its end
    left = tuple(one for one in crashed if one.rank in gone)
    if _is_explained(found, left, gone):
        return Comparison(found, gone, tuple(_found(found)), "finding", left)
    known = all(one.trainable for one in (*found, *left))  # a note has them of the first steps only
    for reason in ("parts", "parameters")[: 1 + known] if _is_about_parts(found, left, gone) else ():
        if 0 < len(differ := _ODD[reason]((*found, *left))) < world:
            return Comparison(found, gone, tuple(sorted(differ)), reason, left)
    asked = any(one.state == SCALED for one in found)  # then ranks train on, and stand anywhere
    alike = not any(one.staged for one in found) and not (asked and not ends)
    for reason in REASONS[1:] if alike else REASONS[1 : REASONS.index(SCALED) + 1]:
        odd = (gone if ends else ()) if reason == "gone" else _ODD[reason](found)
        if odd and (reason in ("gone", "error", "finding", "handed") or len(odd) < len(found)):
            return Comparison(found, gone, tuple(odd), reason, left)
    return Comparison(found, gone, (), "", left)


def _lacks_and_has(one: RankRecord, other: RankRecord) -> list[str]:
    """What of the batch, and of the parameters that train, one rank lacks or alone has beside another."""
    mine, others = frozenset(one.trainable), frozenset(other.trainable)
    known = bool(mine and others)
    apart = {"batch": one.keys_beside(other), "parameters": (mine - others, others - mine) if known else ((), ())}
    lines = list[str]()
    for key, (has, lacks) in apart.items():
        lines += [words(f"ranks.{key}_lacks", rank=one.rank, names=_some(lacks))] if lacks else []
        lines += [words(f"ranks.{key}_has", rank=one.rank, names=_some(has))] if has else []
    return lines


def _frozen(one: RankRecord, other: RankRecord) -> list[str]:
    """Where one rank froze what another did not."""
    others = {same_on_all(place) for place in other.frozen_at}
    places = sorted(place for place in one.frozen_at if same_on_all(place) not in others)
    return [words("ranks.frozen", rank=one.rank, places="; ".join(places[:_MOST_NAMES]))] if places else []


def _is_about_parts(found: Sequence[RankRecord], left: Sequence[RankRecord], gone: Sequence[int]) -> bool:
    """Whether ranks of a sharded model have come to a stop in their collectives, and nothing else ended one of them.

    Where these do not fit, gloo ends a process in C++, of whichever rank has the smaller buffer.
    """
    every = (*found, *left)
    if not any(one.sharded for one in every) or len(left) < len(gone):
        return False
    if any(one.error != _ABORTED for one in left) or any(one.staged or one.cause for one in every):
        return False
    if any(one.error and not one.echo for one in found):
        return False
    if rank_partings.begun(found) is not None:  # with NCCL, a rank may be steps ahead of its collectives
        return True
    stopped = all(one.waits or one.state == ENDED or (one.error and one.echo) for one in found)
    alike = len({one.steps for one in every}) == 1
    return alike and bool(stopped or (not left and first_mismatch([one.made for one in found])))


def _is_explained(found: Sequence[RankRecord], left: Sequence[RankRecord], gone: Sequence[int]) -> bool:
    """Whether what one rank has found explains that others have crashed: gloo has ended them in C++, in a backward."""
    aborted = bool(left) and len(left) == len(gone) and all(one.error == _ABORTED for one in left)
    own = any(one.error and not one.echo for one in found)
    return aborted and not own and any(one.cause and one.sharded for one in found)


def _raised(records: Sequence[RankRecord]) -> list[int]:
    own = [one for one in records if one.error and not one.echo]
    same = len({one.error.partition(":")[0] for one in own}) == 1 and len(own) == len(records)
    return [] if same else [one.rank for one in own]


def _done(records: Sequence[RankRecord]) -> list[int]:
    """Who has come to its end, where others wait for it."""
    left = [one for one in records if one.state != DONE]
    waits = bool(left) and all(one.echo or one.waits or one.state == ENDED for one in left)
    return [one.rank for one in records if one.state == DONE] if waits else []


def _found(records: Sequence[RankRecord]) -> list[int]:
    own = [one.rank for one in records if one.cause]
    return own if len(own) < records[0].world else []


def _by(of: Callable[[RankRecord], Hashable], lacks: Callable[[RankRecord], int]) -> Callable[..., list[int]]:
    """Ranks that are not of the largest group; of two groups alike, the one for which ``lacks`` is larger."""

    def odd(records: Sequence[RankRecord]) -> list[int]:
        groups = Counter(of(one) for one in records)
        if len(groups) < 2:
            return []
        worst = {key: max(lacks(one) for one in records if of(one) == key) for key in groups}
        usual = max(groups, key=lambda key: (groups[key], -worst[key]))
        return [one.rank for one in records if of(one) != usual]

    return odd


def _unlike(records: Sequence[RankRecord]) -> list[int]:
    """Ranks whose collective is another than the others' of the same number; of two, the one under a condition.

    Where a sharded model gathers, a part that is called under a condition is gathered by the rank that leaves out none.
    """
    unlike = first_mismatch([one.made for one in records])
    if unlike is None:
        return []
    kinds = [one.told() if one is not None else "" for one in unlike]
    groups = Counter(one for one in kinds if one)
    under = {
        kind: any(one is not None and one.branch for one in unlike if one and one.told() == kind) for kind in groups
    }
    gathers = any(one.sharded for one in records) and len({one.name for one in unlike if one is not None}) == 1
    usual = max(groups, key=lambda kind: (groups[kind], under[kind] == gathers))
    return [record.rank for record, kind in zip(records, kinds, strict=True) if kind and kind != usual]


def _batches(records: Sequence[RankRecord]) -> list[int]:
    """Ranks whose batch is of another kind, where all batches were found at the same place."""
    if len({one.batch_in for one in records}) > 1:
        return []
    computed = {name for one in records for name in one.computed}
    return _by(lambda one: one.keys() - computed, lambda one: -len(one.batch))(records)


def _under_a_condition(record: RankRecord) -> int:
    return int(bool(record.branch))


_ODD: dict[str, Callable[[Sequence[RankRecord]], list[int]]] = {
    "parts": rank_partings.odd,
    "error": _raised,
    "finding": _found,
    "done": _done,
    "handed": lambda records: [one.rank for one in records if one.state == HANDED],
    "scaled": rank_heads.odd,
    "mismatch": _unlike,
    "parameters": _by(lambda one: one.trainable, lambda one: -len(one.trainable)),
    "batch": _batches,
    "collectives": _by(lambda one: (one.steps, one.collectives), _under_a_condition),
    "place": _by(lambda one: same_on_all(one.place), _under_a_condition),
}


def _line(ranks: Sequence[int], one: RankRecord, *, scaled: bool = False) -> str:
    if scaled and one.head:
        made = rank_heads.of_head(one.head)
        return words("ranks.line.scaled", ranks=ranks_in_words(ranks), made=made, steps=one.steps)
    key = (
        CRASHED
        if one.state == CRASHED
        else DONE
        if not one.place and not one.error
        else "raised"
        if one.error
        else "found"
        if one.cause or one.state == HANDED
        else "waits"
        if one.waits
        else "runs"
    )
    return words(
        f"ranks.line.{key}", ranks=ranks_in_words(ranks), place=one.place or "-", code=one.code, error=one.error,
        verdict=one.verdict, steps=one.steps, collectives=one.collectives,
    )  # fmt: skip


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Ranks as people write them.

    Example:
        >>> ranks_in_words([3]), ranks_in_words([0, 1, 2, 5]), ranks_in_words([])
        ('3', '0-2, 5', '-')
    """
    runs = list[list[int]]()
    for one in sorted(ranks):
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    more = [] if len(shown) <= _MOST_RANKS else ["..."]
    return ", ".join([*shown[:_MOST_RANKS], *more]) or "-"


def _shapes(batch: Sequence[tuple[str, str]]) -> str:
    more = [] if len(batch) <= _MOST_SHAPES else ["..."]
    return ", ".join([*(f"{name} ({shape})" for name, shape in batch[:_MOST_SHAPES]), *more])


def _some(names: Collection[str]) -> str:
    shown = sorted(names)
    return ", ".join([*shown[:_MOST_NAMES], *([] if len(shown) <= _MOST_NAMES else ["..."])])
