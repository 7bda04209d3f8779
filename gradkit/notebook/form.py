"""The form: where the model comes from, and with which batch and loss it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gradkit.load import build
from gradkit.notebook import request
from gradkit.notebook.model_sources import Examples, FileSource, ObjectsSource, Source, WeightsSource, filled
from gradkit.notebook.parts import Button, Column, Doors, Entry, Label, Pick, Problem, Row, show
from gradkit.notebook.request import BUILTIN, FILE, KINDS, OBJECTS, Request


class BatchForm(Column):
    """Batch and loss, for the sources that do not bring their own; and which parameters ought to learn.

    Args:
        objects: see :class:`gradkit.notebook.model_sources.ObjectsSource`.
        chosen: see :class:`gradkit.notebook.model_sources.ObjectsSource`.
        propose: called when a person wants a batch that fits the model.
    """

    def __init__(self, objects: Mapping[str, Any], chosen: Mapping[str, str], propose: Callable[[], None]) -> None:
        self.objects = objects
        self.brings = Label(look="gkp-brings")
        self.batch = Entry("batch", "train.py:make_batch")
        self.loss = Entry("loss", "train.py:loss_fn")
        self.pick_batch = Pick("batch_object", "panel.none", chosen.get("batch", ""))
        self.pick_loss = Pick("loss_object", "panel.own_loss", chosen.get("loss", ""))
        self.made = Entry("made_batch", "x=float32[4, 3]; y=int64[4]<5")
        self.said = Entry("said_loss", "cross_entropy")
        self.propose = Button("panel.propose", propose, look="gkp-small gkp-propose")
        self.passes = Label(look="gkp-passes")
        self.should_train = Entry("should_train", "proj.*, *.lora_*")
        batch = (self.batch, self.pick_batch, self.made)
        loss = (self.loss, self.pick_loss, self.said)
        parts = (*batch, *loss, self.should_train)
        super().__init__(
            self.brings, *batch, Row(self.propose, self.passes, look="gkp-indent"), *loss, self.should_train
        )
        self.inputs = tuple(part.control for part in parts)

    def named(self, source: Source) -> dict[str, str]:
        """What was filled in for a source, by argument of ``load.from_spec``."""
        if source.brings:
            return {}
        if source.kind == OBJECTS:
            return {**filled(batch=self.made, loss=self.said), **filled(batch=self.pick_batch, loss=self.pick_loss)}
        return filled(batch=self.batch, loss=self.loss)

    def look_again(self, source: Source) -> None:
        """Look for what is there to choose from."""
        if source.brings:
            return
        if source.kind == OBJECTS:
            names = {**request.notebook_variables(), **self.objects}
            self.pick_batch.offer(request.notebook_batches(names), names, eager=not self.made.text)
            likely = request.likely_loss(names, source.named().get("model", ""))
            losses = request.notebook_losses(names)
            losses = [likely, *(name for name in losses if name != likely)] if likely else losses
            self.pick_loss.offer(losses, names, eager=bool(likely) and not self.said.text)
            self.said.propose(build.NAMES)
            return
        code = request.suggested_specs(Path.cwd())
        self.batch.propose((*request.suggested_data_files(Path.cwd()), *code))
        self.loss.propose((*code, *build.NAMES))

    def take(self, line: str, source: Source) -> None:
        """Fill in a batch that was made up."""
        if source.kind == OBJECTS:
            self.pick_batch.control.value = ""
            self.made.control.value = line
        else:
            self.batch.control.value = line

    def arrange(self, source: Source) -> None:
        """Show what belongs to a source."""
        self.brings.tell(f"panel.brings.{source.brings}" if source.brings else "")
        for part in (self.batch, self.loss):
            show(part, not source.brings and source.kind != OBJECTS)
        for pick, text in ((self.pick_batch, self.made), (self.pick_loss, self.said)):
            show(pick, not source.brings and source.kind == OBJECTS)
            show(text, not source.brings and source.kind == OBJECTS and not pick.text)
        show(self.propose, not source.brings)


class Form(Column):
    """Everything to fill in. Nothing that was entered is lost by looking at another source.

    Args:
        given: objects handed to the panel, by argument: ``model``, ``batch``, ``loss``, ``step``. Without any, a script
            that trains and lies in the current folder comes before the examples.
        changed: called without arguments after every change.
        propose: see :class:`BatchForm`.
    """

    def __init__(self, given: Mapping[str, Any], changed: Callable[[], None], propose: Callable[[], None]) -> None:
        chosen = _names(given)
        variables = request.notebook_variables()
        self.objects = {
            chosen[name]: value for name, value in given.items() if variables.get(chosen[name]) is not value
        }
        made = (Examples(), FileSource(), ObjectsSource(self.objects, chosen), WeightsSource())
        self.sources: dict[str, Source] = {source.kind: source for source in made}
        self.kind = Doors("panel.source.", KINDS)
        self.batch = BatchForm(self.objects, chosen, propose)
        self.problems = {"source": Problem(), "batch": Problem()}
        first, self.second = (
            Label(f"panel.{name}.heading", look="gkp-heading", tag="h3") for name in ("source", "batch")
        )
        super().__init__(
            Column(first, self.kind, *made, self.problems["source"], look="gkp-card"),
            Column(self.second, self.batch, self.problems["batch"], look="gkp-card"),
            look="gkp-form",
        )
        if given:
            self.kind.value = OBJECTS
        elif any("/" not in script for script in request.suggested_scripts(Path.cwd())):
            self.kind.value = FILE
        self.look_again()
        self._watch(changed)

    @property
    def source(self) -> Source:
        """The source in use."""
        return self.sources[self.kind.value]

    def _watch(self, changed: Callable[[], None]) -> None:
        def act(_change: object) -> None:
            self._arrange()
            changed()

        def look(_change: object) -> None:
            self.look_again()
            self.forgive()
            changed()

        for control in (self.kind, *(source.mode for source in self.sources.values() if hasattr(source, "mode"))):
            control.observe(look, "value")
        for control in (*self.batch.inputs, *(one for source in self.sources.values() for one in source.inputs)):
            control.observe(act, "value")

    def look_again(self) -> None:
        """Look for what is there to choose from: variables of the notebook, files in the folder."""
        self.source.look_again()
        self.batch.look_again(self.source)
        self._arrange()

    def _arrange(self) -> None:
        for source in self.sources.values():
            show(source, source is self.source)
        self.source.arrange()
        self.batch.arrange(self.source)
        self.second.tell("panel.brings.heading" if self.source.brings else "panel.batch.heading")

    def request(self) -> Request:
        """What the form says now."""
        source = self.source
        globs = tuple(self.batch.should_train.text.replace(",", " ").split())
        if isinstance(source, Examples):
            return Request(BUILTIN, builtin=source.chosen, should_train=globs)
        named = {**source.named(), **self.batch.named(source)}
        trainable = source.is_trainable if isinstance(source, WeightsSource) else None
        return Request(source.kind, "", named, trainable, globs, self.objects)

    def forgive(self) -> None:
        """Take all errors away."""
        for problem in self.problems.values():
            problem.tell(None)


def _names(given: Mapping[str, Any]) -> dict[str, str]:
    """By which name each given object goes: its variable's in the notebook, else that of the argument."""
    variables = [(name, value) for name, value in request.notebook_variables().items() if not name.startswith("_")]
    own = {argument: [name for name, known in variables if known is value] for argument, value in given.items()}
    return {argument: names[0] if names else argument for argument, names in own.items()}
