"""What could be meant: the functions in the Python files near by, read without running them, and the data files."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

from gradkit import regular, trainings

DATA = (".pt", ".pth", ".safetensors", ".npz", ".npy", ".json")
_SKIPPED = frozenset("node_modules site-packages __pycache__ build dist venv env".split())
_MOST_FILES, _MOST_LOOKED_AT, _LARGEST = 60, 4000, 400_000


def specs(folder: Path) -> tuple[str, ...]:
    """``train.py:step`` ...: what the Python files in a folder, and up to two below it, define, but for what trains
    for a whole run.

    Nothing is imported or run. A file that cannot be read or parsed is left out.

    Example:
        >>> specs(Path("no such folder"))
        ()
    """
    return tuple(f"{_relative(path, folder)}:{name}" for path in _files(folder, (".py",)) for name in _defined(path))


def data_files(folder: Path) -> tuple[str, ...]:
    """The files in a folder, and up to two below it, that may hold a batch or weights."""
    return tuple(_relative(path, folder) for path in _files(folder, DATA))


def adapters(folder: Path) -> tuple[str, ...]:
    """The folders near by that hold an adapter."""
    found = (path.parent for path in _walk(folder, (".json",)) if path.name == "adapter_config.json")
    return tuple(_relative(path, folder) for path in found)


def _files(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    return sorted(itertools.islice(_walk(folder, endings), _MOST_FILES))


def _walk(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    for depth in ("*", "*/*", "*/*/*"):
        try:
            found = itertools.islice(folder.glob(depth), _MOST_LOOKED_AT)
            yield from (path for path in sorted(found) if path.suffix in endings and _wanted(path, folder))
        except OSError:  # a folder that may not be read
            continue


def _wanted(path: Path, folder: Path) -> bool:
    above = path.relative_to(folder).parts
    return path.is_file() and not any(part.startswith(".") or part in _SKIPPED for part in above)


def _defined(path: Path) -> list[str]:
    try:
        tree = ast.parse(regular.read(path, _LARGEST))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return trainings.proposed(tree)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
