"""What is remembered of a person's choices from one kernel to the next: one small file in their configuration folder.

It only ever makes things more convenient: where it cannot be read or written, nothing is remembered and nothing fails.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import platformdirs

from gradkit.core import regular_files, writing

FOLDER = "GRADKIT_CONFIG_DIR"
"""The environment variable that names another folder."""


def file() -> Path:
    """Where it lies, there or not: ``settings.json`` in ``$GRADKIT_CONFIG_DIR`` or in the person's own folder."""
    named = os.environ.get(FOLDER)
    return (Path(named) if named else Path(platformdirs.user_config_dir("gradkit", appauthor=False))) / "settings.json"


def remembered(name: str) -> str:
    """What was chosen last, ``""`` if nothing is known."""
    chosen = _choices().get(name, "")
    return chosen if isinstance(chosen, str) else ""


def remember(name: str, chosen: str) -> None:
    """Keep a choice for the next time, if that can be done."""
    with contextlib.suppress(OSError, RuntimeError):
        save(file(), {**_choices(), name: chosen})


def save(path: Path, facts: Any) -> None:
    """Write a small JSON file in one piece, in a folder that is made if need be.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    regular_files.check_target(path)
    writing.write(path, (json.dumps(facts) + "\n").encode())


def _choices() -> dict[str, Any]:
    try:
        choices = regular_files.read_json(file())
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a system that knows no home folder
        return {}
    return choices if isinstance(choices, dict) else {}
