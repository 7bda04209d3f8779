"""What a person reads when their own code raises: its last line, its own words, and what the model takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch
from torch import nn

from gradkit.core import introspection, printable
from gradkit.core.errors import GradkitError
from gradkit.load.signatures import expectation
from gradkit.source import frames
from gradkit.source.frames import is_user_file
from gradkit.source.locations import line_of, locate
from gradkit.state import registered

_TORCH = (RuntimeError, ValueError, IndexError, AssertionError, NotImplementedError)
_RULES: tuple[tuple[str, tuple[type[Exception], ...], str], ...] = (
    ("missing_key", (KeyError,), r""),
    ("wrong_arguments", (TypeError,), r"missing \d+ required|unexpected keyword|positional argument|multiple values"),
    ("wrong_arguments", (ValueError,), r"[Yy]ou (must|have to|cannot) specify"),
    ("wrong_kind", (TypeError,), r"must be Tensor, not"),
    ("wrong_kind", (AttributeError,), r"'(list|tuple|dict|BatchEncoding)' object has no attribute"),
    ("step_runs_backward", (RuntimeError,), r"element \d+ of tensors does not require grad"),
    ("step_runs_backward", (RuntimeError,), r"backward through the graph a second|created only for scalar outputs"),
    ("index_out_of_range", (IndexError,), r"index out of range in self"),
    ("target_out_of_range", _TORCH, r"Target \S+ is out of bounds"),
    ("wrong_device", _TORCH, r"on the (same|expected) device|Expected .* device|out of meta tensor"),
    ("wrong_device", _TORCH, r"type \((torch\.)?(cuda|mps)"),
    ("wrong_dtype", _TORCH, r"same dtype|scalar type|have dtype|should be the same|not implemented for '"),
    ("wrong_dtype", _TORCH, r"can't be cast|Expected floating point type"),
    ("wrong_shape", _TORCH, r"shape|size|Expected (more than )?\d+D|dimension|channels|[Tt]oo many indices|must match"),
    ("step_raised", (Exception,), r""),
)  # fmt: skip


def explain(error: Exception, model: nn.Module, batch: str = "") -> GradkitError:
    """The clear error for an exception that a forward pass raised.

    Args:
        error: what was raised; a ``GradkitError`` comes back as it is.
        model: the model that ran.
        batch: what was handed to it, as ``introspection.one_line`` writes it; ``""`` if not known.

    Example:
        >>> net = nn.Linear(3, 2)
        >>> try: _ = net(torch.ones(4, 5))
        ... except RuntimeError as error: print(explain(error, net).key)
        wrong_shape
    """
    if isinstance(error, GradkitError):
        return error
    words = introspection.text(error)
    key = next(key for key, kind, pattern in _RULES if isinstance(error, kind) and re.search(pattern, words))
    lines = [f"--> {where(error)}", *_layer(error, model)]
    if batch:
        lines.append(f"    batch = {batch}")
    return GradkitError(key, error=cause_of(error), place="\n  ".join(lines), expects=expectation(model))


def cause_of(error: BaseException) -> str:
    """An exception's own words, shortened: ``"KeyError: 'labels'"``.

    Example:
        >>> cause_of(KeyError("labels"))
        "KeyError: 'labels'"
    """
    words = str(error.msg) if isinstance(error, SyntaxError) else introspection.text(error)
    first = next((line.strip() for line in words.splitlines() if line.strip()), "")
    kind = printable.name(type(error).__name__)
    text = printable.escaped(f"{kind}: {first}" if first else kind)
    return text if len(text) <= 300 else f"{text[:299]}…"


def where(error: BaseException) -> str:
    """The last line of the user's own code that an exception passed: ``"train.py:12: x = self.fc(x)"``."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}: {_told(error.text or '')}"
    passed = list(frames_of(error))
    own = [one for one in passed if is_user_file(one[0].f_code.co_filename)] or passed
    if not own:
        return "-"
    frame, instruction = own[-1]
    point = (frame.f_code, instruction)
    file, text = frame.f_code.co_filename, locate(point).text
    return f"{_short(file)}:{line_of(point)}: {_told(text)}".rstrip(": ")


def frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames that an exception passed, and their instructions; the innermost last.

    Example:
        >>> list(frames_of(KeyError("never raised")))
        []
    """
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


def _layer(error: BaseException, model: nn.Module) -> list[str]:
    """The innermost layer that was running, and the range of the integers that an embedding was given."""
    names = {id(module): name for name, module in registered.modules(model)}
    for frame, _ in reversed(list(frames_of(error))):
        layer = frame.f_locals.get("self")
        if not introspection.is_a(layer, nn.Module) or (layer is model and registered.children(layer)):
            continue
        shape = introspection.text(layer) if not registered.children(layer) else type(layer).__name__
        name = names.get(id(layer), "")
        lines = [f"    {name} = {shape}" if name else f"    {shape}"]
        given = frame.f_locals.get("input")
        if isinstance(layer, nn.Embedding) and introspection.is_a(given, torch.Tensor) and given.numel():
            lines.append(f"    input = {given.min().item()} … {given.max().item()}")
        return lines
    return []


def _short(file: str) -> str:
    if frames.is_cell(file):
        return frames.cell_name(file)
    path = Path(file)
    return printable.name(
        str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path), printable.FACT
    )


def _told(source: str) -> str:
    return printable.line(source.strip())[0]
