"""One sample batch, from wherever a person keeps it: an object, a function, or a data file, whose code is never run."""

from __future__ import annotations

import json
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.core.introspection import mapping_items
from gradkit.load import memory, reading, specs, synthetic
from gradkit.load.failures import cause_of

PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".p")


def read_data_file(path: Path) -> Any:
    """What a data file holds.

    Args:
        path: ``.pt``, ``.pth``, ``.bin``, ``.safetensors``, ``.npz``, ``.npy`` or ``.json``.

    Returns:
        Tensors on the CPU in the file's own structure; ``batches.load_batch`` tells the rules.

    Raises:
        GradkitError: no such file, a kind of file that is not read, a pickle that would run code, broken content.
    """
    suffix = path.suffix.lower()
    if suffix not in READERS and suffix not in PICKLES:
        raise GradkitError("data_format", path=reading.short(path), formats=", ".join(READERS))
    reading.check(path)
    if suffix in PICKLES:
        raise GradkitError("pickle_refused", path=path, what=suffix)
    with reading.told(path):
        if suffix != ".safetensors":  # those are not copied into memory
            memory.check_fits(path)
        return READERS[suffix](path)


def _read_torch(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise GradkitError("pickle_refused", path=path, what=wanted[1] if wanted else "pickle") from error
    except Exception as error:
        if "weights_only" in str(error):
            raise GradkitError("pickle_refused", path=path, what="TorchScript") from error
        raise


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def _read_numpy(path: Path) -> Any:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = {"": loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except ValueError as error:
        if "allow_pickle" in str(error) or "pickled" in str(error):
            raise GradkitError("pickle_refused", path=path, what="object") from error
        raise
    tensors = {key: _from_numpy(array, key or path.stem, path) for key, array in arrays.items()}
    if list(tensors) == [""]:
        return tensors[""]
    unnamed = [f"arr_{number}" for number in range(len(tensors))]
    return tuple(tensors[key] for key in unnamed) if sorted(tensors) == sorted(unnamed) else tensors


def _from_numpy(array: Any, name: str, path: Path) -> torch.Tensor:
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise GradkitError("array_dtype", path=path, name=name, dtype=array.dtype) from error


def _read_json(path: Path) -> Any:
    return _from_json(reading.as_json(path), "$", path)


def _from_json(value: object, at: str, path: Path) -> Any:
    if isinstance(value, dict):
        if "data" in value and set(value) <= {"data", "dtype"}:
            return _typed(value, at, path)
        return {key: _from_json(one, f"{at}.{key}", path) for key, one in value.items()}
    if isinstance(value, list):
        if any(isinstance(one, dict) for one in value):
            return [_from_json(one, f"{at}[{number}]", path) for number, one in enumerate(value)]
        return _numbers(value, at, path)
    return value


def _typed(value: Mapping[str, object], at: str, path: Path) -> torch.Tensor:
    name = value.get("dtype")
    tensor = _numbers(value["data"], f"{at}.data", path)
    dtype = getattr(torch, str(name), None)
    if name is not None and not isinstance(dtype, torch.dtype):
        raise GradkitError("json_dtype", path=path, at=at, dtype=name)
    try:
        return tensor if name is None else tensor.to(dtype)
    except RuntimeError as error:  # one that only quantized kernels know
        raise GradkitError("json_dtype", path=path, at=at, dtype=name) from error


def _numbers(value: object, at: str, path: Path) -> torch.Tensor:
    _rectangle(value, at, path)
    kinds = {type(one) for one in _leaves(value)}
    dtype = torch.bool if kinds == {bool} else torch.int64 if kinds and kinds <= {bool, int} else torch.float32
    try:
        return torch.tensor(value, dtype=dtype)
    except (OverflowError, RuntimeError, ValueError) as error:  # a number beyond 64 bits
        raise GradkitError("json_number", path=path, at=at, value=cause_of(error)) from error


def _rectangle(value: object, at: str, path: Path) -> tuple[int, ...]:
    """The shape of nested lists of numbers; raises where one list differs from the first beside it."""
    if not isinstance(value, list):
        if isinstance(value, (bool, int, float)):
            return ()
        raise GradkitError("json_number", path=path, at=at, value=reading.short(json.dumps(value, ensure_ascii=False)))
    inner = [_rectangle(one, f"{at}[{number}]", path) for number, one in enumerate(value)]
    for number, shape in enumerate(inner):
        if shape != inner[0]:
            raise GradkitError(
                "json_ragged",
                path=path,
                at=f"{at}[{number}]",
                shape=list(shape),
                first=f"{at}[0]",
                expected=list(inner[0]),
            )
    return (len(inner), *(inner[0] if inner else ()))


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


READERS: dict[str, Callable[[Path], Any]] = {
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".bin": _read_torch,
    ".safetensors": _read_safetensors,
    ".npz": _read_numpy,
    ".npy": _read_numpy,
    ".json": _read_json,
}


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
            line such as ``x=float32[4, 3]; y=int64[4]<5`` (random numbers, see :mod:`gradkit.load.synthetic`); a spec
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
        found = specs.find_spec(text)
    else:
        found = specs.as_found(source)
    batch = specs.call_spec(found) if specs.is_function(found.value) else found.value
    return next(iter(batch)) if isinstance(batch, DataLoader) else batch


def describe(batch: object) -> tuple[Row, ...]:
    """The entries of a batch, nested ones too, for a table.

    Example:
        >>> describe({"x": torch.zeros(2, 3), "y": [torch.tensor(1)]})
        (Row(name='x', shape=(2, 3), dtype='float32', device='cpu'),
         Row(name='y[0]', shape=(), dtype='int64', device='cpu'))
    """
    return tuple(_rows(batch, "", 4))


def moved(value: Any, device: torch.device) -> Any:
    """The same structure of dicts, lists and tuples, with every tensor on the device."""
    if introspection.is_a(value, torch.Tensor):
        return value.to(device)
    if type(value) is dict:
        return {key: moved(one, device) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved(one, device) for one in value)
    return value


def _moved_there(path: Path, device: torch.device) -> Any:
    held = read_data_file(path)
    try:
        return moved(held, device)
    except RecursionError as error:  # a pickle may hold a list that holds itself
        raise GradkitError("unreadable_file", path=reading.short(path), error=cause_of(error)) from error


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _rows(value: object, name: str, depth: int) -> Iterator[Row]:
    if introspection.is_a(value, torch.Tensor):
        yield Row(name, tuple(value.shape), _dtype(value), str(value.device))
    elif introspection.is_mapping(value) and depth:
        for key, one in mapping_items(value):
            yield from _rows(one, f"{name}.{key}" if name else str(key), depth - 1)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and depth and len(value) <= 64:
        for number, one in enumerate(value):
            yield from _rows(one, f"{name}[{number}]", depth - 1)
    else:
        yield Row(name, (), type(value).__name__, "")
