"""gradkit names the line of your code where the gradient was lost, proves it, draws it and teaches the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradkit.beliefs import claim as claim
from gradkit.beliefs import claims as claims
from gradkit.diagnose import diagnose as diagnose
from gradkit.errors import GradkitError as GradkitError
from gradkit.guide import guide as guide
from gradkit.i18n import language as language
from gradkit.scan import scan as scan
from gradkit.trial import judge as judge
from gradkit.verify import verify as verify

if TYPE_CHECKING:
    from gradkit.widgets.panel import Panel
    from gradkit.widgets.quiz import Quiz

__version__ = "0.1.0"
__all__ = [
    "GradkitError", "__version__", "causes", "claim", "claims", "diagnose", "guide", "judge", "language", "panel",
    "quiz", "scan", "verify",
]  # fmt: skip


def causes() -> tuple[str, ...]:
    """The ids of all causes that a diagnosis can name, in alphabetical order; each has a :func:`guide`.

    Example:
        >>> "detach" in causes()
        True
    """
    from gradkit.cause_registry import causes

    return causes()


def panel(model: Any = None, batch: Any = None, **given: Any) -> Panel:
    """The panel for a notebook: choose a model and a batch, diagnose, look, walk the fix.

    Args:
        model: a module of yours to begin with; None to choose on the panel.
        batch: what to run it on.
        **given: ``loss``, ``step``, ``optimizer`` or ``language``, as for :class:`gradkit.widgets.panel.Panel`.

    Example:
        >>> panel(language="zh").diagnose.description
        '开始诊断'
    """
    from gradkit.widgets.panel import Panel

    return Panel(model, batch, **given)


def quiz(language: str | None = None) -> Quiz:
    """The quiz for a notebook: guess whether what people believe about autograd is so, run the experiment, see.

    Args:
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Example:
        >>> quiz(language="en").next.description
        'Next'
    """
    from gradkit.widgets.quiz import Quiz

    return Quiz(language)
