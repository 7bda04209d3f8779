"""One sample batch, from wherever a person keeps it: an object, a function, or a data file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from gradkit import datafiles, reading, specs, strangers, synthetic
from gradkit.errors import GradkitError
from gradkit.failures import cause_of


@dataclass(frozen=True)
class Row:
    """One entry of a batch.

    Attributes:
        name: where it stands: ``"input_ids"``, ``"[0]"``, ``"[1].mask"``; ``""`` if the batch is one tensor.
        shape: shape of the tensor; ``()`` for a scalar and for what is no tensor.
        dtype: ``"float32"``, or the type's name for what is no tensor.
        device: ``"cpu"``, ``"cuda:0"`` ...; ``""`` for what is no tensor.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str


def load_batch(source: object, *, device: torch.device | str = "cpu") -> Any:
    """The batch that a person means.

    Args:
        source: a data file ``.pt`` / ``.pth`` / ``.safetensors`` / ``.npz`` / ``.npy`` / ``.json``; a spec
            line such as ``x=float32[4, 3]; y=int64[4]<5`` (random numbers, see :mod:`gradkit.synthetic`); a spec
            ``file.py:make_batch`` or ``package.module:batch`` (called if it is a function); a function of no arguments;
            a DataLoader, which gives its first batch; or the batch itself.
        device: where the tensors of a data file go. What code hands over stays where it is.

    Returns:
        What the source holds. ``.safetensors`` and ``.npz`` give a dict of tensors (``.npz`` written without names a
        tuple), ``.json`` the same structure with every list of numbers as a tensor: whole numbers int64, others
        float32, true/false bool; ``{"data": [...], "dtype": "float16"}`` chooses another dtype.

    Raises:
        GradkitError: no such file, a kind of file that is not read, a pickle that would run code, ragged lists ...

    Example:
        >>> load_batch(lambda: torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """
    if isinstance(source, (str, os.PathLike)):
        text = os.fsdecode(source)
        if synthetic.is_line(text):
            return synthetic.make(synthetic.parse(text), device)
        if not specs.is_spec(text):
            return _moved_there(Path(text), torch.device(device))
        found = specs.find(text)
    else:
        found = specs.as_found(source)
    batch = specs.call(found) if specs.is_function(found.value) else found.value
    return next(iter(batch)) if isinstance(batch, DataLoader) else batch


def describe(batch: object) -> tuple[Row, ...]:
    """The entries of a batch, nested ones too, for a table.

    Example:
        >>> describe({"x": torch.zeros(2, 3), "y": [torch.tensor(1)]})
        (Row(name='x', shape=(2, 3), dtype='float32', device='cpu'),
         Row(name='y[0]', shape=(), dtype='int64', device='cpu'))
    """
    return tuple(_rows(batch, "", 4))


def shown(value: object, depth: int = 4) -> str:
    """A value in one short line, for errors.

    Example:
        >>> shown({"x": torch.zeros(2, 3)}), shown((torch.tensor(1.5), None))
        ('{x: float32 [2, 3]}', '(float32 [], None)')
    """
    if strangers.is_a(value, torch.Tensor):
        return f"{_dtype(value)} {list(value.shape)}"
    if strangers.is_mapping(value) and depth:
        inside = ", ".join(f"{strangers.text(key)[:60]}: {shown(one, depth - 1)}" for key, one in items(value)[:12])
        return f"{'' if type(value) is dict else type(value).__name__}{{{inside}}}"
    held = strangers.entries(value) if depth and strangers.is_a(value, (list, tuple)) else []
    if any(strangers.is_a(one, (torch.Tensor, Mapping)) for one in held):
        inside = ", ".join(shown(one, depth - 1) for one in held[:12])
        return f"[{inside}]" if strangers.is_a(value, list) else f"({inside})"
    if strangers.is_a(value, (bool, int, float, str)):
        return f"{type(value).__name__} {strangers.text(value)[:60]}"
    return "None" if value is None else type(value).__name__


def items(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values of any mapping; ``[]`` of one that does not tell."""
    if strangers.is_a(value, dict):
        return strangers.items(value)
    try:
        return list(value.items())
    except Exception:  # noqa: BLE001  a mapping of the user's own may raise anything
        return []


def moved(value: Any, device: torch.device) -> Any:
    """The same structure of dicts, lists and tuples, with every tensor on the device."""
    if strangers.is_a(value, torch.Tensor):
        return value.to(device)
    if type(value) is dict:
        return {key: moved(one, device) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved(one, device) for one in value)
    return value


def _moved_there(path: Path, device: torch.device) -> Any:
    held = datafiles.read(path)
    try:
        return moved(held, device)
    except RecursionError as error:  # a pickle may hold a list that holds itself
        raise GradkitError("unreadable_file", path=reading.short(path), error=cause_of(error)) from error


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _rows(value: object, name: str, depth: int) -> Iterator[Row]:
    if strangers.is_a(value, torch.Tensor):
        yield Row(name, tuple(value.shape), _dtype(value), str(value.device))
    elif strangers.is_mapping(value) and depth:
        for key, one in items(value):
            yield from _rows(one, f"{name}.{key}" if name else str(key), depth - 1)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and depth and len(value) <= 64:
        for number, one in enumerate(value):
            yield from _rows(one, f"{name}[{number}]", depth - 1)
    else:
        yield Row(name, (), type(value).__name__, "")
