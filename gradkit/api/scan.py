"""Every place in some files that may stop a gradient; and, given a step, what its diagnosis says of each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from gradkit.api.diagnose import diagnose
from gradkit.api.scanning import sites
from gradkit.api.scanning.result import Scan
from gradkit.api.scanning.sites import Site
from gradkit.api.scanning.verdicts import Judgement, Visits, judge_sites
from gradkit.core.errors import letting_go
from gradkit.load.step import Step, from_spec, step_of
from gradkit.report.report import Report
from gradkit.source import imported
from gradkit.source.files import Skipped, Text, read_sources, source_files

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@letting_go
def scan(
    paths: Paths,
    step: Any = None,
    batch: Any = None,
    *,
    model: nn.Module | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    should_train: Sequence[str] | None = None,
    replay: bool = True,
) -> Scan:
    """Find every ``no_grad``, ``detach``, ``.data``, ``requires_grad=False``, ``eval()`` and the like in source code.

    The files are read, and never imported. With a step, that step is diagnosed, and what is said of each place is what
    the diagnosis says: harmful, harmless, not reached; or that it ran and is neither accused nor cleared.

    Args:
        paths: a file, a notebook or a folder, or several.
        step: as for :func:`gradkit.diagnose`, or a text such as ``"train.py:step"``; and so are ``batch``, ``model``,
            ``loss``, ``optimizer``, ``should_train`` and ``replay``.

    Raises:
        GradkitError: there is no such path; or the step cannot be run.

    Example:
        >>> scan(__file__).sites
        ()
    """
    if step is None and model is None:
        return listed(paths)

    def made() -> Step:
        if isinstance(step, str):
            return from_spec(step, model=model, batch=batch, loss=loss)
        return step_of(step if step is not None else model, batch, model, loss)

    return judged(paths, made, optimizer=optimizer, should_train=should_train, replay=replay)


def listed(paths: Paths) -> Scan:
    """The places alone."""
    found, files, skipped = _sites(paths)
    return Scan(tuple(Judgement(site) for site in found), files, skipped)


def judged(paths: Paths, made: Callable[[], Step], **given: Any) -> Scan:
    """The places, and what the diagnosis of a step says of each.

    Args:
        made: makes the step; the lines that run meanwhile are known to have run before it.
        **given: for the diagnosis.
    """
    found, files, skipped = _sites(paths)
    watched = {site.location.file for site in found if not site.cell}
    before = Visits(watched)
    with before.listening():
        step = made()
    report, during = _diagnosed(step, watched, given)
    changed = _changed(before, during)
    return Scan(judge_sites(found, report, during.lines, before.lines, changed), files, skipped, report)


def _changed(*ran: Visits) -> set[str]:
    """The files that no longer hold the code that ran, by their real paths."""
    codes = [code for visits in ran for code in visits.codes.values()]
    with imported.looking():
        imported.codes_ran(codes)
        files = {code.co_filename for code in codes}
        return {os.path.realpath(file) for file in files if imported.read(file).changed}


def _diagnosed(step: Step, watched: set[str], given: dict[str, Any]) -> tuple[Report, Visits]:
    """The diagnosis, and the lines that the step ran in it: in its first run, for the others change the step."""
    visits = Visits(watched)
    with contextlib.ExitStack() as listening:

        def progress(stage: str) -> None:
            if stage == "trace":
                listening.enter_context(visits.listening())
            elif stage != "reach":
                listening.close()

        return diagnose(step, progress=progress, **given), visits


def _sites(paths: Paths) -> tuple[list[Site], int, tuple[Skipped, ...]]:
    found: list[Site] = []
    skipped: list[Skipped] = []
    count = 0
    for file in source_files([paths] if isinstance(paths, (str, os.PathLike)) else paths):
        count += 1
        read = read_sources(file, sites.worth)
        skipped += [one for one in read if isinstance(one, Skipped)]
        found += sites.find_sites([one for one in read if isinstance(one, Text)])
    return found, count, tuple(skipped)
