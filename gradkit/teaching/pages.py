"""The pages of a book: cells with both languages in them, read from a source, bound into a notebook of one language.

A source is in jupytext's percent format. Each English text cell is followed by its Chinese one::

    # %% [markdown] lang="en"
    # # A title

    # %% [markdown] lang="zh" of="1a2b3c4d"
    # # 标题

    # %%
    import gradkit

``of`` is the :func:`stamp` of the English text that the Chinese was written from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gradkit.teaching import bilingual

OURS = frozenset({"lang", "of", "id", "lines_to_next_cell"})
"""Metadata that is ours or jupytext's and does not go into a notebook."""
SHOW = {"theme": "white", "scroll": True, "start_slideshow_at": "beginning", "transition": "none"}
"""How RISE shows slides. Its own choice of a theme loads fonts from the network; this one needs none."""


@dataclass(frozen=True)
class Page:
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
    return bilingual.stamp(english.strip(), digits=8)


def parse(source: str) -> tuple[Page, ...]:
    """The pages of a book's source, each text once, with both its languages.

    Example:
        >>> [page.kind for page in parse('# %% [markdown] lang="en"\\n# Hello\\n\\n# %%\\n1 + 1\\n')]
        ['markdown', 'code']
    """
    import jupytext

    found: list[Page] = []
    for cell in jupytext.reads(source, fmt="py:percent").cells:
        language, kept = cell.metadata.get("lang", ""), {k: v for k, v in cell.metadata.items() if k not in OURS}
        before = found[-1] if found else None
        if language == "zh" and before is not None and before.kind == cell.cell_type and list(before.text) == ["en"]:
            both = {**before.text, "zh": cell.source}
            found[-1] = Page(before.kind, both, cell.metadata.get("of", ""), before.name, {**before.metadata, **kept})
        else:
            found.append(Page(cell.cell_type, {language: cell.source}, "", cell.metadata.get("id", ""), kept))
    return tuple(found)


def bound(pages: Iterable[Page], language: str) -> Any:
    """Pages as a notebook in one language, without outputs: a ``nbformat.NotebookNode``.

    Its cell ids are the same in both languages, and at every call.
    """
    from nbformat import v4

    made, taken, pages = [], set[str](), tuple(pages)
    for page in pages:
        facts = {"id": _id(page, taken), "metadata": page.metadata}
        source = page.says(language)
        made.append(v4.new_code_cell(source, **facts) if page.kind == "code" else v4.new_markdown_cell(source, **facts))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    slides = {"rise": dict(SHOW)} if any("slideshow" in page.metadata for page in pages) else {}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}, **slides}
    return v4.new_notebook(cells=made, metadata=metadata)


def _id(page: Page, taken: set[str]) -> str:
    """The book's own choice, else made from the English text, so that it stays while cells come and go around it."""
    first = page.name or stamp(page.says("en"))
    free = next(name for n in range(1, len(taken) + 2) if (name := first if n == 1 else f"{first}-{n}") not in taken)
    taken.add(free)
    return free
