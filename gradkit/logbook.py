"""Which exercises of the workshop were tried and solved: one small file in a person's configuration folder.

As with other settings, where it cannot be read or written nothing is remembered and nothing fails.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import asdict, dataclass
from pathlib import Path

from gradkit import regular, settings

_MOST_TRIES = 10**6


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
        noted = regular.read_json(file())
    except (OSError, ValueError, RuntimeError):
        return {}
    found = {name: _entry(one) for name, one in noted.items()} if isinstance(noted, dict) else {}
    return {name: entry for name, entry in found.items() if entry is not None}


def _entry(noted: object) -> Entry | None:
    try:
        tries, solved = noted["tries"], noted["solved"]  # type: ignore[index]
        if solved != "":
            dt.date.fromisoformat(solved)
    except (TypeError, KeyError, ValueError):
        return None
    return Entry(tries, solved) if isinstance(tries, int) and 0 <= tries <= _MOST_TRIES else None


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
