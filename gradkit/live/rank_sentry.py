"""Several ranks train one model: where one raises, starves or comes to a stop, one report tells which and why.

While nothing is wrong, a thread of each rank looks, in its own process, whether the program gets on, and another waits
at the store of the process group; one line about its loss is all that a rank sends, after a few steps. Who raises,
finds a silent fault, or is stuck rings there once; all ranks write down where they stand, and the lowest that answers
tells. No collective is used, and nothing is run again
that would need the others.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import attempts, causes
from gradkit.core.i18n import words
from gradkit.live import (
    flight,
    loss_heads,
    pipeline_stages,
    rank_batches,
    rank_parts,
    rank_places,
    rank_store,
    reached,
    reducers,
    whole_weights,
)  # fmt: skip
from gradkit.live.pipeline_stages import PipelineStages
from gradkit.live.rank_notes import Notes, left_by
from gradkit.live.rank_places import Stand, plain_name, stand_of
from gradkit.live.rank_records import (
    CRASHED,
    DONE,
    ENDED,
    FOUND,
    HANDED,
    RAISED,
    RUNNING,
    SCALED,
    STUCK,
    Comparison,
    RankRecord,
    compared,
)
from gradkit.live.rank_scales import Scales, places_of
from gradkit.live.rank_signals import FirstAWord
from gradkit.live.rank_store import Exchange, StoreGoneError
from gradkit.live.reached import Reached
from gradkit.live.reducers import Reducers
from gradkit.source import frames
from gradkit.tracing import ranks

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation

PATIENCE = 3.0
"""Seconds that a rank which has something to tell waits for the others to say where they stand."""
_GRACE = 2.0  # seconds in which other ranks find the same silent fault, or move on
_TICK = 0.25
_SOON = 1.0
_MOST_LETTERS = 160
_MOST_EXPLAINED = 3
_FIRST_STEPS = 3  # in which the functions that lead to a step are noted
_FIRST, _LEAST, _TIMES = 20.0, 5.0, 4.0  # stuck: before the first step, at least, times the longest stop so far
_ECHOES = ("connection closed by peer", "connection reset", "timed out", "timeout", "broken pipe", "connection refused",
           "connection was likely closed", "communicator was aborted", "remote process exited")  # fmt: skip
_FOUND = ("cause", "passes", "verdict", "report", "apart")  # of a record: what an explanation tells
_SURE = ("parts", "gone", "done", "error", "finding", "handed", "scaled", "parameters", "mismatch")


class Sentry:
    """What one rank does beside its training.

    Attributes:
        told: it was told why this training ends.
        spoke: this rank has told something.
        differs: it was told that this rank differs from others in what it raised.
        scales: how this rank makes its losses.
        hint: what was found in a step that left a parameter out for which other ranks wait; None if none did.

    Args:
        tell: told what is known of all ranks, in the process of the rank that tells.
        steps: how many optimizer steps this rank has taken.

    Example:
        >>> sentry = Sentry(print, lambda: 0).begin()
        >>> sentry.is_on  # this process trains alone
        False
        >>> sentry.close()
    """

    def __init__(self, tell: Callable[[Comparison], object], steps: Callable[[], int]) -> None:
        self._tell, self._steps = tell, steps
        self._main = threading.main_thread().ident or 0
        self._exchange: Exchange | None = None
        self._ear: threading.Thread | None = None
        self._case, self._over = 0, threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._own: RankRecord | None = None
        self._stuck_since = 0.0
        self._end = FirstAWord(self._ended)
        self._reducers, self._explained, self.scales = Reducers(), 0, Scales()
        self._stages, self._reached = PipelineStages(), Reached()
        self._notes = Notes(int(os.environ.get("RANK") or 0), steps)
        self.hint: Explanation | None = None
        self._hinted: RankRecord | None = None
        self._said: tuple[object, ...] = ()
        self.told = self.spoke = self.differs = False

    @property
    def is_on(self) -> bool:
        """Whether this process is one of several, and can reach the others."""
        return self._exchange is not None

    def hold_signals(self) -> None:
        """A SIGTERM ends this process a few seconds later, so that it can say first where it stands."""
        self._notes.take_away()  # of an earlier run that was killed
        self._end.begin()

    def begin(self) -> Sentry:
        """Wait, in a thread, for a process group to be made, and watch from then on."""
        self._reducers.open()
        threading.Thread(target=self._look_on, name="gradkit-ranks", daemon=True).start()
        return self

    def before_step(self, optimizer: Optimizer, frame: FrameType) -> None:
        """Where a batch has left a parameter out for which the other ranks wait: explain this step while it is in hand.

        The error that says so comes in the next forward. Where its loss is scaled otherwise than another's, ask.
        """
        self._reached.stepped()
        if self._steps() <= _FIRST_STEPS:
            rank_batches.loops.stepped(frame)
        said = self.scales.stepped(optimizer)
        if said and self._exchange is not None and self._reducers.any_wrapped():
            self._compare(self._exchange, said, frame)
        if (stage := self._stages.stepped()) is not None and self._exchange is not None and self._idle.is_set():
            said = words("ranks.handed_since", stage=stage, n=pipeline_stages.LASTING)
            self._ring(replace(self._record(HANDED, stand_of(frame), None), staged=True, verdict=said), wait=False)
        self.went_backward(optimizer, frame)

    def went_backward(self, optimizer: Optimizer, frame: FrameType, *, after_step: bool = False) -> None:
        """The backward of a step is over: has it left out a parameter for which the other ranks wait?

        Args:
            optimizer: that steps.
            frame: that calls for it.
            after_step: it has stepped.
        """
        if not ranks.several() or self._explained >= _MOST_EXPLAINED:
            return
        if missing := self._reducers.left_out():
            from gradkit.live import explain

            self._explained += 1
            self.hint = explain.of_running(frame, optimizer, after_step=after_step, missing=missing)
            self._hinted = self._record(FOUND, stand_of(frame), self.hint)
            self._notes.say(self._hinted)

    @property
    def hears_losses(self) -> bool:
        """Whether the losses of the next step are looked at."""
        return self.scales.is_due or bool(self._notes.gathered)

    def heard(self, loss: torch.Tensor, frame: FrameType) -> None:
        """A backward is about to begin: where its loss has lost a part of a sharded model, say so while there is time.

        Args:
            loss: one number.
            frame: that calls for it.
        """
        if self.scales.is_due:
            self.scales.heard(loss)
        if not self._notes.gathered or not self._reached.fewer(loss) or self._explained >= _MOST_EXPLAINED:
            return
        self._explained += 1
        seen = rank_places.frames_of(frame)
        sharded = rank_parts.sharded_of(rank_places.modules_in(seen))
        shards = reached.left_out(loss, sharded)
        if {id(one) for one in shards} <= self._notes.gathered:  # else collectives may wait already, and a rerun behind
            self._explain(frame, seen, shards)
        if self._hinted is None or not self._hinted.cause:
            self._notes.add(rank_parts.took_by(loss, sharded, plain_name))

    def _explain(self, frame: FrameType, seen: list[FrameType], shards: list[nn.Parameter]) -> None:
        """Why a loss does not reach what forward has gathered, before its backward begins."""
        from gradkit.live import explain

        with whole_weights.kept.of_frames(seen) as (optimizer, whole):
            missing = [whole[id(one)] for one in shards if id(one) in whole]
            if optimizer is not None and missing:
                self.hint = explain.of_running(frame, optimizer, missing=missing)
        if self.hint is not None:
            self._hinted = self._record(FOUND, stand_of(frame), self.hint)
            self._notes.say(self._hinted)

    def _compare(self, exchange: Exchange, said: str, frame: FrameType) -> None:
        """Lay down how this rank makes its loss, or read what another has laid down."""
        self.scales.laid()
        with contextlib.suppress(StoreGoneError):
            other = exchange.laid(f"head/{self.scales.window}", said)
            if loss_heads.differing(self.scales.head, loss_heads.read(other)) and self._idle.is_set():
                self._ring(self._record(SCALED, stand_of(frame), None, frame), wait=False)

    def close(self) -> None:
        """Let what is being told come to its end, and wait at the store no longer."""
        self._over.set()
        exchange = self._exchange
        if exchange is not None:
            self._idle.wait(2 * PATIENCE)
            self._exchange = None
            with contextlib.suppress(StoreGoneError):
                exchange.goodbye(self._case, self._steps())
        self._reducers.close()
        rank_batches.loops.forget()
        self._stages.close()
        self._notes.close()
        self._end.close()
        if self._ear is not None:  # Python must not end while it is in the store's code
            self._ear.join(PATIENCE)

    def in_a_copy(self) -> None:
        """This process is a copy of one that watched; its threads are not in it."""
        self._end.in_a_copy()

    # -- what this rank has to say ------------------------------------------------------------------------------------

    def raising(self, error: BaseException) -> None:
        """This rank is about to end by an error, and looks for the reason: others that ask are told so meanwhile."""
        if self._exchange is not None and not self.told:
            stand = replace(stand_of(*_innermost(error)), waits=False)
            said = attempts.words(error).partition("\n")[0][:_MOST_LETTERS]
            made = self._record(RAISED, stand, None)
            self._own = replace(made, error=said, echo=_is_echo(said), final=False, **self._of_the_step_before(said))
            if not self._own.echo:
                self._notes.say(replace(self._own, **_of(self.hint)))
            if not self._idle.is_set():  # others are asking already
                with contextlib.suppress(StoreGoneError):
                    self._exchange.post(self._case, self._own, again=True)

    def _standing(self) -> RankRecord:
        """Where this rank stands, with what is known of its last step."""
        here = self._record(STUCK if self._stuck_since else RUNNING, stand_of(self._frame()), None)
        return replace(here, **self._of_the_step_before())

    def _of_the_step_before(self, said: str = "") -> dict[str, Any]:
        """What is known of the last step where that has left a parameter out for which others wait.

        Args:
            said: an error that this rank has raised since, which may tell of something else.
        """
        hinted = self._hinted
        is_other = bool(said) and not reducers.is_of_the_step_before(said) and not _is_echo(said)
        if hinted is None or hinted.steps != self._steps() or is_other:
            return {}
        return {key: getattr(hinted, key) for key in ("batch", "batch_in", "computed", *_FOUND)}

    def raised(self, explanation: Explanation | None) -> bool:
        """The reason is known, or that there is none: tell the others, and wait until it is told what happened where.

        Returns:
            Whether it was told; else this rank has to tell what it knows by itself.
        """
        if self._exchange is None or self._own is None or self.told:
            return self.told
        return self._ring(replace(self._own, final=True, **_of(explanation)), wait=True)

    def found(self, explanation: Explanation) -> bool:
        """This rank has found a silent fault; whether all of them can be asked about it, while training goes on."""
        if self._exchange is None:
            return False
        self._ring(self._record(FOUND, stand_of(sys._getframe(1)), explanation), wait=False)
        return self._exchange is not None

    def _ended(self) -> None:
        """This process is being ended from outside, as a rule because another rank has ended."""
        if self._exchange is not None and not self.told:
            if self._idle.is_set():
                self._ring(replace(self._standing(), state=ENDED), wait=True)
            self._idle.wait(3 * PATIENCE)
        self._notes.take_away()

    def _ring(self, record: RankRecord, *, wait: bool) -> bool:
        exchange, case = self._exchange, self._case
        if exchange is None:
            return False
        self._own = record
        self._idle.clear()
        try:
            exchange.post(case, record, again=True)
            exchange.ring(case)
        except StoreGoneError:
            return self._lost()
        told = exchange.was_told(case, 3 * PATIENCE) if wait else True
        self.differs = wait and told and exchange.differs(case)
        return told

    def _lost(self) -> bool:
        self._exchange = None
        self._idle.set()
        return False

    # -- the thread that looks on -------------------------------------------------------------------------------------

    def _look_on(self) -> None:
        while not ranks.several():
            self._notes.open()
            whole_weights.kept.open()
            self._stages.open()
            if self._over.wait(_TICK / 5):
                return
        self._exchange = Exchange.of_default_group()
        if self._exchange is None:
            return
        self._ear = threading.Thread(target=self._listen, name="gradkit-ranks-ear", daemon=True)
        self._ear.start()
        known, since, longest = None, time.monotonic(), 0.0
        while not self._over.wait(_TICK) and self._exchange is not None:
            now, at = time.monotonic(), self._position()
            self._notes.open()
            whole_weights.kept.open()
            self._stages.open()
            if at != known:
                longest = max(longest, now - since) if self._steps() else 0.0
                known, since, self._stuck_since = at, now, 0.0
            elif not self._stuck_since and now - since > self._limit(longest):
                self._stuck_since = since
                self._ring(self._standing(), wait=False)

    def _limit(self, longest: float) -> float:
        return max(_LEAST, _TIMES * longest) if self._steps() else _FIRST

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._main)  # noqa: SLF001  documented, for debuggers

    def _position(self) -> tuple[int, ...]:
        frame = self._frame()
        where = (id(frame), frame.f_lasti) if frame is not None else (0, 0)
        return (*where, rank_store.begun(), self._steps())

    # -- the thread that answers --------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while (exchange := self._exchange) is not None:
            try:
                if not exchange.wait_for_ring(self._case):
                    return
                self._idle.clear()
                self._answer(exchange)
            except StoreGoneError:
                self._lost()
            except Exception:
                self._lost()
                if attempts.LOUD:
                    raise
            finally:
                self._idle.set()

    def _answer(self, exchange: Exchange) -> None:
        """Say where this rank stands, and tell what is known of all, if that falls to this one."""
        case = self._case
        exchange.post(case, self._own or self._standing())
        records = exchange.gathered(case, PATIENCE)
        if exchange.speaks(case, records):
            self._speak(exchange, case, records)
        else:
            self.told = exchange.was_told(case, 3 * PATIENCE) and self._is_last(records)
        self._own = None
        self._case = case + 1

    def _speak(self, exchange: Exchange, case: int, records: list[RankRecord]) -> None:
        ended, crashed, raised = list[RankRecord](), list[RankRecord](), list[RankRecord]()
        for rank in compared(records, exchange.world).gone:
            if (steps := exchange.done(rank)) is not None:
                ended.append(RankRecord(rank, exchange.world, DONE, steps=steps))
            elif (one := left_by(rank, exchange.world)) is not None:
                (crashed if one.state == CRASHED else raised).append(one)
        if not any(one.error or one.state == ENDED for one in records):
            records = self._once_more(exchange, case, records)
        else:
            records = self._settled(exchange, case, records)
        comparison = compared([*records, *ended, *raised], exchange.world, crashed)
        if is_told(comparison) and self._is_news(comparison):
            self.spoke = True
            self._tell(comparison)
        exchange.say_told(case, is_told(comparison), comparison.odd)
        self.told = is_told(comparison) and self._is_last(records)

    def _is_news(self, comparison: Comparison) -> bool:
        """Whether this was not told already: a rank that waits may raise later, when its collective times out."""
        first, before = comparison.first, self._said
        if first is not None and first.cause:
            self._said = (comparison.odd, first.cause, first.verdict)
            return self._said != before
        return True

    def _once_more(self, exchange: Exchange, case: int, before: list[RankRecord]) -> list[RankRecord]:
        """The records after a while: other ranks may have found the same, or have moved on."""
        time.sleep(_GRACE)
        mine = next(one for one in before if one.rank == exchange.rank)
        if mine.state in (STUCK, RUNNING):
            exchange.post(case, self._standing(), again=True)
        return exchange.gathered(case, PATIENCE)

    @staticmethod
    def _settled(exchange: Exchange, case: int, records: list[RankRecord]) -> list[RankRecord]:
        """The records once no rank is about to say more: one that has not raised may do so next."""
        begun = time.monotonic()
        while any(
            time.monotonic() - begun < (_SOON if one.final else 2 * PATIENCE) and not (one.final and one.error)
            for one in records
        ):
            time.sleep(_TICK / 5)
            records = exchange.gathered(case, 0.0)
        return records

    @staticmethod
    def _is_last(records: list[RankRecord]) -> bool:
        """Whether training ends here, so that what else is raised only echoes it."""
        return any(one.error or one.state in (STUCK, ENDED) for one in records)

    def _record(
        self, state: str, stand: Stand, explanation: Explanation | None, frame: FrameType | None = None
    ) -> RankRecord:
        head, exchange = self.scales.head, self._exchange  # it knows the rank also when the group is gone
        rank, world = (exchange.rank, exchange.world) if exchange is not None else rank_store.place()
        return RankRecord(
            rank, world, state, steps=self._steps(), collectives=rank_store.begun(), made=flight.recent(),
            **vars(stand), **_of(explanation), head=head, scales=places_of(frame or self._frame()) if head else (),
        )  # fmt: skip


def _of(explanation: Explanation | None) -> dict[str, Any]:
    """What a record takes over from an explanation: nothing where it found nothing."""
    report = explanation.report if explanation is not None else None
    if explanation is None or report is None or not report.findings:
        return {}
    first = report.findings[0]
    told = {"cause": first.cause, "verdict": report.verdict(), "report": explanation.text()}
    passes = causes.cause(first.cause).may_pass
    return {**told, "passes": passes, "apart": explanation.on_one_rank().text() if passes else ""}


def is_told(comparison: Comparison) -> bool:
    """Whether what is known of all ranks is sure enough to be told.

    That ranks stand at different places is a fault only where each of them waits in a collective.
    """
    if any(one.cause for one in comparison.records) or comparison.reason in _SURE:
        return True
    all_wait = bool(comparison.records) and all(one.waits for one in comparison.records)
    return any(one.error for one in comparison.records) or (bool(comparison.odd) and all_wait)


def _innermost(error: BaseException) -> tuple[FrameType | None, int | None]:
    """The innermost frame of a traceback, and the line in the innermost of the user's; None if none is theirs."""
    found: tuple[FrameType | None, int | None] = None, None
    for frame, line in traceback.walk_tb(error.__traceback__):
        is_users = frames.is_user_file(frame.f_code.co_filename)
        found = frame, line if is_users else found[1]
    return found


def _is_echo(text: str) -> bool:
    return any(word in text.lower() for word in _ECHOES)
