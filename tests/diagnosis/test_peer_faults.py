"""The six faults that no other tool names, in the partial and the total form."""

from __future__ import annotations

import pytest

from tools import peer_table

PROGRAMS = sorted(path.stem for path in peer_table.FAULTS.glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_cause_and_the_line_of_a_fault_are_named(program: str) -> None:
    assert peer_table.is_right(program)
