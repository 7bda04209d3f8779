"""The package itself: where it lies, its version, and what its face hands down to the rooms."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(os.path.abspath(__file__)).parents[1]  # not resolved: code objects name their files unresolved, too
VERSION = "0.1.0"
read_guide: Callable[[str, str], Any] | None = None
"""The guide to a cause, in a language. Guides are texts of ``teaching``, a room after those whose pages hold them, so
``gradkit/__init__.py``, which opens all rooms, says here how one is read."""
