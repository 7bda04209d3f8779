"""The cells of the notebook that is running, as source files."""

from __future__ import annotations

import linecache
import re
import sys
from typing import Any

from gradkit import i18n


def shell() -> Any:
    """IPython's shell; None outside of a notebook or IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def is_cell(file: str) -> bool:
    """Whether IPython gave a cell this file name.

    Example:
        >>> is_cell("/tmp/ipykernel_7/3321010380.py"), is_cell("<ipython-input-2-0956e7f17520>"), is_cell("train.py")
        (True, True, False)
    """
    return "ipykernel_" in file or file.startswith("<ipython")


def name(file: str, language: str | None = None) -> str:
    """What a person calls a cell: by the number in front of it, from its last run, where IPython knows that.

    Example:
        >>> name("/tmp/ipykernel_7/3321010380.py", "en")
        'notebook cell'
    """
    running = shell()
    known = running.compile.format_code_name(file) if running is not None else None
    number = re.search(r"\d+", known[1]) if known else None
    if number is None:
        return i18n.words("report.cell", language)
    return i18n.words("report.cell_numbered", language, number=number[0])


def files() -> tuple[str, ...]:
    """The cells as names of source files (``linecache`` has their text), the last executed first; ``()`` elsewhere."""
    running = shell()
    if running is None:
        return ()
    found: dict[str, None] = {}
    for number, text in reversed(list(enumerate(running.history_manager.input_hist_raw))):
        name = running.compile.get_code_name(text, text, number)
        if name in linecache.cache:
            found[name] = None
    return tuple(found)
