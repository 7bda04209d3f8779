"""From ``train.py:step`` or ``package.module:step`` to the object, importing the file as Python itself would.

A file is imported again as soon as it has changed. Bytecode is never written next to it, and a failed import leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import inspect
import linecache
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from gradkit.core import console, regular_files
from gradkit.core.errors import GradkitError
from gradkit.load import reading
from gradkit.load.failures import cause_of, where
from gradkit.load.signatures import accepts
from gradkit.source import imported, training_loops
from gradkit.source.frames import is_user_file, note_program
from gradkit.witness.listening import listening


@contextlib.contextmanager
def as_script(folder: str) -> Iterator[None]:
    """Let code run as ``python file.py`` would: its folder first on ``sys.path``, no foreign command line.

    All is put back afterwards; what the code itself added to ``sys.path`` stays, unless it raised.
    """
    if not folder:  # code that lives in no file
        yield
        return
    path, arguments, no_bytecode = list(sys.path), sys.argv, sys.dont_write_bytecode
    sys.path.insert(0, folder)
    sys.argv, sys.dont_write_bytecode = [""], True
    try:
        yield
    except BaseException:
        sys.path[:] = path
        raise
    else:
        if folder in sys.path:
            sys.path.remove(folder)
    finally:
        console.end_if_copy()
        sys.argv, sys.dont_write_bytecode = arguments, no_bytecode


_loaded: dict[str, dict[str, tuple[ModuleType, str, int]]] = {}  # folder → module name → module, file, content


def load_file(path: Path) -> ModuleType:
    """The module that a Python file makes.

    It goes by the file's stem, and is made once; again when the file, or one beside it that it imported, has changed.

    Raises:
        GradkitError: no such file, not a Python file, or its import raised.
    """
    reading.check(path)
    if path.suffix != ".py":
        raise GradkitError("not_a_python_file", path=path)
    path = path.resolve()
    note_program(str(path))
    source = reading.source(path)
    known = _refresh(str(path.parent))
    for module, file, _ in known.values():
        if file == str(path):
            return module
    module = ModuleType(_free_name(path))
    module.__file__ = str(path)
    with _importing(str(path.parent), path):
        sys.modules[module.__name__] = module
        imported.bring_up_to_date(str(path))
        exec(_compiled(source, path), module.__dict__)  # noqa: S102  # the user's own file, which they asked to run
    return module


def _compiled(source: bytes, path: Path) -> CodeType:
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SyntaxError) and error.filename:
            raise
        # null bytes, or nested too deep: at no line
        raise GradkitError("unreadable_file", path=reading.short(path), error=cause_of(error)) from error


def load_module(name: str, folder: Path | None = None) -> ModuleType:
    """The module of that dotted name, as seen from a folder, by default the current one.

    Raises:
        GradkitError: there is none, or its import raised.

    Example:
        >>> load_module("os.path").__name__ in ("posixpath", "ntpath")
        True
    """
    seen_from = str(Path.cwd() if folder is None else folder)
    _refresh(seen_from)
    with _importing(seen_from, Path(name)):
        try:
            module = importlib.import_module(name)
            note_program(getattr(module, "__file__", None) or name)
            return module
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                near = reading.near(f"{name.replace('.', '/')}.py", Path(seen_from))
                raise GradkitError("no_such_module", near=near, module=name, folder=seen_from) from error
            raise


@contextlib.contextmanager
def _importing(folder: str, source: Path) -> Iterator[None]:
    """Remember the user's modules that an import brings in; forget them all if it fails."""
    before = dict(sys.modules)
    try:
        with as_script(folder), listening():
            yield
    except BaseException as error:
        for name in _local(folder, before):
            if name in before:
                sys.modules[name] = before[name]
            else:
                del sys.modules[name]
        if isinstance(error, GradkitError) or not isinstance(error, (Exception, SystemExit)):
            raise
        raise GradkitError("import_failed", source=source.name, error=cause_of(error), where=where(error)) from error
    fresh = {name: (sys.modules[name], file, _content(file)) for name, file in _local(folder, before).items()}
    for _, file, _ in fresh.values():
        imported.bring_up_to_date(file)
    _loaded.setdefault(folder, {}).update(fresh)


def _local(folder: str, before: Mapping[str, ModuleType]) -> dict[str, str]:
    """Modules imported since ``before`` whose file lies in the folder, or in the current one, and is the user's own."""
    found, roots = {}, (Path(folder).resolve(), Path.cwd())
    for name, module in list(sys.modules.items()):
        file = None if before.get(name) is module else getattr(module, "__file__", None)
        if file and any(map(Path(file).resolve().is_relative_to, roots)) and is_user_file(file):
            found[name] = str(Path(file).resolve())
    return found


def _refresh(folder: str) -> dict[str, tuple[ModuleType, str, int]]:
    """The folder's modules as loaded before: all of them, or none as soon as one of their files has changed.

    Modules of other folders make room for files of the same name in this one.
    """
    known = _loaded.setdefault(folder, {})
    if any(_content(file) != content for _, file, content in known.values()):
        for name, (module, file, _) in known.items():
            linecache.checkcache(file)
            if sys.modules.get(name) is module:
                del sys.modules[name]
        known.clear()
    importlib.invalidate_caches()
    for other, modules in _loaded.items():
        for name, (module, _, _) in modules.items():
            top = Path(folder) / name.split(".")[0]
            rival = top.is_dir() or top.with_suffix(".py").is_file()
            if other != folder and rival and sys.modules.get(name) is module:
                del sys.modules[name]
    sys.modules.update({name: module for name, (module, _, _) in known.items()})
    return known


def _content(file: str) -> int:
    try:
        return hash(regular_files.read_regular(file))
    except OSError:
        return 0


def _free_name(path: Path) -> str:
    """The file's stem, unless a module from elsewhere goes by that name."""
    taken = sys.modules.get(path.stem)
    same = taken is not None and Path(getattr(taken, "__file__", None) or "").resolve() == path
    if path.stem in sys.stdlib_module_names or (taken is not None and not same):
        return f"_gradkit_{path.stem}"
    return path.stem


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


def find_spec(spec: str) -> Found:
    """The object that a spec names.

    Args:
        spec: ``file.py:name`` or ``package.module:name``; the name may have dots (``Trainer.step``).

    Raises:
        GradkitError: no such file or module, not a Python file, no name given, no such name, or the import failed.

    Example:
        >>> find_spec("os.path:join").label
        'os.path:join'
    """
    match = _SPEC.fullmatch(spec.strip())
    source, name = (match["source"], match["name"]) if match else (spec, None)
    as_file = source.endswith(".py") or os.path.isfile(source) or "/" in source or "\\" in source
    if not as_file and not _NAME.fullmatch(source):
        raise GradkitError("no_such_file", near=reading.near(source), path=source)
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


def call_spec(found: Found) -> object:
    """Call what was found, without arguments.

    Raises:
        GradkitError: it needs arguments, or it raised.
    """
    function = found.value
    assert callable(function)
    if accepts(function).required:
        raise GradkitError("needs_arguments", name=found.label, signature=_signature(function))
    with as_script(found.folder), listening():
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
    whole = training_loops.whole_runs(getattr(module, "__file__", None) or "")
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
