"""What a person asked the panel to diagnose, and how that becomes a step."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradkit import batches, building, load, signatures, synthetic, trainings
from gradkit.batches import Row
from gradkit.calling import ModelCall
from gradkit.errors import GradkitError
from gradkit.widgets import namespace

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


@dataclass(frozen=True)
class Loaded:
    """A step that is ready to run, and what to say of it.

    Attributes:
        batch: the entries of its batch; None if the step brings its own.
        optimizer: the optimizer in use, if one was named.
        stamps: the files that it was made from, and when they were last written.
    """

    request: Request
    step: load.Step
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
        GradkitError: it cannot be loaded; ``place`` tells which part of the form to look at.
    """
    optimizer = None
    if request.kind == BUILTIN:
        step = load.from_builtin(request.builtin)
    elif request.kind == OBJECTS:
        step, optimizer = _from_notebook(request)
    else:
        given: dict[str, Any] = dict(request.named)
        for text in given.values():
            trainings.refuse(text)
        step = load.from_spec(**given, is_trainable=request.is_trainable)
    rows = batches.describe(step.run.batch) if isinstance(step.run, ModelCall) and step.run.batch is not None else None
    files = [*step.files, *(text for name, text in request.named.items() if name != "step")]
    return Loaded(request, step, rows, _stamps(files), optimizer)


def suggested(request: Request) -> str:
    """The line that describes a batch for the model that was asked for; nothing of it is run.

    Raises:
        GradkitError: there is no such model (``panel_nothing_chosen``, or whatever loading it raises), or it says too
            little of what it takes (``nothing_to_propose``).
    """
    if request.kind == OBJECTS:
        names = {**namespace.variables(), **request.objects}
        model = _variable(request.named["model"], names) if "model" in request.named else None
    else:
        wanted = ("model", "adapter", "weights")
        given: dict[str, Any] = {key: text for key, text in request.named.items() if key in wanted}
        trainings.refuse(given.get("model", ""))
        built = building.build_model(given.pop("model", None), **given, is_trainable=request.is_trainable)
        model = built.value if built is not None else None
    if model is None:
        raise GradkitError("panel_nothing_chosen")
    line = synthetic.propose(model)
    if not line:
        raise GradkitError("nothing_to_propose", expects=signatures.expectation(model))
    return line


def place(error: BaseException) -> str:
    """Where an error belongs: ``"source"`` or ``"batch"``, the two parts of the form, or ``"run"``.

    Example:
        >>> try: fulfil(Request(FILE, named={"model": "torch.nn:Flatten", "batch": "none.pt"}))
        ... except GradkitError as error: place(error)
        'batch'
    """
    passed = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    if passed & {batches.load_batch.__code__, building.build_loss.__code__, synthetic.parse.__code__}:
        return "batch"
    if isinstance(error, GradkitError) and error.key in _OF_BATCH:
        return "batch"
    return "source" if passed & {fulfil.__code__, suggested.__code__} else "run"


_OF_BATCH = ("no_batch", "no_loss", "no_such_parameter", "nothing_to_propose")


def _from_notebook(request: Request) -> tuple[load.Step, Any]:
    names = {**namespace.variables(), **request.objects}
    given = {argument: _meant(argument, text, names) for argument, text in request.named.items()}
    if "step" in given:
        step = load.from_step(given["step"], given.get("model"), label=request.named["step"])
    elif "model" in given:
        step = load.from_objects(given["model"], given.get("batch"), given.get("loss"), label=request.named["model"])
    else:
        raise GradkitError("panel_nothing_chosen")
    return step, given.get("optimizer")


def _meant(argument: str, text: str, names: Mapping[str, Any]) -> Any:
    """What was chosen by name, or said in words of its own: a line that describes a batch, a loss."""
    if argument == "batch" and text not in names:
        return batches.load_batch(text)
    if argument == "loss" and text not in names:
        return building.build_loss(text)
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
