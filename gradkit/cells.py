"""The cells of the notebook that is running, as source files."""

from __future__ import annotations

import linecache
import sys
from typing import Any


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
