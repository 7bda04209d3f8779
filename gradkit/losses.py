"""A loss from a text: the name of one of torch's, or an expression of ``output`` and ``batch``."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from gradkit.errors import GradkitError

FILE = "loss expression"
"""Under this name the lines of an expression are found in a report."""

_WORD = re.compile(r"[^\W\d]\w*")
NAMES = tuple(
    sorted(
        name
        for name in dir(functional)
        if name.endswith(("_loss", "cross_entropy", "_with_logits", "kl_div")) and not name.startswith("_")
    )
)


def is_text(text: str) -> bool:
    """Whether a text says a loss by itself, rather than naming one in a file.

    Example:
        >>> is_text("cross_entropy"), is_text("MSELoss"), is_text("output.square().mean()"), is_text("train.py:loss")
        (True, True, True, False)
    """
    text = text.strip()
    return _of_torch(text) is not None or (not _WORD.fullmatch(text) and _expression(text) is not None)


def build(text: str) -> Callable[..., Any]:
    """The loss that a text says.

    Args:
        text: ``"cross_entropy"``, ``"CrossEntropyLoss"`` (called with output and targets), or an expression in which
            ``output``, ``batch``, ``torch``, ``nn`` and ``F`` are known.

    Raises:
        GradkitError: it is neither (``bad_loss_text``).

    Example:
        >>> build("output.square().mean()")(torch.full((2,), 3.0), None)
        tensor(9.)
    """
    text = text.strip()
    known = _of_torch(text)
    if known is not None:
        return known
    tree = _expression(text)
    if tree is None:
        raise GradkitError("bad_loss_text", text=text)
    linecache.cache[FILE] = (len(text), None, [f"{text}\n"], FILE)
    code = compile(tree, FILE, "eval")
    names = {"torch": torch, "nn": nn, "F": functional}

    def loss(output: Any, batch: Any) -> Any:
        return eval(code, {**names, "output": output, "batch": batch})  # noqa: S307  the person's own line, in their own kernel

    return loss


def _of_torch(text: str) -> Callable[..., Any] | None:
    if text in NAMES:
        found: Callable[..., Any] = getattr(functional, text)
        return found
    kind = getattr(nn, text, None) if text.endswith("Loss") else None
    return kind() if isinstance(kind, type) and issubclass(kind, nn.Module) else None


def _expression(text: str) -> ast.Expression | None:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return tree if "output" in names or "batch" in names else None
