"""Lines of a test's own file that end in a word: ``self.weight = table  # kept``."""

from __future__ import annotations

from pathlib import Path


def line_ending(file: str, word: str) -> int:
    """The number of the first line that ends in ``  # word``."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"  # {word}"))
