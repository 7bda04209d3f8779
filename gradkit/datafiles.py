"""Tensors out of data files, without ever running code that a file carries."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from gradkit import reading
from gradkit.errors import GradkitError
from gradkit.failures import cause_of

PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".p")


def read(path: Path) -> Any:
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
            reading.fits(path)
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
