"""gradkit names the line of your code where the gradient was lost, proves it, draws it and teaches the fix."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gradkit.core import package

if TYPE_CHECKING:
    from gradkit.api.diagnose import diagnose as diagnose
    from gradkit.api.scan import scan as scan
    from gradkit.api.verify import verify as verify
    from gradkit.core.errors import GradkitError as GradkitError
    from gradkit.core.i18n import language as language
    from gradkit.live.watch import Watch
    from gradkit.notebook.panel import Panel
    from gradkit.notebook.quiz import Quiz
    from gradkit.report.report import Report
    from gradkit.teaching.claim import claim as claim
    from gradkit.teaching.claim import claims as claims
    from gradkit.teaching.experiment import judge as judge
    from gradkit.teaching.guide import Guide
    from gradkit.teaching.guide import guide as guide

__version__ = package.VERSION
__all__ = [
    "GradkitError", "__version__", "callback", "causes", "claim", "claims", "diagnose", "explain", "guide", "judge",
    "language", "panel", "quiz", "scan", "verify", "watch",
]  # fmt: skip
_HOMES = {
    "GradkitError": "core.errors", "claim": "teaching.claim", "claims": "teaching.claim", "diagnose": "api.diagnose",
    "guide": "teaching.guide", "judge": "teaching.experiment", "language": "core.i18n", "scan": "api.scan",
    "verify": "api.verify",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What is asked for is imported then: a command, and a program that ``gradkit run`` starts, need little of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"gradkit.{_HOMES[name]}"), name)
    return found


def _read_guide(cause: str, language: str) -> Guide:
    from gradkit.teaching.guide import guide

    return guide(cause, language)


package.read_guide = _read_guide


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def callback(library: str) -> Any:
    """A callback for a trainer, which watches while it trains: ``Trainer(..., callbacks=[gradkit.callback(...)])``.

    Args:
        library: ``"transformers"`` (for Trainer, and trl's trainers) or ``"lightning"``.

    Example:
        >>> try: callback("keras")
        ... except GradkitError as error: error.key
        'no_callback'
    """
    from gradkit.live.callbacks import callback

    return callback(library)


def causes() -> tuple[str, ...]:
    """The ids of all causes that a diagnosis can name, in alphabetical order; each has a :func:`guide`.

    Example:
        >>> "detach" in causes()
        True
    """
    from gradkit.core.causes import causes

    return causes()


def explain(error: BaseException | None = None, *, model: Any = None, optimizer: Any = None) -> Report:
    """Explain what failed just now: the last cell, script or statement that nobody caught.

    The step that failed is run once more from the frames that the error holds, and all is put back.

    Args:
        error: another exception than the last one, with its traceback.
        model: the model whose parameters are of interest; None finds it.
        optimizer: the optimizer in use, or a list of them; None finds it.

    Returns:
        The report; ``report.origin`` says which lines were run again.

    Raises:
        GradkitError: nothing failed (``nothing_failed``), autograd has no part in it (``not_of_autograd``), or the step
            could not be run again and the error says too little (``not_explained``).

    Example:
        >>> try: explain(ValueError("no such file"))
        ... except GradkitError as error: print(error.key)
        not_of_autograd
    """
    from gradkit.live.explain import last_report

    return last_report(error, model=model, optimizer=optimizer)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext gradkit``: what gradkit finds stands beneath the traceback of a failed cell; ``%%gradkit`` has a cell
    watched."""
    from gradkit.notebook import extension

    extension.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext gradkit``."""
    from gradkit.notebook import extension

    extension.unload(shell)


def panel(model: Any = None, batch: Any = None, **given: Any) -> Panel:
    """The panel for a notebook: choose a model and a batch, diagnose, look, walk the fix.

    Args:
        model: a module of yours to begin with; None to choose on the panel.
        batch: what to run it on.
        **given: ``loss``, ``step``, ``optimizer`` or ``language``, as for :class:`gradkit.notebook.panel.Panel`.

    Example:
        >>> panel(language="zh").diagnose.description
        '开始诊断'
    """
    from gradkit.notebook.panel import Panel

    return Panel(model, batch, **given)


def quiz(language: str | None = None) -> Quiz:
    """The quiz for a notebook: guess whether what people believe about autograd is so, run the experiment, see.

    Args:
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Example:
        >>> quiz(language="en").next.description
        'Next'
    """
    from gradkit.notebook.quiz import Quiz

    return Quiz(language)


def watch(model: Any = None, optimizer: Any = None, *, tell: Any = None) -> Watch:
    """Watch training from here on: an error of autograd's names the line, and what silently gets no gradient is told.

    Args:
        model: the model that is trained; None finds it where it is trained.
        optimizer: only this optimizer's steps are looked at, or those of a list of them; None: those of all.
        tell: called with what was found of each silent fault; None writes it to the error stream.

    Returns:
        The watch, which is open until its ``close()``, the end of its ``with`` block, or the end of the program.

    Example:
        >>> with watch() as w: w
        <gradkit.Watch: open, steps: 0, reports: 0>
    """
    from gradkit.live.watch import watch

    return watch(model, optimizer, tell=tell)
