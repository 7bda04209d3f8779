"""Programs that lose the gradient: each line that a right diagnosis names ends in the mark, and no other does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.programs import entered
from tests.programs.shared import Program

PROGRAMS: dict[str, Program] = entered(__name__, "faulty")


def names() -> list[Any]:
    """The names as parameters of a test, those that fall short marked so."""
    short = {name: [pytest.mark.xfail(strict=True, reason=p.short)] for name, p in PROGRAMS.items() if p.short}
    return [pytest.param(name, id=name, marks=short.get(name, [])) for name in PROGRAMS]
