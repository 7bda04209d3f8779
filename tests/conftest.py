"""What every test is spared: a process group that another one left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import distributed


@pytest.fixture(autouse=True)
def _no_process_group_stays() -> Iterator[None]:
    yield
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
