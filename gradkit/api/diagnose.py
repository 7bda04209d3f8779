"""Find where the gradient is lost between the parameters that should train and the loss: the door to a diagnosis."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from gradkit.core import attempts
from gradkit.core.attempts import Attempts
from gradkit.core.errors import letting_go
from gradkit.core.records import Picture
from gradkit.diagnosis import pipeline
from gradkit.diagnosis.facts import inventory, optimizers
from gradkit.diagnosis.pipeline import Diagnosis, Options
from gradkit.load.step import step_of
from gradkit.report.picture import build, torchviz_kept
from gradkit.report.report import Report
from gradkit.source import frames
from gradkit.state.preserve import Preserved


@letting_go
def diagnose(
    model_or_step: Any,
    batch: Any = None,
    *,
    model: nn.Module | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    replay: bool = True,
    should_train: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Find where the gradient is lost between the parameters that should train and the loss.

    Args:
        model_or_step: a model (with ``batch``), a callable of no arguments that runs ONE forward pass and returns the
            loss, a ``load.Step``, or a ``transformers.Trainer`` (trl's too), whose own batch and loss are taken.
        batch: what the model is called with: a dict, a tuple or list, or a single tensor.
        model: the model whose parameters are of interest, with a step.
        loss: ``loss(output, batch)``; None takes ``output.loss``, or the output itself if it is a scalar.
        optimizer: the optimizer in use; where several train the model, as in a GAN, a list of them.
        replay: run the step once more with what was found undone, to prove it. False runs the step exactly once.
        should_train: names or globs of the parameters that ought to learn; None: all that require grad.
        progress: told the name of each stage as it begins; may raise to cancel.

    Returns:
        The report. The model, the random state, every ``.grad`` and what else the step can reach are as before, also
        if the step raises; ``docs/no_trace.md`` says what cannot be.

    Raises:
        GradkitError: the step cannot be run, or what it returns is nothing that a loss may have become.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        >>> report = diagnose(lambda: model[1](model[0](torch.ones(1, 2)).detach()).sum(), model=model)
        >>> report.findings[0].cause, report.findings[0].parameters, report.findings[0].proof
        ('detach', ('0.weight', '0.bias'), 'proven')
    """
    callers = frames.chain(sys._getframe(1), Preserved.__init__.__code__)
    with attempts.refusing(progress) as tell:
        patterns = inventory.patterns(should_train)
        given = optimizers.several(optimizer)
        options = Options(given=given, replay=replay, should_train=patterns, callers=callers)
        step = step_of(model_or_step, batch, model, loss)
        report, left = pipeline.run(step, options, report_of, tell, progress)
        return replace(report, left=left)


def report_of(found: Diagnosis) -> Report:
    """What was found, with its pictures; one that breaks off is told of, and left out."""
    first, facts, tries = found.evidence.first, found.evidence.facts, Attempts()
    verdict, rerun = found.evidence.verdict, found.evidence.shown.rerun
    backward = first.reached.runs and not first.reached.error
    drawn = tries.make(
        "picture",
        lambda: build.make_picture(
            first.trace, verdict, first.graph, rerun, found.findings, facts.rows, facts.modules, first.value, backward
        ),
        Picture((), (), facts.modules, found.findings, first.value, backward),
    )
    keep = partial(torchviz_kept.keep, first.trace, first.graph, rerun, drawn)
    kept = tries.make("picture", keep, torchviz_kept.Kept())
    return Report(
        found.findings, facts.rows, drawn, found.label, first.value, first.reached.runs, first.error, found.runs,
        found.harmless, first.graph.nodes[0].label if first.graph.nodes else "",
        untried=(*found.untried, *tries.untried), meant=found.meant, autograd=kept, terms=found.terms,
    )  # fmt: skip
