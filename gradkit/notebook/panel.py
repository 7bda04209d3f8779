"""The panel: choose a model and a batch, diagnose, look at what was found, walk the fix."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ipywidgets

from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.core.printable import entities as escape
from gradkit.load.trying import Tried
from gradkit.notebook import panel_run, turns
from gradkit.notebook.accessibility import Accessibility, style
from gradkit.notebook.families import Families
from gradkit.notebook.form import Form
from gradkit.notebook.graph_view import PictureView
from gradkit.notebook.job import Cancelled, Job
from gradkit.notebook.kept import Kept
from gradkit.notebook.panel_run import LoadedCard, Progress
from gradkit.notebook.parts import Button, Choice, Column, Label, Problem, Row, show, shown
from gradkit.notebook.request import OBJECTS, WEIGHTS, Loaded, Request, form_part_of, unticked
from gradkit.notebook.results import HEIGHT, Results
from gradkit.report import html
from gradkit.report.report import Report
from gradkit.source import frames


@dataclass(frozen=True)
class _Diagnosed:
    """What was asked for, what was found of it, its picture, and what the panel's cell is to keep."""

    request: Request
    report: Report
    view: PictureView
    kept: dict[str, str]


class Panel(Column):
    """The whole walk, from a model to the line to change, by clicks alone.

    Args:
        model: a module of yours to begin with.
        batch: what to run it on.
        loss: ``loss(output, batch)``; None takes the model's own.
        step: in place of model and batch: a function that runs one forward pass and returns the loss.
        optimizer: the optimizer in use, to check that it holds the right parameters.
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Attributes:
        report: the last :class:`gradkit.report.Report`, or None.

    Example:
        >>> panel = Panel(language="zh")
        >>> panel.diagnose.description
        '开始诊断'
    """

    def __init__(
        self,
        model: Any = None,
        batch: Any = None,
        *,
        loss: Callable[..., Any] | None = None,
        step: Callable[[], Any] | None = None,
        optimizer: Any = None,
        language: str | None = None,
    ) -> None:
        given = {"model": model, "batch": batch, "loss": loss, "step": step, "optimizer": optimizer}
        self._lock = threading.RLock()
        self.job: Job | None = None
        self.loaded: Loaded | None = None
        self._diagnosed: Request | None = None
        self._kept = Kept()
        self.language = language or i18n.language()
        self.form = Form(
            {name: value for name, value in given.items() if value is not None}, self._changed, self._propose
        )
        self._build_actions()
        self.results, self.families = Results(self._diagnose, self._go), Families(self._go)
        self.results.guide.change.panel = frames.cell_now()
        self.manners = Accessibility()
        look = ipywidgets.HTML(style() + f"<style>{html.style()}</style>")
        for unseen in (look, self.manners):
            show(unseen, False)
        super().__init__(
            look, self.manners, self._header(), self.summary, self.actions, self.note, self.problem,
            self.card, self.form, self.box, self.results, self.families,
        )  # fmt: skip
        self.add_class("gkp")
        self._offer_load()
        self.speak(self.language)

    def _build_actions(self) -> None:
        self.diagnose = Button("panel.diagnose", self._diagnose, look="gkp-primary gkp-diagnose")
        self.load = Button("panel.load", self._load, look="gkp-load")
        self.cancel = Button("panel.cancel", self.stop, look="gkp-cancel")
        self.change = Button("panel.change", self._unfold, look="gkp-change")
        self.card, self.short = LoadedCard(), LoadedCard(short=True)
        self.progress, self.note, self.problem = Progress(), Label(look="gkp-note", tag="p"), Problem()
        self.form.problems["run"] = self.problem
        tick = Button("panel.box.tick", self._tick, look="gkp-accent gkp-tick")
        self.box = Row(Label("panel.box.said", look="gkp-box-said"), tick, look="gkp-card gkp-box")
        show(self.box, False)
        self.actions = Row(self.diagnose, self.load, self.cancel, self.progress, look="gkp-actions")
        self.summary = Row(self.short, self.change, self.diagnose, look="gkp-card gkp-summary")
        show(self.summary, False)
        show(self.cancel, False)

    def _header(self) -> Row:
        self.languages = Choice("panel.language.", i18n.LANGUAGES, look="gkp-languages")
        self.languages.value = self.language
        self.languages.observe(lambda change: self._choose(change["new"]), "value")
        title = Label("panel.title", tag="h2", look="gkp-title")
        tagline = Label("panel.tagline", tag="p", look="gkp-tagline")
        return Row(Column(title, tagline), self.languages, look="gkp-header")

    @property
    def report(self) -> Any:
        """The last report, or None."""
        return self.results.report

    # -- what a person can do -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Load what the form says, if that is still to do, and diagnose it.

        It is done when this returns, so that nothing else happens meanwhile; a step that takes longer than five
        seconds goes on beside the caller, who may :meth:`stop` it. A click on the button returns at once, and the
        notebook's cells wait.

        Raises:
            KeyboardInterrupt: Ctrl-C: the diagnosis was cancelled, and what it changed is put back.
        """
        self._wait_for(self._run)

    def start_loading(self) -> None:
        """Load what the form says and show what it is; as ``start``."""
        self._wait_for(self._load)

    def start_proposing(self) -> None:
        """Fill in a batch of random numbers that fits the model's forward and config; as ``start``."""
        self._wait_for(self._propose)

    def stop(self) -> None:
        """Cancel what is running; the model is put back as it was."""
        job = self.job
        if job is not None:
            job.cancel()
            self._heard(job)

    def close(self) -> None:
        """Take the panel off the page; what is running is cancelled."""
        if getattr(self, "job", None) is not None:
            self.stop()
        if hasattr(self, "results"):
            self.results.guide.change.cells.close()
        super().close()

    def speak(self, language: str) -> None:
        """Show every word, tooltip and label in ``language``; nothing is run again and nothing is lost."""
        with self._lock:
            super().speak(i18n.language(language))
            self.languages.value = self.language
            if self.job is not None:
                self.job.language = self.language
            if self.report is not None:
                self.manners.said = self.report.verdict(self.language)

    def _choose(self, language: str) -> None:
        """A person has chosen this language: it is remembered."""
        if language != self.language:
            self.speak(i18n.choose(language))

    def show_report(self, report: Report) -> None:
        """Show what was found elsewhere, of a program that the form does not name; nothing is run.

        It stays until the form's own model is diagnosed.
        """
        with self._lock:
            view = PictureView(report.picture, language=self.language, autograd=report.autograd, height=HEIGHT)
            self.loaded = self._diagnosed = None
            self._take_up(report, view, self._to_keep(report), reloads=False, repeats=False)
            self.short.tell(report)
            self._ask_for_more(False)
            show(self.diagnose, False)

    # -- one run, in a thread of its own ------------------------------------------------------------------------

    def _diagnose(self) -> None:
        """A click: cells whose change was written but not run are run first."""
        walk = self.results.guide
        again = self.job is None and self._diagnosed == self.form.request()
        if not (again and walk.change.run_first(walk.edits, self._run)):
            self._run()

    def _run(self) -> None:
        for edit in self.results.guide.edits:
            edit.follow()
        self._begin(self._diagnosing, self._show)

    def _load(self) -> None:
        if not self.form.request().program:  # there, nothing is loaded in this process
            self._begin(self._loading, self._show_loaded)

    def _tick(self) -> None:
        """Load the adapter as one to be trained, and diagnose again."""
        self.form.sources[WEIGHTS].trainable.value = True
        self._diagnose()

    def _propose(self) -> None:
        self._begin(panel_run.propose_batch, self._take)

    def _wait_for(self, click: Callable[[], None]) -> None:
        click()
        job = self.job
        if job is not None and job.thread is not threading.current_thread():
            turns.wait_for(job)

    def _begin(self, task: Callable[[Request, Job], Any], then: Callable[[Any], None]) -> None:
        with self._lock:
            if self.job is not None:
                return
            self.form.forgive()
            self.note.tell("")
            show(self.box, False)
            done = functools.partial(self._done, then=then)
            self.job = Job(functools.partial(task, self.form.request()), done, self._heard)
            self.job.language = self.language
            show(self.results, False)
            self._busy(True)
            self.job.start()
        self._go("cancel")

    def _loading(self, request: Request, job: Job) -> Loaded:
        self.loaded = panel_run.load_asked(request, self.loaded, job)
        return self.loaded

    def _diagnosing(self, request: Request, job: Job) -> _Diagnosed:
        if request.program:
            self.loaded = None
            report = panel_run.run_program(request, job, self.language)
        else:
            report = panel_run.diagnose_asked(self._loading(request, job), job)
        job.tell("draw")
        if self.report is not None and self._diagnosed == request:
            report = report.since(self.report)
        view = PictureView(report.picture, language=self.language, autograd=report.autograd, height=HEIGHT)
        return _Diagnosed(request, report, view, self._to_keep(report))

    def _to_keep(self, report: Report) -> dict[str, str]:
        """What the panel's cell shows where the panel cannot be: the report as a page; nothing outside of a cell."""
        return self._as_page(report) if self._kept.there else {}

    def _as_page(self, report: Report) -> dict[str, str]:
        return {"text/plain": report.text(self.language), "text/html": report.cell(self.language)}

    def _still(self) -> dict[str, str]:
        said = self.spoken("panel.still")
        with i18n.speaking(self.language):
            page = f'<p lang="{html.language_code()}">{escape(said)}</p>'
        return {"text/plain": said, "text/html": page}

    def _heard(self, job: Job) -> None:
        with self._lock:
            if job is self.job:
                self.progress.at(job.stage, job.seconds, cancelling=job.cancelled, held=job.held)

    def _done(self, job: Job, then: Callable[[Any], None]) -> None:
        with self._lock:
            self.job = None
            self._busy(False)
            self.card.tell(self.loaded if job.error is None else None)
            self.short.tell(self.loaded)
            error = job.error
            if error is None:
                try:
                    then(job.result)
                except Exception as raised:  # noqa: BLE001  # what cannot be shown is told; this is the thread's end
                    error = raised
            if error is not None:
                self._complain(error)

    def _show_loaded(self, _loaded: Loaded) -> None:
        self._match()
        self._go("loaded")

    def _take(self, tried: Tried) -> None:
        self.form.batch.take(tried.line, self.form.source)
        self._match()
        if tried.error:
            self.form.problems["batch"].tell(GradkitError("proposal_fails", error=tried.error))
        self.form.batch.passes.tell("" if tried.error else "panel.proposed")
        self._go("propose")

    def _show(self, found: _Diagnosed) -> None:
        asked = found.request
        same, self._diagnosed = self._diagnosed == asked, asked
        if asked.program:
            self.short.tell(found.report, f"{asked.program} {asked.named.get('arguments', '')}".strip())
        self._take_up(found.report, found.view, found.kept, same=same, reloads=asked.kind != OBJECTS)
        show(self.box, unticked(asked, found.report))

    def _take_up(self, report: Report, view: PictureView, kept: dict[str, str], **how: bool) -> None:
        self.results.show(report, view, **how)
        self._kept.put(kept or self._to_keep(report))  # the panel may have come into its cell meanwhile
        self._fold()
        self._ask_for_more(True)
        self.manners.said = report.verdict(self.language)
        self._go("verdict")

    def _complain(self, error: BaseException) -> None:
        if isinstance(error, Cancelled):
            self.note.tell("panel.cancelled_program" if self.form.request().program else "panel.cancelled")
            self._match()
            self._go("diagnose")
            return
        self._unfold()
        if isinstance(error, GradkitError) and error.key == "program_sound":
            self.note.tell("error.program_sound", **error.facts)
            self._go("note")
            return
        self.form.problems[form_part_of(error)].tell(error)
        self._go("problem")

    # -- what is to be seen -------------------------------------------------------------------------------------

    def _busy(self, busy: bool) -> None:
        for button in (self.diagnose, self.change):
            show(button, not busy)
        self._offer_load(busy=busy)
        show(self.cancel, busy)
        show(self.actions, busy or shown(self.form))
        if not busy:
            self.progress.stop()

    def _fold(self) -> None:
        """Make room for what was found: the form becomes one line."""
        for part in (self.form, self.card, self.actions):
            show(part, False)
        show(self.summary, True)

    def _unfold(self) -> None:
        """Bring the form back, as it was filled in."""
        for part in (self.form, self.actions, self.diagnose):
            show(part, True)
        show(self.summary, False)
        self.form.look_again()

    def _offer_load(self, *, busy: bool = False) -> None:
        """Of a program nothing is loaded: it only runs."""
        show(self.load, not busy and self.form.source.brings != "script")

    def _changed(self) -> None:
        self._offer_load()
        self.form.batch.passes.tell("")
        self.card.tell(None)
        self.note.tell("")
        self._match()

    def _match(self) -> None:
        """What was found is there to be seen as long as the form says what it was found for, or if it never did."""
        there = self.report is not None and self._diagnosed in (None, self.form.request())
        show(self.results, there)
        if not there:
            show(self.box, False)

    def _ask_for_more(self, again: bool) -> None:
        self.diagnose.tell("panel.diagnose_again" if again else "panel.diagnose")

    def _go(self, name: str) -> None:
        self.manners.go(f"gkp-{name}")

    def __repr__(self) -> str:
        said = self.report.verdict("en") if self.report is not None else "nothing diagnosed yet"
        return f"<gradkit.Panel: {said}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget; a page that cannot run it shows the last report, or says how to get one.

        In a notebook that stands in an output of its own, which is saved with the cell and changes with the report.
        """
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *metadata = bundle if isinstance(bundle, tuple) else (bundle,)
        still = self._as_page(self.report) if self.report is not None else self._still()
        self._kept.open(still)
        if self._kept.there:
            still = {"text/plain": self.spoken("panel.region"), "text/html": ""}
        data = {**(data or {}), **still}
        return (data, *metadata) if metadata else data
