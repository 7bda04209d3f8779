"""Books: the sources of the notebooks, each one file with both languages in it, and the notebook made of one.

``books/<name>.py`` is in jupytext's percent format. Each English text cell is followed by its Chinese one::

    # %% [markdown] lang="en"
    # # A title

    # %% [markdown] lang="zh" of="1a2b3c4d"
    # # 标题

    # %%
    import gradkit

``of`` is the :func:`stamp` of the English text that the Chinese was written from.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from gradkit.errors import GradkitError

OURS = frozenset({"lang", "of", "id", "lines_to_next_cell"})
"""Metadata that is ours or jupytext's and does not go into a notebook."""


@dataclass(frozen=True)
class Cell:
    """One cell of a book.

    Attributes:
        kind: ``"markdown"`` or ``"code"``.
        text: what it says, by language; ``""`` for one that is missing. Code has the key ``""`` alone.
        of: the stamp beside the Chinese text.
        name: a cell id that the book chose, or ``""``.
        metadata: what else stood on its first line: ``tags``, ``nbgrader``, ``slideshow`` ...
    """

    kind: str
    text: dict[str, str]
    of: str = ""
    name: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def says(self, language: str) -> str:
        """Its source in one language."""
        return self.text[""] if "" in self.text else self.text.get(language, "")


def stamp(english: str) -> str:
    """What a Chinese cell carries to say which English text it was written from: eight hexadecimal digits.

    Example:
        >>> stamp("# Title ") == stamp("# Title") != stamp("# Titles")
        True
    """
    return hashlib.sha256(english.strip().encode()).hexdigest()[:8]


@functools.cache
def names() -> tuple[str, ...]:
    """The names of all books, in alphabetical order: ``"start"``, ``"workshop/01_no_grad"`` ...

    Example:
        >>> "start" in names()
        True
    """
    return tuple(sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob("*.py")))


def folder() -> Path:
    """Where the sources lie."""
    return Path(str(resources.files("gradkit").joinpath("books")))


def read(name: str) -> tuple[Cell, ...]:
    """The cells of a book, each text once, with both its languages.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> [cell.kind for cell in read("start")][:2]
        ['markdown', 'code']
    """
    if name not in names():
        raise GradkitError("no_such_notebook", name=name, known=", ".join(names()))
    return cells((folder() / f"{name}.py").read_text(encoding="utf-8"))


def cells(source: str) -> tuple[Cell, ...]:
    """The cells of a book's source."""
    import jupytext

    found: list[Cell] = []
    for one in jupytext.reads(source, fmt="py:percent").cells:
        language, kept = one.metadata.get("lang", ""), {k: v for k, v in one.metadata.items() if k not in OURS}
        before = found[-1] if found else None
        if language == "zh" and before is not None and before.kind == one.cell_type and list(before.text) == ["en"]:
            both = {**before.text, "zh": one.source}
            found[-1] = Cell(before.kind, both, one.metadata.get("of", ""), before.name, before.metadata)
        else:
            found.append(Cell(one.cell_type, {language: one.source}, "", one.metadata.get("id", ""), kept))
    return tuple(found)


def notebook(name: str, language: str) -> Any:
    """One book in one language, without outputs.

    Args:
        name: one of :func:`names`.
        language: ``"en"`` or ``"zh"``.

    Returns:
        A ``nbformat.NotebookNode``. Its cell ids are the same in both languages, and at every call.

    Raises:
        GradkitError: ``no_such_notebook``.

    Example:
        >>> notebook("start", "en").cells[0].source.splitlines()[0]
        '# Which line of my code lost the gradient?'
    """
    return bound(read(name), language)


def bound(pages: Iterable[Cell], language: str) -> Any:
    """Cells as a notebook in one language."""
    from nbformat import v4

    made, taken = [], set[str]()
    for page in pages:
        facts = {"id": _id(page, taken), "metadata": page.metadata}
        source = page.says(language)
        made.append(v4.new_code_cell(source, **facts) if page.kind == "code" else v4.new_markdown_cell(source, **facts))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def _id(page: Cell, taken: set[str]) -> str:
    """The book's own choice, else made from the English text, so that it stays while cells come and go around it."""
    first = page.name or stamp(page.says("en"))
    free = next(name for n in range(1, len(taken) + 2) if (name := first if n == 1 else f"{first}-{n}") not in taken)
    taken.add(free)
    return free


def written(name: str, language: str) -> str:
    """The ``.ipynb`` file of a book in one language: the same text at every call."""
    import nbformat

    return str(nbformat.writes(notebook(name, language))).rstrip("\n") + "\n"
