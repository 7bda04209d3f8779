"""All books by name, each a notebook in English and in Chinese, written into a folder; or as scripts."""

from __future__ import annotations

import fnmatch
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gradkit.core import causes, i18n, package, regular_files, writing
from gradkit.core.errors import GradkitError
from gradkit.teaching import guide_book, pages
from gradkit.teaching.pages import Page

GUIDES = "guides/"


def books_folder() -> Path:
    """Where the sources of the books lie that are no guides."""
    return package.FOLDER / "teaching" / "books"


@functools.cache
def book_sources() -> tuple[str, ...]:
    """The names of the books in ``books/``, in alphabetical order.

    Example:
        >>> "start" in book_sources()
        True
    """
    return tuple(
        sorted(path.relative_to(books_folder()).with_suffix("").as_posix() for path in books_folder().rglob("*.py"))
    )


def book_names() -> tuple[str, ...]:
    """The names of all books: ``"start"``, ``"workshop/01_no_grad"``, ``"guides/detach"`` ...

    Example:
        >>> "guides/detach" in book_names()
        True
    """
    return (*book_sources(), *(GUIDES + cause for cause in causes.causes()))


def read_book(name: str) -> tuple[Page, ...]:
    """The pages of a book, in both languages.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> [page.kind for page in read_book("start")][:2]
        ['markdown', 'code']
    """
    if name not in book_names():
        raise GradkitError("no_such_notebook", name=name)
    if name.startswith(GUIDES):
        return guide_book.pages_of(name.removeprefix(GUIDES))
    return pages.parse((books_folder() / f"{name}.py").read_text(encoding="utf-8"))


def notebook(name: str, language: str) -> Any:
    """One book in one language, as a ``nbformat.NotebookNode`` without outputs.

    Args:
        name: one of :func:`book_names`.
        language: ``"en"`` or ``"zh"``.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> notebook("start", "en").cells[0].source.splitlines()[0]
        '# Which line of my code lost the gradient?'
    """
    return pages.bound(read_book(name), language)


def book_title(name: str, language: str) -> str:
    """The heading of a book.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> book_title("guides/detach", "en")
        'detach() lies on the path to the loss'
    """
    return read_book(name)[0].says(language).splitlines()[0].removeprefix("# ")


def write_books(name: str, language: str) -> str:
    """The ``.ipynb`` file of a book in one language: the same text at every call.

    Raises:
        GradkitError: ``no_such_notebook``.
    """
    import nbformat

    return str(nbformat.writes(notebook(name, language))).rstrip("\n") + "\n"


def language_beside(name: str, language: str) -> dict[str, str]:
    """The files that lie beside a notebook, with their text: what makes it speak its language, and how its slides look.

    Example:
        >>> sorted(language_beside("workshop/slides", "zh")), language_beside("start", "en")
        (['.gradkit-language', 'slides.css'], {})
    """
    files = {} if language == "en" else {i18n.MARKER: f"{language}\n"}
    looks = (books_folder() / name).with_suffix(".css")
    return {**files, looks.name: looks.read_text(encoding="utf-8")} if looks.exists() else files


def hand_out(
    folder: Path, names: Iterable[str] = (), *, languages: Iterable[str], form: str = "ipynb", force: bool = False
) -> list[Path]:
    """Write notebooks to ``folder/<language>/<name>.<form>``.

    What is there already with the same text is passed over. If anything else is in the way, nothing is written.

    Args:
        folder: made if it is not there.
        names: which: names, folders of names (``"guides"``) or globs; none for all.
        languages: ``"en"``, ``"zh"`` or both.
        form: ``"ipynb"``, or ``"py"`` for scripts in jupytext's percent format.
        force: whether to write over files that are there.

    Returns:
        The files that were written.

    Raises:
        GradkitError: ``no_such_notebook``, ``notebook_there``, ``notebook_not_writable``.
    """
    files: dict[Path, str] = {}
    for name in chosen(names):
        for language in languages:
            path = folder / language / f"{name}.{form}"
            files[path] = _text(name, language, form)
            files |= {path.with_name(other): text for other, text in language_beside(name, language).items()}
    wanted = {path: text for path, text in files.items() if not _holds(path, text)}
    if not force and (there := [path for path in wanted if os.path.lexists(path) and path.name != i18n.MARKER]):
        raise GradkitError("notebook_there", path=there[0], n=len(there))
    for path, text in wanted.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():  # by force: what it leads to is not the person's wish
                path.unlink()
            regular_files.check_target(path)
            writing.write(path, text.encode())
        except OSError as reason:
            raise GradkitError("notebook_not_writable", path=path, reason=reason.strerror) from reason
    return [path for path in wanted if path.suffix == f".{form}"]


def chosen(patterns: Iterable[str]) -> tuple[str, ...]:
    """The books that some patterns stand for, each once; all for none.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> chosen(["start", "guides/no_grad*"])
        ('start', 'guides/no_grad_block', 'guides/no_grad_decorator')
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        short = pattern.removesuffix(".ipynb").rstrip("/")
        some = [name for name in book_names() if fnmatch.fnmatchcase(name, short) or name.startswith(f"{short}/")]
        if not some:
            raise GradkitError("no_such_notebook", name=pattern)
        found |= dict.fromkeys(some)
    return tuple(found) or book_names()


def _text(name: str, language: str, form: str) -> str:
    return write_books(name, language) if form == "ipynb" else script(notebook(name, language))


def script(notebook: Any) -> str:
    """A notebook as a Python script with ``# %%`` cells, which VS Code's interactive window runs one by one."""
    import jupytext

    notebook.metadata["jupytext"] = {"notebook_metadata_filter": "-all"}
    return str(jupytext.writes(notebook, fmt="py:percent"))


def _holds(path: Path, text: str) -> bool:
    try:
        return not path.is_symlink() and regular_files.read_regular(path) == text.encode()
    except OSError:
        return False
