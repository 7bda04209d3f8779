"""Judge programs by running them: one assertion for your own tests, and the checks of the workshop.

In a test::

    from gradkit.testing import assert_learns

    def test_the_adapter_learns():
        model, optimizer = build()
        assert_learns(model, lambda: loss_of(model, batch), should_train=["*lora_*"], optimizer=optimizer)

With ``pytest_plugins = ["gradkit.testing"]`` in ``conftest.py``, a test that trains may take a fixture::

    def test_training_runs(gradkit_watch):
        train(epochs=1)  # fails if a parameter silently gets no gradient, and names the line
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from gradkit.api.verify import verify
from gradkit.core import attempts, i18n
from gradkit.core.errors import GradkitError, letting_go
from gradkit.diagnosis.facts import inventory, optimizers
from gradkit.live.watch import Watch
from gradkit.report.report import Report
from gradkit.state.preserve import Preserved, grad_of
from gradkit.teaching import predictions
from gradkit.teaching.check import Hint, Progress, check, hint, judged, progress
from gradkit.teaching.grading import NotYet, Verdict
from gradkit.teaching.predictions import Prediction, happened
from gradkit.teaching.results import Results, results
from gradkit.tracing.run import Session

__all__ = [
    "Hint", "NotYet", "Prediction", "Progress", "Results", "Verdict", "assert_learns", "check", "happened", "hint",
    "judged", "predict", "progress", "results",
]  # fmt: skip


def predict(name: str, letter: str = "") -> Any:
    """Predict what a program of the workshop does, before it runs: the question, with its answers to click.

    Args:
        name: the exercise.
        letter: the answer; ``""`` to be asked. It is kept, and counts until :func:`happened` was called.

    Returns:
        With a letter a :class:`Prediction`. Without one a widget, which is the question as text where no widgets run.

    Raises:
        GradkitError: no such exercise (``no_such_exercise``), or none of the letters (``no_such_letter``).
    """
    if letter:
        return predictions.predict(name, letter)
    from gradkit.notebook.ask import Ask

    return Ask(name)


@letting_go
def assert_learns(
    model: nn.Module,
    step: Callable[[], Any],
    *,
    should_train: Sequence[str] | None = None,
    frozen: Sequence[str] = (),
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> Report:
    """Assert that every parameter that should train gets a gradient, and that the optimizer moves it.

    It is :func:`gradkit.verify`, and beyond that a step of the optimizer.

    Args:
        model: the model.
        step: called without arguments; runs ONE forward pass and returns the loss. It may train by itself.
        should_train: names or globs of the parameters that ought to learn; None: all that require grad.
        frozen: names or globs of those that must not: none of them may require grad.
        optimizer: if given, or several in a list, one step of each is made, and every parameter that should train must
            have moved.

    Returns:
        The report of a sound program. The model, the optimizer, every ``.grad`` and the random state are afterwards as
        before, also where the assertion fails.

    Raises:
        AssertionError: it does not learn; the message is the report, in the language in use.
        GradkitError: the step cannot be run, or a pattern matches no parameter.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> assert_learns(model, lambda: model(torch.ones(3, 2)).sum()).healthy
        True
        >>> try: _ = assert_learns(model, lambda: model(torch.ones(3, 2)).detach().sum())
        ... except AssertionError as error: print(str(error).splitlines()[0])
        error[detach]: detach() takes the value out of the graph of 2 parameters
    """
    done = verify(step, model=model, should_train=should_train, optimizer=optimizer)
    report = done.report
    if not report.healthy:
        raise AssertionError(report.text())
    names = tuple(name for name, _ in model.named_parameters())
    for pattern in frozen:
        if not any(inventory.matches(name, (pattern,)) for name in names):
            raise GradkitError("no_such_parameter", pattern=pattern, names=", ".join(names[:5]))
    open_ones = tuple(n for n, p in model.named_parameters() if p.requires_grad and inventory.matches(n, tuple(frozen)))
    if open_ones:
        raise AssertionError(i18n.words("learns.unfrozen", names=", ".join(open_ones)))
    if not done.passed:
        raise AssertionError(done.text())
    if given := optimizers.several(optimizer):
        wanted = [row.name for row in report.parameters if row.should_train and not row.same_as]
        if still := _unmoved(model, step, wanted, given):
            raise AssertionError(i18n.words("learns.still", names=", ".join(still)))
    return report


def _unmoved(
    model: nn.Module, step: Callable[[], Any], wanted: Sequence[str], given: Sequence[torch.optim.Optimizer]
) -> list[str]:
    """The parameters that one step of the optimizers leaves where they are; all is put back."""
    with Preserved(model, step) as preserved:
        for one in given:
            preserved.optimizer(one)
        before = {name: preserved.parameters[name].detach().clone() for name in wanted}

        def train() -> None:
            loss = getattr(value := step(), "loss", value)
            if _same(preserved, before):  # else the step has trained already
                if all(grad_of(parameter) is None for parameter in preserved.parameters.values()):
                    with attempts.lifted():
                        loss.backward()
                for one in given:
                    one.step()

        return Session(train, model, preserved).ask(lambda *_: _same(preserved, before))


def _same(preserved: Preserved, before: dict[str, torch.Tensor]) -> list[str]:
    return [name for name, old in before.items() if torch.equal(preserved.parameters[name].detach(), old)]


def watched() -> Iterator[Watch]:
    """The fixture ``gradkit_watch``: a watch that is open while a test runs.

    Raises:
        AssertionError: at the end, if something was found that raised nothing; the message is the report. What raises
            by itself fails the test by itself, and carries its note.

    Example:
        >>> test = watched()
        >>> next(test)
        <gradkit.Watch: open, steps: 0, reports: 0>
        >>> next(test, "passed")
        'passed'
    """
    silent: list[str] = []
    watch = Watch(tell=lambda found: silent.append(found.text())).open()
    try:
        yield watch
    finally:
        watch.close()
    if silent:
        raise AssertionError("\n".join(silent))


if "pytest" in sys.modules:  # a fixture is of use to it alone
    import pytest

    gradkit_watch = pytest.fixture(watched)
