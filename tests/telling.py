"""What a step tells of itself: a diagnosis puts back every list that a step fills; a queue's contents it cannot see."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any


def told(queue: SimpleQueue[Any]) -> list[Any]:
    """All that was put into a queue, which is empty afterwards."""
    return [queue.get() for _ in range(queue.qsize())]
