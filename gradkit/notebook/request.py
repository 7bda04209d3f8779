"""What a person asked the panel to diagnose, how that becomes a step, and what their notebook and files offer."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.loss import _Loss
from torch.utils.data import DataLoader

from gradkit.core import regular_files
from gradkit.core.causes import cause
from gradkit.core.errors import GradkitError
from gradkit.live import aside
from gradkit.load import batches, build, signatures, synthetic
from gradkit.load.batches import Row, describe
from gradkit.load.call import ModelCall
from gradkit.load.signatures import accepts
from gradkit.load.step import Step, from_objects, from_spec, from_step
from gradkit.report.report import Report
from gradkit.source import frames, training_loops
from gradkit.teaching import examples

_LOSS = re.compile(r"loss|criterion|objective", re.IGNORECASE)
_OF_THE_SHELL = frozenset("In Out exit quit open get_ipython display".split())
_LARGEST_BATCH = 256
_NOT_THEIRS = frozenset("gradkit IPython ipykernel builtins".split())


def notebook_variables() -> Mapping[str, Any]:
    """The variables of the notebook, or of the program if there is no notebook."""
    shell = frames.notebook_shell()
    return vars(sys.modules["__main__"]) if shell is None else shell.user_ns


def notebook_models(names: Mapping[str, Any]) -> list[str]:
    """Names of the modules that have parameters, latest first.

    Example:
        >>> notebook_models({"net": nn.Linear(2, 1), "act": nn.ReLU(), "x": 3})
        ['net']
    """
    return [name for name, value in _theirs(names) if isinstance(value, nn.Module) and _has_weights(value)]


def notebook_batches(names: Mapping[str, Any]) -> list[str]:
    """Names of the tensors, of the containers that hold tensors, and of the data loaders, latest first."""
    return [name for name, value in _theirs(names) if _is_batch(value)]


def notebook_losses(names: Mapping[str, Any]) -> list[str]:
    """Names of what can be called on an output, and perhaps a batch: functions and modules, latest first."""
    return [name for name, value in _theirs(names) if _is_loss_module(value) or _takes(value, 1, 2)]


def likely_loss(names: Mapping[str, Any], model: str = "") -> str:
    """The name of the loss that a person most likely means: the latest of torch's own criteria, or what is called a
    loss; ``""`` if there is none, or if the model is one of transformers, which bring their own.

    Example:
        >>> likely_loss({"criterion": nn.CrossEntropyLoss(), "act": nn.ReLU(), "gelu": nn.GELU()})
        'criterion'
    """
    if hasattr(names.get(model), "main_input_name"):
        return ""
    found = (name for name in notebook_losses(names) if _LOSS.search(name) or isinstance(names[name], _Loss))
    return next(found, "")


def notebook_steps(names: Mapping[str, Any]) -> list[str]:
    """Names of the functions that can be called without arguments and do not train for a whole run, latest first."""
    found = [name for name, value in _theirs(names) if _takes(value, 0, 0)]
    return [name for name in found if not training_loops.is_whole_run(names[name])]


def notebook_optimizers(names: Mapping[str, Any]) -> list[str]:
    """Names of the optimizers, latest first."""
    return [name for name, value in _theirs(names) if isinstance(value, torch.optim.Optimizer)]


def _theirs(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in reversed(list(names.items())):
        if not name.startswith("_") and name not in _OF_THE_SHELL and not inspect.ismodule(value):
            yield name, value


def _is_batch(value: Any) -> bool:
    if isinstance(value, (nn.Module, type)) or inspect.isroutine(value):
        return False
    if isinstance(value, (Mapping, list, tuple)) and len(value) > _LARGEST_BATCH:
        return False
    return isinstance(value, DataLoader) or any(row.device for row in describe(value))


def _is_loss_module(value: Any) -> bool:
    return isinstance(value, nn.Module) and not _has_weights(value)


def _has_weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _takes(value: Any, least: int, most: int) -> bool:
    if not inspect.isfunction(value) or (value.__module__ or "").split(".")[0] in _NOT_THEIRS:
        return False
    return least <= len(accepts(value).required) <= most


BUILTIN, FILE, OBJECTS, WEIGHTS = KINDS = ("builtin", "file", "objects", "weights")


@dataclass(frozen=True)
class Request:
    """The form, filled in.

    Attributes:
        kind: one of ``KINDS``.
        builtin: name of a built-in example.
        named: texts for ``load.from_spec`` by argument, or names of the notebook's variables; only those filled in.
        is_trainable: for an adapter; None leaves peft's default.
        should_train: names or globs of parameters; ``()`` for all that require grad.
        objects: objects handed to the panel itself, by the name they go by in ``named``.
    """

    kind: str
    builtin: str = ""
    named: Mapping[str, str] = field(default_factory=dict)
    is_trainable: bool | None = None
    should_train: tuple[str, ...] = ()
    objects: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def program(self) -> str:
        """A program that is run in a process of its own: a script, or a function that trains; ``""`` for none.

        Example:
            >>> Request(FILE, named={"script": "train.py"}).program, Request(FILE, named={"step": "a.py:step"}).program
            ('train.py', '')
        """
        step = self.named.get("step", "") if self.kind == FILE and "model" not in self.named else ""
        return self.named.get("script", "") or (step if training_loops.is_training(step) else "")


@dataclass(frozen=True)
class Loaded:
    """A step that is ready to run, and what to say of it.

    Attributes:
        batch: the entries of its batch; None if the step brings its own.
        optimizer: the optimizer in use, if one was named.
        stamps: the files that it was made from, and when they were last written.
    """

    request: Request
    step: Step
    batch: tuple[Row, ...] | None
    stamps: Mapping[str, int]
    optimizer: Any = None

    @property
    def fresh(self) -> bool:
        """Whether loading again would only make the same once more."""
        return self.request.kind != OBJECTS and dict(self.stamps) == _stamps(self.stamps)


def fulfil(request: Request) -> Loaded:
    """Load what was asked for.

    Raises:
        GradkitError: it cannot be loaded; ``form_part_of`` tells which part of the form to look at.
    """
    optimizer = None
    if request.program:
        raise GradkitError("panel_program_runs", program=request.program)
    if request.kind == BUILTIN:
        step = _example(request.builtin)
    elif request.kind == OBJECTS:
        step, optimizer = _from_notebook(request)
    else:
        given: dict[str, Any] = dict(request.named)
        for text in given.values():
            training_loops.refuse(text)
            training_loops.refuse_import(text)
        step = from_spec(**given, is_trainable=request.is_trainable)
    rows = batches.describe(step.run.batch) if isinstance(step.run, ModelCall) and step.run.batch is not None else None
    files = [*step.files, *(text for name, text in request.named.items() if name != "step")]
    return Loaded(request, step, rows, _stamps(files), optimizer)


def _example(name: str) -> Step:
    """An example's copy in the current folder; where none can be made, the example itself."""
    try:
        return examples.from_copy(name, Path.cwd())
    except GradkitError as error:
        if error.key != "example_not_copied":
            raise
        return examples.from_builtin(name)


@dataclass(frozen=True)
class Proposal:
    """A line that describes a batch, and what it is to be tried on: model, loss, and the folder that they run in."""

    line: str
    model: nn.Module
    loss: Any
    folder: str = ""


def proposed(request: Request) -> Proposal:
    """The line that describes a batch for the model that was asked for; nothing of it is run.

    Raises:
        GradkitError: there is no such model (``panel_nothing_chosen``, or whatever loading it raises), no such loss, or
            the model says too little of what it takes (``nothing_to_propose``).
    """
    loss, folder = request.named.get("loss"), ""
    if request.kind == OBJECTS:
        names = {**notebook_variables(), **request.objects}
        model = _variable(request.named["model"], names) if "model" in request.named else None
        criterion = _meant("loss", loss, names) if loss else None
    else:
        wanted = ("model", "adapter", "weights")
        given: dict[str, Any] = {key: text for key, text in request.named.items() if key in wanted}
        training_loops.refuse(given.get("model", ""))
        training_loops.refuse_import(given.get("model", ""))
        built = build.build_model(given.pop("model", None), **given, is_trainable=request.is_trainable)
        model, folder = (built.value, built.folder) if built is not None else (None, "")
        criterion = build.build_loss(loss)
    if model is None:
        raise GradkitError("panel_nothing_chosen")
    line = synthetic.propose(model)
    if not line:
        raise GradkitError("nothing_to_propose", expects=signatures.expectation(model))
    return Proposal(line, model, criterion, folder)


def form_part_of(error: BaseException) -> str:
    """Where an error belongs: ``"source"`` or ``"batch"``, the two parts of the form, or ``"run"``.

    Example:
        >>> try: fulfil(Request(FILE, named={"model": "torch.nn:Flatten", "batch": "none.pt"}))
        ... except GradkitError as error: form_part_of(error)
        'batch'
    """
    passed = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    if passed & {batches.load_batch.__code__, build.build_loss.__code__, synthetic.parse.__code__}:
        return "batch"
    if isinstance(error, GradkitError) and error.key in _OF_BATCH:
        return "batch"
    return "source" if passed & {fulfil.__code__, proposed.__code__, aside.report_of.__code__} else "run"


def unticked(request: Request, report: Report) -> bool:
    """Whether what a report finds is that an adapter was loaded without ``is_trainable=True``, as the form asked."""
    is_asked = request.kind == WEIGHTS and "adapter" in request.named and request.is_trainable is None
    return is_asked and any(cause(finding.cause).change == "trainable" for finding in report.findings)


_OF_BATCH = ("no_batch", "no_loss", "no_such_parameter", "nothing_to_propose")


def _from_notebook(request: Request) -> tuple[Step, Any]:
    names = {**notebook_variables(), **request.objects}
    given = {argument: _meant(argument, text, names) for argument, text in request.named.items()}
    if "step" in given:
        step = from_step(given["step"], given.get("model"), label=request.named["step"])
    elif "model" in given:
        step = from_objects(given["model"], given.get("batch"), given.get("loss"), label=request.named["model"])
    else:
        raise GradkitError("panel_nothing_chosen")
    return step, given.get("optimizer")


def _meant(argument: str, text: str, names: Mapping[str, Any]) -> Any:
    """What was chosen by name, or said in words of its own: a line that describes a batch, a loss."""
    if argument == "batch" and text not in names:
        return batches.load_batch(text)
    if argument == "loss" and text not in names:
        return build.build_loss(text)
    return _variable(text, names)


def _variable(name: str, names: Mapping[str, Any]) -> Any:
    if name not in names:
        raise GradkitError("panel_no_variable", name=name)
    return names[name]


def _stamps(files: Any) -> dict[str, int]:
    return {file: _written(Path(file)) for file in files}


def _written(path: Path) -> int:
    try:
        inside = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(one.stat().st_mtime_ns for one in inside)
    except OSError:
        return 0


DATA = (".pt", ".pth", ".safetensors", ".npz", ".npy", ".json")
_SKIPPED = frozenset([*"node_modules site-packages __pycache__ build dist venv env".split(), examples.FOLDER])
_NO_SCRIPT = 3
_TRAINS = re.compile(r"(train|pretrain|finetune|fine_tune|main|run|fit)", re.IGNORECASE)
_MOST_FILES, _MOST_LOOKED_AT, _LARGEST_FILE = 60, 4000, 400_000


def suggested_specs(folder: Path) -> tuple[str, ...]:
    """``train.py:step`` ...: what the Python files in a folder, and up to two below it, define, but for what trains
    for a whole run.

    Nothing is imported or run. A file that cannot be read or parsed is left out.

    Example:
        >>> suggested_specs(Path("no such folder"))
        ()
    """
    files = _files(folder, (".py",))
    return tuple(f"{_relative(path, folder)}:{name}" for path in files for name in _defined(path, _written(path)))


def suggested_scripts(folder: Path) -> tuple[str, ...]:
    """The Python files in a folder, and up to two below it, that train when they are run, the likeliest first.

    Nothing is imported or run.

    Example:
        >>> suggested_scripts(Path("no such folder"))
        ()
    """
    ranked = [(_as_script(path, _written(path)), len(path.parts), path) for path in _files(folder, (".py",))]
    return tuple(_relative(path, folder) for rank, _, path in sorted(ranked) if rank < _NO_SCRIPT)


@functools.lru_cache(2 * _MOST_FILES)
def _as_script(path: Path, _stamp: int) -> int:
    """How likely it is that a file is the program a person trains with: 0 the most, ``_NO_SCRIPT`` not at all."""
    tree = _parsed(path)
    if tree is None:
        return _NO_SCRIPT
    named = _TRAINS.match(path.stem) is not None
    if training_loops.trains_as_script(tree):
        return 0 if named else 1
    return 2 if named and training_loops.is_started(tree) else _NO_SCRIPT


def suggested_data_files(folder: Path) -> tuple[str, ...]:
    """The files in a folder, and up to two below it, that may hold a batch or weights."""
    return tuple(_relative(path, folder) for path in _files(folder, DATA))


def suggested_adapters(folder: Path) -> tuple[str, ...]:
    """The folders near by that hold an adapter."""
    found = (path.parent for path in _walk(folder, (".json",)) if path.name == "adapter_config.json")
    return tuple(_relative(path, folder) for path in found)


def _files(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    return sorted(itertools.islice(_walk(folder, endings), _MOST_FILES))


def _walk(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    for depth in ("*", "*/*", "*/*/*"):
        try:
            found = itertools.islice(folder.glob(depth), _MOST_LOOKED_AT)
            yield from (path for path in sorted(found) if path.suffix in endings and _wanted(path, folder))
        except OSError:  # a folder that may not be read
            continue


def _wanted(path: Path, folder: Path) -> bool:
    above = path.relative_to(folder).parts
    return path.is_file() and not any(part.startswith(".") or part in _SKIPPED for part in above)


@functools.lru_cache(2 * _MOST_FILES)
def _defined(path: Path, _stamp: int) -> tuple[str, ...]:
    tree = _parsed(path)
    return () if tree is None else tuple(training_loops.proposed(tree))


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(regular_files.read_regular(path, _LARGEST_FILE))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
