"""Writes notebooks into a folder of the user's, from the package alone; or scripts with ``# %%`` cells."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gradkit import bookshelf, i18n, regular, writing
from gradkit.errors import GradkitError

FORMS = ("ipynb", "py")


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
            files |= {path.with_name(other): text for other, text in bookshelf.beside(name, language).items()}
    wanted = {path: text for path, text in files.items() if not _holds(path, text)}
    if not force and (there := [path for path in wanted if os.path.lexists(path) and path.name != i18n.MARKER]):
        raise GradkitError("notebook_there", path=there[0], n=len(there))
    for path, text in wanted.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():  # by force: what it leads to is not the person's wish
                path.unlink()
            regular.check_target(path)
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
        some = [name for name in bookshelf.names() if fnmatch.fnmatchcase(name, short) or name.startswith(f"{short}/")]
        if not some:
            raise GradkitError("no_such_notebook", name=pattern)
        found |= dict.fromkeys(some)
    return tuple(found) or bookshelf.names()


def _text(name: str, language: str, form: str) -> str:
    return bookshelf.written(name, language) if form == "ipynb" else script(bookshelf.notebook(name, language))


def script(notebook: Any) -> str:
    """A notebook as a Python script with ``# %%`` cells, which VS Code's interactive window runs one by one."""
    import jupytext

    notebook.metadata["jupytext"] = {"notebook_metadata_filter": "-all"}
    return str(jupytext.writes(notebook, fmt="py:percent"))


def _holds(path: Path, text: str) -> bool:
    try:
        return not path.is_symlink() and regular.read(path) == text.encode()
    except OSError:
        return False
