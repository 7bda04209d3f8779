"""The one error class: one sentence, the offending thing named, and what to do."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from gradkit.core import i18n, printable

WIDTH = 96

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class GradkitError(Exception):
    """Something that a person can put right before a diagnosis can be made.

    The sentence is looked up in the catalogue under ``error.<key>`` when the error is shown,
    so the same object reads in English or in Chinese.

    Args:
        key: the error's id, for example ``"no_such_file"``.
        near: what the person may have meant instead.
        **facts: what the sentence names. Every value is shown with ``str``.

    Example:
        >>> print(GradkitError("no_such_file", path="train.py"))
        No such file: train.py. Check the path; relative paths start at the current folder.
        >>> print(GradkitError("no_such_file", path="trian.py", near=["train.py"]))
        No such file: trian.py. Check the path; relative paths start at the current folder. Did you mean train.py?
    """

    def __init__(self, key: str, *, near: Sequence[str] = (), **facts: object) -> None:
        self.key = key
        self.near = tuple(near)
        self.facts = {name: str(value) for name, value in facts.items()}
        super().__init__(key)

    def __str__(self) -> str:
        return printable.fitted(self.text())

    def text(self, language: str | None = None) -> str:
        """The sentence in ``language`` (``"en"``, ``"zh"``, or None for the one in use)."""
        facts = {name: printable.shortened(value) for name, value in self.facts.items()}
        said = i18n.words(f"error.{self.key}", language, **facts)
        if not self.near:
            return said
        meant = printable.shortened(", ".join(self.near))
        return said + i18n.words("error.did_you_mean", language, names=meant)

    def _render_traceback_(self) -> list[str]:
        return in_place_of_a_traceback(f"{type(self).__name__}: {self}")


def letting_go(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Of a ``GradkitError`` that a function raises, the traceback keeps its lines but not the variables in them.

    A notebook keeps the last error, and with the variables of every function that it passed the model would be kept,
    on the GPU too. Those of the caller are the caller's.

    Example:
        >>> @letting_go
        ... def load(model): raise GradkitError("no_such_file", path="train.py")
        >>> try: load([1])
        ... except GradkitError as error: error.__traceback__.tb_next.tb_next.tb_frame.f_locals
        {}
    """

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        handled = sys.exc_info()[1]  # the caller's own affair
        try:
            return function(*args, **kwargs)
        except GradkitError as error:
            del args, kwargs
            for one in _behind(error, handled):
                _clear(one)
            raise
        finally:
            del handled

    return call


def _behind(error: BaseException, but: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it was raised from or while handling them, up to one that is left out."""
    todo, seen = [error], {id(error), id(but)}
    while todo:
        one = todo.pop()
        yield one
        for other in (one.__cause__, one.__context__):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                todo.append(other)


def _clear(error: BaseException) -> None:
    """Forget the variables of all functions that an exception has ended; one that only sleeps would be ended by it."""
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_flags & _SUSPENDED:
            with contextlib.suppress(RuntimeError):  # it is running
                trace.tb_frame.clear()
                _ = (
                    trace.tb_frame.f_locals
                )  # before Python 3.13 a copy, which is brought up to date when it is asked for
        trace = trace.tb_next


def in_place_of_a_traceback(text: str) -> list[str]:
    """The lines that a notebook shows for an error whose sentences say it all, where the error's class hands them
    to IPython. They are broken between words; JupyterLab would break them anywhere.

    Example:
        >>> [len(line) for line in in_place_of_a_traceback("a line\\n" + "word " * 30)]
        [6, 94, 56]
    """
    return [part for line in text.splitlines() for part in _folded(line)]


def _folded(line: str) -> list[str]:
    inside = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, WIDTH, subsequent_indent=inside, break_long_words=False, break_on_hyphens=False) or [""]
