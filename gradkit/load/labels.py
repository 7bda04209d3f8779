"""Labels for a batch that was made up: what a loss may want beside the inputs, by the output that they gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from gradkit.core import introspection
from gradkit.load.signatures import accepts
from gradkit.load.synthetic import Entry

_OF_NUMBERS = re.compile(r"mse|l1|smooth|huber|bce|binary|poisson|gaussian|regress|cosine", re.IGNORECASE)
_TARGETS = re.compile(r"labels?$|targets?$|^y$|^y_true$|^ground_truth$|^gt$", re.IGNORECASE)
_NAMES = ("labels", "target", "targets", "y", "label")

Entries = tuple[Entry, ...]


def candidates(entries: Entries, output: object, loss: Callable[..., Any], model: nn.Module) -> Iterator[Entries]:
    """Batches to be tried with a loss: as it is first, unless the loss asks for targets by name.

    Args:
        entries: inputs that the model takes.
        output: what it made of them.
        loss: the loss.
        model: the model; its forward's names are those of inputs without one.

    Example:
        >>> net = nn.Linear(3, 5)
        >>> found = candidates((Entry("", "float32", (4, 3)),), net(torch.ones(4, 3)), nn.CrossEntropyLoss(), net)
        >>> "; ".join(map(str, next(found)))
        'float32[4, 3]; int64[4]<5'
    """
    wanted = accepts(loss).positional
    asks = len(wanted) > 1 and bool(_TARGETS.search(wanted[1]))
    if not asks:
        yield entries
    names = accepts(model).required or accepts(model).positional
    called = tuple(replace(one, name=one.name or name) for one, name in zip(entries, names, strict=False))
    for target in _targets(_tensor(output), loss):
        if not entries[0].name:
            yield (*entries, target)
        if not asks or entries[0].name:
            named = called if len(called) == len(entries) else ()
            yield from ((*named, replace(target, name=name)) for name in _NAMES if named)


def _targets(output: torch.Tensor | None, loss: Callable[..., Any]) -> list[Entry]:
    """What the labels may be: numbers like the output, or the index of a class, whichever the loss is called after."""
    if output is None or not output.dim():
        return []
    shape = tuple(output.shape)
    dtype = str(output.dtype).removeprefix("torch.")
    numbers = [Entry("", dtype, shape), Entry("", dtype, shape[:1]), Entry("", dtype, shape[:-1])]
    classes = []
    if len(shape) > 1:
        classes = [
            Entry("", "int64", (shape[0], *shape[2:]), shape[1]),
            Entry("", "int64", shape[:-1], shape[-1]),
            Entry("", "int64", shape[:1], shape[-1]),
        ]
    said = f"{introspection.ask(loss, '__name__', '')} {type(loss).__name__}"
    ordered = [*numbers, *classes] if _OF_NUMBERS.search(said) else [*classes, *numbers]
    return list(dict.fromkeys(ordered))


def _tensor(output: object) -> torch.Tensor | None:
    """The tensor in an output that a loss most likely compares: its logits, or its first."""
    if isinstance(output, torch.Tensor):
        return output
    held = output if isinstance(output, Mapping) else getattr(output, "__dict__", {})
    for name in ("logits", "prediction", "output", "out"):
        if isinstance(held.get(name), torch.Tensor):
            return held[name]  # type: ignore[no-any-return]
    parts = list(held.values()) if held else list(output) if isinstance(output, (tuple, list)) else []
    return next((one for one in parts if isinstance(one, torch.Tensor) and one.dim()), None)
