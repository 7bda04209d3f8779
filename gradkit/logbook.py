"""Which exercises of the workshop were tried and solved: one small file in a person's configuration folder.

As with other settings, where it cannot be read or written nothing is remembered and nothing fails.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gradkit import settings


@dataclass(frozen=True)
class Entry:
    """What is known of one exercise: how often it was checked until it was solved, and the day of that (ISO, or "")."""

    tries: int = 0
    solved: str = ""


def file() -> Path:
    """Where it lies, there or not: beside ``settings.json``."""
    return settings.file().with_name("workshop.json")


def entries() -> dict[str, Entry]:
    """All that was noted, by the exercises' names; what cannot be read counts as nothing."""
    try:
        noted = json.loads(file().read_text(encoding="utf-8"))
        return {name: Entry(int(one["tries"]), str(one["solved"])) for name, one in noted.items()}
    except (OSError, ValueError, RuntimeError, TypeError, KeyError, AttributeError):
        return {}


def note(name: str, *, solved: bool) -> Entry:
    """Note one more check of an exercise. What was solved once stays solved, and its tries are not counted on."""
    known = entries()
    before = known.get(name, Entry())
    if before.solved:
        return before
    known[name] = Entry(before.tries + 1, dt.date.today().isoformat() if solved else "")
    with contextlib.suppress(OSError, RuntimeError):
        settings.save(file(), {key: asdict(one) for key, one in known.items()})
    return known[name]


def forget() -> None:
    """Begin anew: nothing was tried."""
    with contextlib.suppress(OSError, RuntimeError):
        file().unlink(missing_ok=True)
