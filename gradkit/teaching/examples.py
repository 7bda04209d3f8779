"""The built-in examples: whole programs under the names that ``gradkit diagnose`` and the panel know them by.

The panel works on copies of them, in a folder of the person's: what gradkit itself brings is never written to.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gradkit.core import package, writing
from gradkit.core.errors import GradkitError
from gradkit.load import adapters, specs
from gradkit.load.pretrained import offline
from gradkit.load.step import Step, from_step
from gradkit.witness.listening import listening

FOLDER = "gradkit-examples"
"""The folder, below the person's, that holds the copies."""

_CASES = package.FOLDER / "cases"
_PACKAGE = "gradkit.cases."


@dataclass(frozen=True)
class _Example:
    """A program: the module, the function in it that makes ``(model, step)``, and the files that it is made of."""

    module: str
    function: str
    files: tuple[str, ...] = ("*.py",)

    @property
    def top(self) -> str:
        """The package that it lies in; ``""`` for a single module."""
        return self.module.rpartition(".")[0]


_LORA = ("resume_lora.py", "tidepool.txt")
_EXAMPLES = {
    "resume_lora": _Example("resume_lora", "make", _LORA),
    "resume_lora_fixed": _Example("resume_lora", "make_fixed", _LORA),
    "vision_memory_never_called": _Example("vision_memory.programs", "make_never_called"),
    "vision_memory_detached": _Example("vision_memory.programs", "make_detached"),
    "vision_memory_fixed": _Example("vision_memory.programs", "make_fixed"),
    "multitask_epoch_6": _Example("multitask.programs", "make_epoch_6"),
    "multitask_keypoints_only": _Example("multitask.programs", "make_multitask"),
    "multitask_times_zero": _Example("multitask.programs", "make_times_zero"),
    "multitask_fixed": _Example("multitask.programs", "make_fixed"),
}
BUILTINS: tuple[str, ...] = tuple(_EXAMPLES)


def from_builtin(name: str) -> Step:
    """One of the examples that ship with gradkit, by its name in ``BUILTINS``.

    Raises:
        GradkitError: no such example.
    """
    example = _known(name)
    return _made(getattr(importlib.import_module(_PACKAGE + example.module), example.function), name)


def copied(name: str, folder: Path) -> Path:
    """Where a copy of an example lies, below ``gradkit-examples`` in a folder; made there first if need be.

    Files that are there already are left alone: they may hold a person's changes.

    Raises:
        GradkitError: no such example, or the folder cannot be written to (``example_not_copied``).
    """
    example, target = _known(name), folder.resolve() / FOLDER / name
    source, into = _CASES / example.top, target / example.top
    try:
        into.mkdir(parents=True, exist_ok=True)
        for pattern in example.files:
            for file in sorted(source.glob(pattern)):
                if not (into / file.name).exists():
                    writing.write(into / file.name, file.read_bytes().replace(_PACKAGE.encode(), b""))
    except OSError as error:
        raise GradkitError("example_not_copied", path=target, reason=error.strerror or str(error)) from error
    return target


def from_copy(name: str, folder: Path) -> Step:
    """An example as it stands in its copy; loaded anew when one of the copy's files has changed.

    Args:
        name: its name in ``BUILTINS``.
        folder: the person's; ``gradkit-examples`` lies in it.

    Raises:
        GradkitError: as for :func:`copied`; or the copy cannot be imported as it stands.
    """
    example, copy = _known(name), copied(name, folder)
    with _apart(example.module.partition(".")[0], copy.parent):
        module = specs.load_module(example.module, copy)
    function = getattr(module, example.function, None)
    if function is None:
        raise GradkitError("no_such_name", name=example.function, source=example.module, names="-")
    step = _made(function, name)
    files = (str(file) for file in sorted(copy.rglob("*.py")))
    return replace(step, files=tuple(dict.fromkeys([*step.files, *files])))


@contextlib.contextmanager
def _apart(top: str, ours: Path) -> Iterator[None]:
    """Put aside what a person has imported under an example's name from elsewhere, while the example is imported."""
    theirs = {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == top and ours not in Path(getattr(module, "__file__", None) or "").parents
    }
    for name in theirs:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(theirs)


def _known(name: str) -> _Example:
    if name not in _EXAMPLES:
        raise GradkitError("no_such_builtin", name=name, names=", ".join(BUILTINS))
    return _EXAMPLES[name]


def _made(function: Callable[[], Any], name: str) -> Step:
    with adapters.quiet(), offline(), torch.random.fork_rng(devices=[]), listening():
        model, step = function()
    return from_step(step, model, label=name)
