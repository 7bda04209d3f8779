"""What the panel does in a job: load what was asked for and say what it is, diagnose it, show how far it has come."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ipywidgets

from gradkit.api.diagnose import diagnose
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking
from gradkit.core.printable import entities as escape
from gradkit.live import aside
from gradkit.load import trying
from gradkit.load.trying import Tried
from gradkit.notebook.job import Cancelled, Job
from gradkit.notebook.parts import Column, show
from gradkit.notebook.request import Loaded, Proposal, Request, fulfil, proposed
from gradkit.report.report import Report

MOST = 12


class LoadedCard(Column):
    """Says what was loaded, in words and a small table, or what a report is of; empty before there is anything.

    Args:
        short: leave the batch out.
    """

    def __init__(self, *, short: bool = False) -> None:
        self._short = short
        self.text = ipywidgets.HTML()
        super().__init__(self.text)
        self.tell(None)

    def tell(self, loaded: Loaded | Report | None, name: str = "") -> None:
        """Show something else, or nothing; of a report, ``name`` is what it is of."""
        self._loaded, self._name = loaded, name
        show(self, loaded is not None)
        self._write()

    def _write(self) -> None:
        if isinstance(self._loaded, Report):
            head = f"<p><strong>{escape(self._name)}</strong></p>" if self._name else ""
            said = head + "".join(f"<p>{escape(one)}</p>" for one in self._loaded.origins(self.language))
            self.text.value = f'<div class="gkp-short gkp-quiet">{said}</div>'
        elif self._loaded is not None:
            batch = "" if self._short else self._batch(self._loaded)
            look = "gkp-short" if self._short else "gkp-loaded"
            self.text.value = f'<div class="{look}">{self._model(self._loaded)}{batch}</div>'

    def _model(self, loaded: Loaded) -> str:
        model, label = loaded.step.model, loaded.step.label
        sizes = [(one.numel(), one.requires_grad) for one in model.parameters()]
        whole, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
        share = f"{100 * trained / whole:.2f}" if whole else "0"
        numbers = self.spoken_html("panel.loaded.numbers", all=f"{whole:,}", trainable=f"{trained:,}", percent=share)
        if loaded.request.builtin:
            label = self.spoken(f"builtin.{loaded.request.builtin}.title")
        kind = type(model).__name__
        named = "" if kind == label else f" <code>{escape(kind)}</code>"
        warn = ' class="gkp-warn"' if not trained else ""
        return f"<p><strong>{escape(label)}</strong>{named}</p><p{warn}>{numbers}</p>"

    def _batch(self, loaded: Loaded) -> str:
        if loaded.batch is None:
            return f'<p class="gkp-quiet">{self.spoken_html("panel.loaded.own_batch")}</p>'
        rows = "".join(
            f"<tr><td>{escape(row.name or '–')}</td><td>{escape(str(list(row.shape)) if row.device else '–')}</td>"
            f"<td>{escape(row.dtype)}</td><td>{escape(row.device or '–')}</td></tr>"
            for row in loaded.batch[:MOST]
        )
        left = len(loaded.batch) - MOST
        more = f'<p class="gkp-quiet">{self.spoken_html("panel.loaded.more", n=left)}</p>' if left > 0 else ""
        names = ("name", "shape", "dtype", "device")
        head = "".join(f'<th scope="col">{self.spoken_html(f"panel.loaded.{name}")}</th>' for name in names)
        return f'<table class="gkp-rows gkp-entries"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}'


STAGES = ("load", "trace", "reach", "cuts", "replay", "causes", "changes", "draw")
OF_A_PROGRAM = ("program", "draw")
"""The stages where a program is run in a process of its own, and diagnosed there."""
WAITS = ("waiting", "cells")
"""Told before and between the stages: another diagnosis is running, a cell is."""


class Progress(Column):
    """A line of stages and the seconds so far; not there at all while nothing runs.

    Example:
        >>> progress = Progress()
        >>> progress.at("reach", 1.25); progress.speak("en")
        >>> "1.2 s" in progress.clock.value
        True
    """

    def __init__(self) -> None:
        self._stage, self._seconds, self._key = "", 0.0, "elapsed"
        self._stages: tuple[str, ...] = STAGES
        self.line, self.clock = ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__(self.line, self.clock, look="gkp-progress")
        self.stop()

    def at(self, stage: str, seconds: float, *, cancelling: bool = False, held: bool = False) -> None:
        """Show a stage as running, those before it as done; or what is waited for, and who waits (``held``: a cell)."""
        waits = stage if stage in WAITS else "held" if held else "elapsed"
        self._key, self._seconds = "cancelling" if cancelling else waits, seconds
        if stage not in (self._stage, *WAITS):
            self._stage = stage
            self._stages = OF_A_PROGRAM if stage == "program" else self._stages
            self._write_line()
        self._write_clock()
        show(self, True)

    def stop(self) -> None:
        """Nothing runs any more."""
        self._stage, self._stages = "", STAGES
        self._write_line()
        show(self, False)

    def _write(self) -> None:
        self._write_line()
        self._write_clock()

    def _write_line(self) -> None:
        stages = self._stages
        now = stages.index(self._stage) if self._stage in stages else -1
        looks = ["gkp-past" if at < now else "gkp-current" if at == now else "" for at in range(len(stages))]
        items = "".join(
            f'<li class="{look}">{self.spoken_html(f"panel.stage.{stage}")}</li>'
            for stage, look in zip(stages, looks, strict=True)
        )
        self.line.value = f'<ol class="gkp-stages">{items}</ol>'

    def _write_clock(self) -> None:
        text = self.spoken_html(f"panel.{self._key}", seconds=f"{self._seconds:.1f}")
        self.clock.value = f'<p class="gkp-quiet">{text}</p>'


def load_asked(request: Request, known: Loaded | None, job: Job) -> Loaded:
    """What was asked for, ready to run; ``known`` itself if loading again would only make the same once more.

    Raises:
        GradkitError: it cannot be loaded.
        Cancelled: the job was cancelled meanwhile.
    """
    job.tell("load")
    if known is not None and known.request == request and known.fresh:
        return known
    ready: Loaded = _outlived(job.guard(lambda: fulfil(request)))
    return ready


def propose_batch(request: Request, job: Job) -> Tried:
    """The line that describes a batch for the model that was asked for, tried on it and corrected.

    Raises:
        GradkitError: there is no such model, or it says too little of what it takes.
        Cancelled: the job was cancelled meanwhile; the model is as it was before.
    """
    job.tell("load")
    found: Proposal = _outlived(job.guard(lambda: proposed(request)))
    job.tell("trace")
    tried: Tried = _outlived(
        lambda: trying.corrected(found.model, found.line, found.loss, found.folder, guard=job.guard)
    )
    return tried


def run_program(request: Request, job: Job, language: str) -> Report:
    """The report on a program, run in a process of its own up to its first finding, or a few sound steps.

    Raises:
        GradkitError: there is no such program, or nothing can be said of it.
        Cancelled: the job was cancelled meanwhile; the program was ended.
    """
    job.tell("program")
    arguments, wanted = request.named.get("arguments", ""), request.should_train
    with speaking(language):
        return aside.report_of(request.program, arguments, should_train=wanted, beat=job.beat)


def diagnose_asked(ready: Loaded, job: Job) -> Report:
    """The report on what was loaded. The job is told of every stage, and can be cancelled while the step runs.

    Raises:
        GradkitError: the step cannot be run.
        Cancelled: the job was cancelled meanwhile; the model is as it was before.
    """
    step = replace(ready.step, run=job.guard(ready.step.run))
    wanted = ready.request.should_train or None
    report: Report = _outlived(
        lambda: diagnose(step, optimizer=ready.optimizer, should_train=wanted, progress=job.tell)
    )
    return report


def _outlived(work: Callable[[], Any]) -> Any:
    """What ``work`` returns.

    Raises:
        GradkitError: a user's code in it raised something that ends a program: ``sys.exit()``, ``KeyboardInterrupt``,
            ``GeneratorExit``, a ``BaseException`` of its own.
    """
    try:
        return work()
    except (Exception, Cancelled):
        raise
    except BaseException as error:
        said = "".join(traceback.format_exception_only(error)).strip()
        raise GradkitError("panel_ended_itself", error=said).with_traceback(error.__traceback__) from error
