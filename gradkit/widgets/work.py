"""What the panel does in a job: load what was asked for, and diagnose it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gradkit.diagnose import diagnose
from gradkit.errors import GradkitError
from gradkit.report import Report
from gradkit.widgets.job import Cancelled, Job
from gradkit.widgets.request import Loaded, Request, fulfil, suggested


def loaded(request: Request, known: Loaded | None, job: Job) -> Loaded:
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


def proposed(request: Request, job: Job) -> str:
    """The line that describes a batch for the model that was asked for.

    Raises:
        GradkitError: there is no such model, or it says too little of what it takes.
        Cancelled: the job was cancelled meanwhile.
    """
    job.tell("load")
    line: str = _outlived(job.guard(lambda: suggested(request)))
    return line


def diagnosed(ready: Loaded, job: Job) -> Report:
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
