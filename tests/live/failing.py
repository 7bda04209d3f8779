"""Programs as people write them, run from a file of their own until they raise."""

from __future__ import annotations

import random
import re
import runpy
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gradkit.live import explain
from gradkit.live.explain import Explanation

MARK = re.compile(r"\s*# CUT$")


@dataclass
class Failed:
    """A program that has raised.

    Attributes:
        error: what came out.
        file: where it lies.
        marked: the lines that end in ``# CUT``, which a right explanation names.
    """

    error: BaseException
    file: Path
    marked: frozenset[int]

    def explained(self, **options: Any) -> Explanation:
        """What gradkit says of it."""
        found = explain.of_error(self.error, **options)
        assert found is not None
        return found

    @property
    def globals(self) -> dict[str, Any]:
        """The program's own global variables."""
        trace = self.error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != str(self.file):
            trace = trace.tb_next
        assert trace is not None
        return trace.tb_frame.f_globals


@dataclass
class Ended:
    """A program that has come to its end.

    Attributes:
        marked: the lines that end in ``# CUT``.
        globals: its global variables.
    """

    marked: frozenset[int]
    globals: dict[str, Any]

    def weights(self) -> list[torch.Tensor]:
        """What its modules hold, by the names of the variables."""
        modules = (one for _, one in sorted(self.globals.items()) if isinstance(one, nn.Module))
        return [tensor for one in modules for tensor in one.state_dict().values()]


def run(text: str, folder: Path, name: str = "train.py") -> Failed:
    """Run a program that raises."""
    file, marked = _written(text, folder / name)
    try:
        runpy.run_path(str(file), run_name="__main__")
    except Exception as error:
        return Failed(error, file, marked)
    raise AssertionError("the program has not raised")


def program(text: str, folder: Path, name: str = "train.py") -> Ended:
    """Run a program to its end."""
    file, marked = _written(text, folder / name)
    return Ended(marked, runpy.run_path(str(file), run_name="__main__"))


def _written(text: str, file: Path) -> tuple[Path, frozenset[int]]:
    lines = textwrap.dedent(text).strip().splitlines()
    file.write_text("\n".join(MARK.sub("", line) for line in lines) + "\n", encoding="utf-8")
    return file, frozenset(at for at, line in enumerate(lines, 1) if MARK.search(line))


def named(found: Explanation) -> tuple[str, int]:
    """The file's name and the line that an explanation puts first."""
    assert found.report is not None, found.text()
    location = found.report.findings[0].location
    assert location is not None
    return Path(location.file).name, location.line


def fingerprint(space: dict[str, Any]) -> dict[str, bytes]:
    """What may not be changed by an explanation: every tensor, every optimizer's state, and all random states."""
    found: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),
    }
    for name, value in space.items():
        if isinstance(value, nn.Module):
            found |= {f"{name}.{key}": tensor for key, tensor in value.state_dict().items()}
            found |= {f"{name}.{key}.grad": p.grad for key, p in value.named_parameters()}
            found |= {f"{name}.{key}.flag": p.requires_grad for key, p in value.named_parameters()}
            found |= {f"{name}.{key}.mode": module.training for key, module in value.named_modules()}
        elif isinstance(value, torch.optim.Optimizer):
            found[name] = value.state_dict()
        elif isinstance(value, torch.Tensor):
            found |= {name: value, f"{name}.grad": value.grad if value.is_leaf else None}
        elif isinstance(value, (int, float, str, list)):
            found[name] = value
    return {name: _bytes(value) for name, value in found.items()}


def _bytes(value: Any) -> bytes:
    return repr(list(_flat(value))).encode()


def _flat(value: Any) -> Iterator[object]:
    if isinstance(value, torch.Tensor):
        yield str(value.dtype), tuple(value.shape), value.detach().cpu().contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _flat(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _flat(one)
    elif isinstance(value, np.ndarray):
        yield value.tobytes()
    else:
        yield repr(value)
