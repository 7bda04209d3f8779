"""Experiments that may fail without costing what was found: what broke off is told, and the rest of the report stands.

gradkit's own tests are not to miss a fault, so there everything is raised: ``conftest.py`` sets ``LOUD``.
Warnings that a filter makes errors (``python -W error``, pytest's ``filterwarnings``) are let pass, and kept.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from gradkit.core import introspection, package
from gradkit.core.errors import GradkitError
from gradkit.core.records import Untried

LOUD = False
Answer = TypeVar("Answer")


class Attempts:
    """The experiments of one diagnosis.

    Args:
        after: called when one has broken off, to put back what it may have left.

    Attributes:
        untried: those that broke off.

    Example:
        >>> import gradkit.core.attempts
        >>> gradkit.core.attempts.LOUD = False
        >>> attempts = Attempts()
        >>> attempts.make("picture", lambda: 1 / 0, otherwise=0), attempts.untried
        (0, [Untried(what='picture', error='ZeroDivisionError: division by zero')])
        >>> gradkit.core.attempts.LOUD = True
    """

    def __init__(self, after: Callable[[], object] = lambda: None) -> None:
        self._after = after
        self.untried: list[Untried] = []

    def make(self, what: str, attempt: Callable[[], Answer], otherwise: Answer) -> Answer:
        """What ``attempt`` returns; ``otherwise`` if it raises, which is then kept under ``what``."""
        try:
            return attempt()
        except Exception as error:
            if LOUD and not isinstance(error, GradkitError):
                raise
            self.untried.append(Untried(what, words(error)))
            self._after()
            return otherwise


@contextlib.contextmanager
def refusing(progress: Callable[[str], None] | None = None) -> Iterator[Callable[[str], None]]:
    """Whatever breaks inside that is no GradkitError becomes one, which says that it is a fault of gradkit's.

    Gives ``progress``, or what stands for it: an exception of the caller's own comes through as it is.
    """
    own: list[BaseException] = []

    def tell(stage: str) -> None:
        try:
            if progress is not None:
                progress(stage)
        except BaseException as error:
            own.append(error)
            raise

    try:
        yield tell
    except GradkitError:
        raise
    except Exception as error:
        if LOUD or any(error is one for one in own):
            raise
        raise GradkitError("own_fault", error=words(error), place=_place(error)) from error


def words(error: BaseException) -> str:
    """An exception in one short line.

    Example:
        >>> words(KeyError("a"))
        "KeyError: 'a'"
    """
    said = next(iter(introspection.text(error).splitlines()), "")
    name = type(error).__name__
    return f"{name}: {said[:200]}" if said and said != name else name


def _place(error: BaseException) -> str:
    """The last line of gradkit's that an exception passed."""
    ours, found, trace = package.FOLDER, "-", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if ours in file.parents:
            found = f"{file.relative_to(ours.parent).as_posix()}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


@contextlib.contextmanager
def lifted() -> Iterator[list[str]]:
    """While the block runs, no warning is raised as an error; what would have been is in the list at its end.

    Filters are the whole process's: where none makes errors, they are not touched, and a step of the user's is never
    to run inside.

    Example:
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error")
        ...     with lifted() as kept:
        ...         warnings.warn("old", FutureWarning)
        >>> kept
        ['FutureWarning: old']
    """
    kept: list[str] = []
    if not any(action == "error" for action, *_ in warnings.filters):
        yield kept
        return
    heard: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            heard = caught
            rules = [("always" if action == "error" else action, *rest) for action, *rest in warnings.filters]
            warnings.filters[:] = rules  # type: ignore[index]
            warnings.simplefilter("default", append=True)  # Python looks at the filters anew
            yield kept
    finally:
        for warning in heard:
            with contextlib.suppress(Warning):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
                continue
            kept.append(f"{warning.category.__name__}: {warning.message}")
