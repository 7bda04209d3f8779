"""What the running code calls a tensor: looked up once, when the tensor turns up for the first time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

import torch

from gradkit import frames, strangers

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_FARTHEST, _LONGEST = 60, 64


def holder(tensor: torch.Tensor, frame: FrameType | None, stop: CodeType) -> str:
    """The variable, or the key in a dictionary of the batch, that holds a tensor; ``""`` if none does.

    The outermost frame between ``frame`` and the code object ``stop`` counts: what the step calls its batch says more
    than what a layer calls its input. Frames of torch and of gradkit do not count.

    Example:
        >>> import sys
        >>> def step(images):
        ...     return holder(images, sys._getframe(), step.__code__), holder(images, sys._getframe(), holder.__code__)
        >>> step(torch.ones(2))
        ('', 'images')
    """
    found = ""
    for _ in range(_FARTHEST):
        if frame is None or frame.f_code is stop:
            break
        file = frame.f_code.co_filename
        if frames.is_user_file(file) or not file.startswith((_TORCH, _OURS)):
            found = _name_in(frame, tensor) or found
        frame = frame.f_back
    return found


def _name_in(frame: FrameType, tensor: torch.Tensor) -> str:
    for name, value in _variables(frame):
        if value is tensor:
            return name
        if strangers.size(value) > _LONGEST:
            continue
        if strangers.is_a(value, dict):
            held = next((key for key, one in strangers.items(value) if one is tensor and type(key) is str), "")
            if held:
                return held
        if strangers.is_a(value, (list, tuple)):
            place = next((at for at, one in enumerate(strangers.entries(value)) if one is tensor), -1)
            if place >= 0:
                return f"{name}[{place}]"
    return ""


def _variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Those of the function, then the globals that its code mentions."""
    local: Mapping[str, Any] = frame.f_locals
    yield from list(local.items())
    if local is not frame.f_globals:
        for name in frame.f_code.co_names:
            if name in frame.f_globals:
                yield name, frame.f_globals[name]
