"""Sound programs that look suspicious: each builder returns (model, step), and nothing may be found in it.

A file has the name of the cause that its programs look like; what looks like none in particular is ``ordinary``.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.programs import entered
from tests.programs.shared import Built

PROGRAMS: dict[str, Callable[[], Built]] = entered(__name__, "sound")
