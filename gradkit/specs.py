"""Find what a person means by ``train.py:step`` or ``package.module:step``."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from gradkit import trainings
from gradkit.errors import GradkitError
from gradkit.failures import cause_of, where
from gradkit.signatures import accepts
from gradkit.userfiles import as_script, load_file, load_module

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_SPEC = re.compile(rf"(?P<source>.+?)(?::(?P<name>{_NAME.pattern}))?", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """What a spec stands for: the object, what to call it on screen, its file, and the folder that it runs in."""

    value: object
    label: str
    file: str
    folder: str


def is_spec(text: str) -> bool:
    """Whether a text names something in Python code, rather than a data file.

    Example:
        >>> is_spec("train.py:make_batch"), is_spec("package.module:batch"), is_spec("train.py"), is_spec("batch.pt")
        (True, True, True, False)
    """
    match = _SPEC.fullmatch(text.strip())
    return match is not None and (match["name"] is not None or match["source"].endswith(".py"))


def is_function(value: object) -> bool:
    """Whether a name stands for something to call (a function, a class), rather than for the thing itself."""
    return inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, functools.partial)


def as_found(value: object) -> Found:
    """An object that a person handed over in place of a spec."""
    label = getattr(value, "__qualname__", type(value).__name__).replace("<locals>.", "")
    return Found(value, label, "", "")


def find(spec: str) -> Found:
    """The object that a spec names.

    Args:
        spec: ``file.py:name`` or ``package.module:name``; the name may have dots (``Trainer.step``).

    Raises:
        GradkitError: no such file or module, not a Python file, no name given, no such name, or the import failed.

    Example:
        >>> find("os.path:join").label
        'os.path:join'
    """
    match = _SPEC.fullmatch(spec.strip())
    source, name = (match["source"], match["name"]) if match else (spec, None)
    as_file = source.endswith(".py") or os.path.isfile(source) or "/" in source or "\\" in source
    if not as_file and not _NAME.fullmatch(source):
        raise GradkitError("no_such_file", path=source)
    module = load_file(Path(source)) if as_file else load_module(source)
    short = Path(source).name if as_file else source
    if name is None:
        raise GradkitError("spec_without_name", spec=spec, source=short, names=_listed(module, ""))
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise GradkitError("no_such_name", name=name, source=source, names=_listed(module, name))
        value = getattr(value, part)
    file = str(getattr(module, "__file__", None) or source)
    folder = str(Path(file).parent) if as_file else str(Path.cwd())
    return Found(value, f"{short}:{name}", file, folder)


def call(found: Found) -> object:
    """Call what was found, without arguments.

    Raises:
        GradkitError: it needs arguments, or it raised.
    """
    function = found.value
    assert callable(function)
    if accepts(function).required:
        raise GradkitError("needs_arguments", name=found.label, signature=_signature(function))
    with as_script(found.folder):
        try:
            return function()
        except GradkitError:
            raise
        except (Exception, SystemExit) as error:
            raise GradkitError("call_failed", name=found.label, error=cause_of(error), where=where(error)) from error


def _signature(function: object) -> str:
    try:
        return str(inspect.signature(function))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"


def _listed(module: ModuleType, name: str) -> str:
    """Names that the file itself defines, the likeliest first; those that train for a whole run are left out."""
    whole = trainings.whole_runs(getattr(module, "__file__", None) or "")
    own = [
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and key not in whole
        and not inspect.ismodule(value)
        and getattr(value, "__module__", module.__name__) == module.__name__
    ]
    close = difflib.get_close_matches(name, own, n=3)
    return ", ".join([*close, *(key for key in own if key not in close)][:8]) or "-"
