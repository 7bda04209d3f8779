"""Where a model can come from: one small form each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ipywidgets

from gradkit.notebook import request
from gradkit.notebook.parts import Button, Choice, Column, Entry, Label, Pick, Row, show
from gradkit.notebook.request import BUILTIN, FILE, OBJECTS, WEIGHTS
from gradkit.teaching import examples

SCRIPT, STEP, MODEL = MODES = ("script", "step", "model")


class Source(Column):
    """One kind of source.

    Attributes:
        kind: one of ``request.KINDS``.
        inputs: the widgets whose ``value`` a person changes.
    """

    kind = ""
    inputs: tuple[Any, ...] = ()

    @property
    def brings(self) -> str:
        """``"example"``, ``"script"`` or ``"step"`` if it comes with its own batch and loss, else ``""``."""
        return ""

    def named(self) -> dict[str, str]:
        """What was filled in, by argument of ``load.from_spec``."""
        return {}

    def look_again(self) -> None:
        """Look for what is there to choose from."""

    def arrange(self) -> None:
        """Show what belongs to what has been chosen."""


def filled(**parts: Entry | Pick) -> dict[str, str]:
    """The texts of those parts that are not empty."""
    return {argument: part.text for argument, part in parts.items() if part.text}


class Examples(Source):
    """The built-in examples, and what the chosen one is about."""

    kind = BUILTIN

    def __init__(self) -> None:
        self.names = Choice("builtin.", [f"{name}.title" for name in examples.BUILTINS], look="gkp-list")
        self.about = Label(look="gkp-about")
        super().__init__(Row(self.names, self.about, look="gkp-examples"))
        self.inputs = (self.names,)
        self.arrange()

    @property
    def brings(self) -> str:
        """See :class:`Source`."""
        return "example"

    @property
    def chosen(self) -> str:
        """Name of the chosen example."""
        return str(self.names.value).removesuffix(".title")

    def arrange(self) -> None:
        """See :class:`Source`."""
        self.about.tell(f"builtin.{self.chosen}.about")


class FileSource(Source):
    """A script that trains; a step, or a function that builds the model, in a Python file or module."""

    kind = FILE

    def __init__(self) -> None:
        self.mode = Choice("panel.mode.", MODES, look="gkp-mode")
        self.script = Entry("script", "train.py")
        self.arguments = Entry("arguments", "--epochs 3 --lr 1e-3")
        self.step = Entry("step", "train.py:step")
        self.owner = Entry("owner", "train.py:model")
        self.model = Entry("model", "train.py:build_model")
        self.folder = Label("panel.folder", look="gkp-folder", folder=Path.cwd())
        entries = (self.script, self.arguments, self.step, self.owner, self.model)
        super().__init__(self.mode, *entries, self.folder)
        self.inputs = (self.mode, *(entry.control for entry in entries))
        self.arrange()

    @property
    def brings(self) -> str:
        """See :class:`Source`."""
        return "" if self.mode.value == MODEL else str(self.mode.value)

    def named(self) -> dict[str, str]:
        """See :class:`Source`."""
        if self.brings == SCRIPT:
            return filled(script=self.script, arguments=self.arguments) if self.script.text else {}
        return filled(step=self.step, model=self.owner) if self.brings else filled(model=self.model)

    def look_again(self) -> None:
        """See :class:`Source`. The likeliest script stands there already."""
        self.folder.tell("panel.folder", folder=Path.cwd())
        scripts = request.suggested_scripts(Path.cwd())
        self.script.propose(scripts)
        if scripts and not self.script.text:
            self.script.control.value = scripts[0]
        found = request.suggested_specs(Path.cwd())
        for entry in (self.step, self.owner, self.model):
            entry.propose(found)

    def arrange(self) -> None:
        """See :class:`Source`."""
        for entry, mode in zip((self.script, self.arguments, self.step, self.owner, self.model), _SHOWN, strict=True):
            show(entry, mode == self.mode.value)


_SHOWN = (SCRIPT, SCRIPT, STEP, STEP, MODEL)


class ObjectsSource(Source):
    """Variables of the notebook.

    Args:
        objects: further objects by name, as handed to the panel.
        chosen: which name to begin with, by argument.
    """

    kind = OBJECTS

    def __init__(self, objects: Mapping[str, Any], chosen: Mapping[str, str]) -> None:
        self.objects = objects
        self.mode = Choice("panel.mode.", (MODEL, STEP), look="gkp-mode")
        self.model = Pick("model_object", "panel.none", chosen.get("model", ""))
        self.step = Pick("step_object", "panel.none", chosen.get("step", ""))
        self.owner = Pick("owner_object", "panel.by_itself", chosen.get("model", "") if "step" in chosen else "")
        self.optimizer = Pick("optimizer_object", "panel.none", chosen.get("optimizer", ""))
        again = Button("panel.look_again", self.look_again, look="gkp-small")
        self.empty = Label("panel.objects.none", look="gkp-about", tag="p")
        super().__init__(Row(self.mode, again), self.empty, self.model, self.step, self.owner, self.optimizer)
        picks = (self.model, self.step, self.owner, self.optimizer)
        self.inputs = (self.mode, *(pick.control for pick in picks))
        if "step" in chosen:
            self.mode.value = STEP
        self.arrange()

    @property
    def brings(self) -> str:
        """See :class:`Source`."""
        return "step" if self.mode.value == STEP else ""

    def named(self) -> dict[str, str]:
        """See :class:`Source`."""
        model = self.owner if self.brings else self.model
        return filled(model=model, optimizer=self.optimizer, **({"step": self.step} if self.brings else {}))

    def look_again(self) -> None:
        """See :class:`Source`."""
        names = {**request.notebook_variables(), **self.objects}
        models, steps = request.notebook_models(names), request.notebook_steps(names)
        show(self.empty, not models and not steps)
        self.model.offer(models, names, eager=True)
        self.step.offer(steps, names, eager=True)
        self.owner.offer(request.notebook_models(names), names)
        self.optimizer.offer(request.notebook_optimizers(names), names)

    def arrange(self) -> None:
        """See :class:`Source`."""
        show(self.model, not self.brings)
        show(self.step, bool(self.brings))
        show(self.owner, bool(self.brings))


class WeightsSource(Source):
    """A base model with an adapter or a state dict on top."""

    kind = WEIGHTS

    def __init__(self) -> None:
        self.base = Entry("base", "train.py:build_model")
        self.adapter = Entry("adapter", "checkpoints/adapter")
        self.trainable = ipywidgets.Checkbox(indent=False)
        self.weights = Entry("weights", "checkpoints/model.safetensors")
        super().__init__(self.base, self.adapter, Row(self.trainable, look="gkp-indent"), self.weights)
        controls = (self.base.control, self.adapter.control, self.weights.control)
        self.inputs = (*controls, self.trainable)

    @property
    def is_trainable(self) -> bool | None:
        """What the box says, None for peft's default."""
        return True if self.trainable.value and self.adapter.text else None

    def named(self) -> dict[str, str]:
        """See :class:`Source`."""
        return filled(model=self.base, adapter=self.adapter, weights=self.weights)

    def look_again(self) -> None:
        """See :class:`Source`."""
        self.base.propose(request.suggested_specs(Path.cwd()))
        self.adapter.propose(request.suggested_adapters(Path.cwd()))
        self.weights.propose(request.suggested_data_files(Path.cwd()))

    def _write(self) -> None:
        super()._write()
        self.trainable.description = self.spoken("panel.field.is_trainable")
