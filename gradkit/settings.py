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

from gradkit import regular

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
        keep(file(), {**_choices(), name: chosen})


def keep(path: Path, noted: dict[str, Any]) -> None:
    """Write a file of the configuration folder, also where that is a link to a person's collection of such files.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    regular.write(Path(os.path.realpath(path)), json.dumps(noted) + "\n")


def _choices() -> dict[str, Any]:
    try:
        choices = regular.read_json(file())
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a system that knows no home folder
        return {}
    return choices if isinstance(choices, dict) else {}
