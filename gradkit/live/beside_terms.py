"""Whether a dictionary beside a loss holds another number with a history, which the loss does not take in.

Asked before the graph is freed, in the few steps that are looked at: no number is read. It is no more than a reason to
run the step again, and to ask the source whether anybody could have use for that entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from gradkit.core import introspection
from gradkit.diagnosis.facts import loss_terms
from gradkit.live.surroundings import locals_of
from gradkit.source import frames

_MOST_ENTRIES, _MOST_FRAMES = 32, 8


def are_any(loss: torch.Tensor, frame: FrameType | None) -> bool:
    """Whether a dictionary of the frames from here outwards holds what is added to a loss, and what is not.

    Args:
        loss: one number with a history.
        frame: what goes backward of it.

    Example:
        >>> import sys
        >>> weight = torch.ones(2, requires_grad=True)
        >>> parts = {"fit": weight.sum(), "size": weight.square().sum()}
        >>> are_any(parts["fit"], sys._getframe()), are_any(parts["fit"] + parts["size"], sys._getframe())
        (True, False)
    """
    added: set[Any] | None = None
    for held in _dictionaries(frame):
        nodes = [node for value in held if (node := _node_of(value)) is not None]
        if len(nodes) > 1:
            added = set(loss_terms.nodes_of_sums(loss.grad_fn)) if added is None else added
            inside = sum(node in added for node in nodes)
            if 0 < inside < len(nodes):
                return True
    return False


def _dictionaries(frame: FrameType | None) -> Iterator[list[Any]]:
    """What the dictionaries hold that the variables of the user's frames name."""
    seen = 0
    while frame is not None and seen < _MOST_FRAMES:
        if frames.is_user_file(frame.f_code.co_filename):
            seen += 1
            for value in locals_of(frame).values():
                if type(value) is dict and 1 < len(value) <= _MOST_ENTRIES:
                    yield introspection.entries(value)
        frame = frame.f_back


def _node_of(value: Any) -> Any:
    """The node of one number with a history; None of anything else."""
    plain = type(value) is torch.Tensor and value.numel() == 1
    return value.grad_fn if plain else None
