"""What a rank notes in a file, for the case that it crashes before it can say it.

Where collectives of ranks do not fit, gloo ends the process of one in C++, before any thread of it can speak. So a rank
that raises notes its error first; and one whose model is sharded notes the names and shapes of its batch once a step,
where the first part gathers its parameters. A rank of the same machine reads that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from gradkit.live.rank_places import batch_of, stand_of
from gradkit.live.rank_records import RankRecord
from gradkit.live.rank_signals import is_launched, last_words, last_words_file
from gradkit.witness.late_module import HeardLater

_GATHERS = "torch.distributed.fsdp._fully_shard._fsdp_param_group", "foreach_all_gather"
_FIRST = 2
_KEPT = ("batch", "batch_in", "computed", "trainable", "frozen_at", "sharded", "asks", "staged")


class Notes:
    """Those of one rank.

    Attributes:
        gathered: numbers of the shards whose whole parameters were gathered in this step; empty where nothing is split.

    Args:
        rank: its number.
        steps: how many optimizer steps it has taken.

    Example:
        >>> notes = Notes(0, lambda: 0)
        >>> notes.open()  # fully_shard is not in use
        >>> notes.close()
    """

    def __init__(self, rank: int, steps: Callable[[], int]) -> None:
        self._steps, self._noted = steps, -1
        self.gathered = set[int]()
        self._since = -1
        self._path = _file(rank)
        self._heard = HeardLater(_GATHERS, self._hearing)

    def open(self) -> None:
        """Listen where parts gather their parameters; may be called again until the program uses ``fully_shard``."""
        if is_launched():
            self._heard.open()

    def close(self) -> None:
        """Listen no longer, and take the file away."""
        self._heard.close()
        self.take_away()

    def take_away(self) -> None:
        """The note is not needed any more."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def say(self, record: RankRecord) -> None:
        """Note all that this rank has to say."""
        if is_launched():
            with contextlib.suppress(OSError):
                self._path.write_text(record.written(), encoding="utf-8")

    def add(self, took: tuple[str, ...]) -> None:
        """Note what the loss of a backward reaches that is about to begin, beside what is noted of its step."""
        with contextlib.suppress(OSError, ValueError):
            noted = json.loads(self._path.read_text(encoding="utf-8"))
            self._path.write_text(json.dumps({**noted, "took": took}), encoding="utf-8")

    def _hearing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hearing(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                self._gathers(args[0])
            if self._steps() != self._noted and threading.current_thread() is threading.main_thread():
                self._noted = self._steps()
                with contextlib.suppress(Exception):
                    self._write(sys._getframe(1))
            return original(*args, **kwargs)

        return hearing

    def _gathers(self, parameters: Iterable[Any]) -> None:
        if self._steps() != self._since:
            self._since, self.gathered = self._steps(), set()
        self.gathered |= {id(one.sharded_param) for one in parameters}

    def _write(self, frame: FrameType) -> None:
        """The batch; in the first steps also which parameters train, which takes longer to find out."""
        if self._noted < _FIRST:
            stand = dataclasses.asdict(stand_of(frame))
            told = {key: stand[key] for key in _KEPT}
        else:
            batch = batch_of(frame)
            told = {"batch": batch.held, "batch_in": batch.lies_in, "computed": batch.computed, "sharded": True}
        self._path.write_text(json.dumps({"steps": self._noted, **told}), encoding="utf-8")


def left_by(rank: int, world: int) -> RankRecord | None:
    """What a rank of this machine has left that crashed, which is taken away; None if it left nothing.

    Args:
        rank: that does not answer.
        world: how many there are.
    """
    words, path, text = last_words(rank, world), _file(rank), ""
    with contextlib.suppress(OSError):
        text = path.read_text(encoding="utf-8")
        path.unlink()
    if words is None:
        return None
    with contextlib.suppress(ValueError):
        noted = json.loads(text)
        if "state" in noted:  # it was about to say so itself
            return RankRecord.read(text)
        return RankRecord.read(json.dumps({**json.loads(words.written()), **noted}))
    return words if words.place else None


def _file(rank: int) -> Path:
    return last_words_file(rank).with_suffix(".json")
