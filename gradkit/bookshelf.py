"""All books by name: those of ``books/``, and one for each guide; each a notebook in English and in Chinese."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import Any

from gradkit import cause_registry, guidebooks, i18n, pages
from gradkit.errors import GradkitError
from gradkit.pages import Page

GUIDES = "guides/"


def folder() -> Path:
    """Where the sources of the books lie that are no guides."""
    return Path(str(resources.files("gradkit").joinpath("books")))


@functools.cache
def sources() -> tuple[str, ...]:
    """The names of the books in ``books/``, in alphabetical order.

    Example:
        >>> "start" in sources()
        True
    """
    return tuple(sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob("*.py")))


def names() -> tuple[str, ...]:
    """The names of all books: ``"start"``, ``"workshop/01_no_grad"``, ``"guides/detach"`` ...

    Example:
        >>> "guides/detach" in names()
        True
    """
    return (*sources(), *(GUIDES + cause for cause in cause_registry.causes()))


def read(name: str) -> tuple[Page, ...]:
    """The pages of a book, in both languages.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> [page.kind for page in read("start")][:2]
        ['markdown', 'code']
    """
    if name not in names():
        raise GradkitError("no_such_notebook", name=name)
    if name.startswith(GUIDES):
        return guidebooks.pages_of(name.removeprefix(GUIDES))
    return pages.parse((folder() / f"{name}.py").read_text(encoding="utf-8"))


def notebook(name: str, language: str) -> Any:
    """One book in one language, as a ``nbformat.NotebookNode`` without outputs.

    Args:
        name: one of :func:`names`.
        language: ``"en"`` or ``"zh"``.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> notebook("start", "en").cells[0].source.splitlines()[0]
        '# Which line of my code lost the gradient?'
    """
    return pages.bound(read(name), language)


def title(name: str, language: str) -> str:
    """The heading of a book.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> title("guides/detach", "en")
        'detach() stands in the way of the loss'
    """
    return read(name)[0].says(language).splitlines()[0].removeprefix("# ")


def written(name: str, language: str) -> str:
    """The ``.ipynb`` file of a book in one language: the same text at every call.

    Raises:
        GradkitError: ``no_such_notebook``.
    """
    import nbformat

    return str(nbformat.writes(notebook(name, language))).rstrip("\n") + "\n"


def beside(name: str, language: str) -> dict[str, str]:
    """The files that lie beside a notebook, with their text: what makes it speak its language, and how its slides look.

    Example:
        >>> sorted(beside("workshop/slides", "zh")), beside("start", "en")
        (['.gradkit-language', 'slides.css'], {})
    """
    files = {} if language == "en" else {i18n.MARKER: f"{language}\n"}
    looks = (folder() / name).with_suffix(".css")
    return {**files, looks.name: looks.read_text(encoding="utf-8")} if looks.exists() else files
