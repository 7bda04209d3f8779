"""The Python source in files, folders and notebooks, read as text and never run."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gradkit.core import regular_files
from gradkit.core.errors import GradkitError

_PASSED_OVER = frozenset(("__pycache__", "node_modules", "site-packages"))
_MAGIC = re.compile(r"^(\s*)([%!?]|[^#\n'\"]*\?$|[\w, ]+= *[%!])")


@dataclass(frozen=True)
class Text:
    """One file, or one code cell of a notebook.

    Attributes:
        file: its path, as it was asked for.
        lines: its source, each line with its end.
        tree: its syntax tree.
        cell: the number of the cell, counted from 1 over all of the notebook's cells; 0 for a plain file.
    """

    file: str
    lines: tuple[str, ...]
    tree: ast.Module
    cell: int = 0


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read.

    Attributes:
        file: its path.
        reason: names its sentence, ``scan.skipped.<reason>``: ``"unreadable"``, ``"encoding"``, ``"syntax"``,
            ``"notebook"`` or ``"too_deep"``.
        detail: what Python said of it.
        line: where, 0 if that is not known.
        cell: the notebook's cell, 0 for a plain file.
    """

    file: str
    reason: str
    detail: str = ""
    line: int = 0
    cell: int = 0


def source_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """The Python files and notebooks that some paths name or hold, each once, in the order of their names.

    In a folder, hidden folders, virtual environments, installed packages and caches are passed over, and links to
    folders are not followed. What is named by itself is taken whatever it is called.

    Raises:
        GradkitError: there is no such path, or it is a folder that may not be read.
    """
    seen: set[str] = set()
    for path in map(Path, paths):
        if not os.path.exists(path):
            raise GradkitError("no_such_path", path=path)
        if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
            raise GradkitError("cannot_open", path=path, reason=os.strerror(errno.EACCES))
        for file in _below(path) if path.is_dir() else [str(path)]:
            if (real := os.path.realpath(file)) not in seen:
                seen.add(real)
                yield file


def _below(folder: Path) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_passed_over(here, name))
        yield from (
            os.path.normpath(os.path.join(here, name)) for name in sorted(names) if name.endswith((".py", ".ipynb"))
        )


def _is_passed_over(here: str, name: str) -> bool:
    hidden = name.startswith(".") or name in _PASSED_OVER or name.endswith(".egg-info")
    return hidden or os.path.exists(os.path.join(here, name, "pyvenv.cfg"))


def read_sources(file: str, worth: Callable[[str], bool] = bool) -> list[Text | Skipped]:
    """The source of a file; of a notebook, that of its code cells, one by one.

    Args:
        worth: whether a text is worth its syntax tree; ``[]`` comes back for a file that is not.

    Example:
        >>> read_sources("no_such_file.py")[0].reason
        'unreadable'
    """
    try:
        source = regular_files.read_regular(
            file, regular_files.MOST if file.endswith(".ipynb") else regular_files.SOURCE
        )
    except OSError as error:
        return [Skipped(file, "unreadable", error.strerror or type(error).__name__)]
    if file.endswith(".ipynb"):
        return _cells(file, source, worth)
    try:
        text = decoded_source(source)
    except (UnicodeError, LookupError, SyntaxError) as error:
        return [Skipped(file, "encoding", str(error))]
    return [_parsed(file, text)] if worth(text) else []


def decoded_source(source: bytes) -> str:
    """Source code as text, every line ending in ``\\n``, by the encoding that it names or UTF-8.

    Raises:
        SyntaxError, UnicodeError, LookupError: it cannot be read so.

    Example:
        >>> decoded_source(b"x = 1\\r\\ny = 2")
        'x = 1\\ny = 2'
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    return io.TextIOWrapper(io.BytesIO(source), encoding, newline=None).read()


def _parsed(file: str, text: str, cell: int = 0) -> Text | Skipped:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text with a wrong escape is the file's own affair
            tree = ast.parse(text)
    except SyntaxError as error:
        plain = _without_magics(text) if cell else text
        return (
            Skipped(file, "syntax", error.msg, error.lineno or 0, cell) if plain == text else _parsed(file, plain, cell)
        )
    except (RecursionError, MemoryError) as error:
        return Skipped(file, "too_deep", type(error).__name__, 0, cell)
    except ValueError as error:  # null bytes
        return Skipped(file, "syntax", str(error), 0, cell)
    return Text(file, tuple(io.StringIO(text).readlines()), tree, cell)


def _cells(file: str, source: bytes, worth: Callable[[str], bool]) -> list[Text | Skipped]:
    try:
        notebook = json.loads(source)
        kernel = notebook["metadata"].get("kernelspec", {}).get("language", "python")
        cells = [(cell["cell_type"], "".join(cell.get("source", ""))) for cell in notebook["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        return [Skipped(file, "notebook", f"{type(error).__name__}: {error}")]
    code = [(number, text) for number, (kind, text) in enumerate(cells, 1) if kind == "code"]
    wanted = kernel == "python" and any(worth(text) for _, text in code)
    return [_parsed(file, text, number) for number, text in code if wanted]


def _without_magics(text: str) -> str:
    """A cell with IPython's own lines made harmless, and every other line where it was."""
    head, _, rest = text.partition("\n")
    if head.startswith("%%"):
        return f"pass\n{rest}" if head.split()[0] in ("%%time", "%%timeit", "%%capture", "%%prun") else ""
    return "".join(_MAGIC.sub(r"\1pass #", line) for line in text.splitlines(keepends=True))
