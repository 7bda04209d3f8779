"""What a diagnosis found, and the ways to look at it. Words are chosen when it is shown, never before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import graphviz

from gradkit.core import i18n, printable, regular_files, writing
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.core.records import BARREN, Finding, Harmless, LossTerm, Meant, Origin, Parameter, Picture, Untried
from gradkit.report import breakdown, cell, fixed, html, layout, terms, text
from gradkit.report import page as pages
from gradkit.report.checklist import Check, checks
from gradkit.report.picture import dot, fold, render, torchviz_view
from gradkit.report.picture.held import CELL, FILE, Room, held
from gradkit.report.picture.torchviz_kept import Kept
from gradkit.source import frames

MOST_ASIDES = 6


@dataclass(frozen=True)
class Report:
    """The result of ``diagnose``. In a notebook it displays itself; ``print`` gives the text.

    Attributes:
        findings: what to change, most blocking first; ``()`` for a sound program.
        parameters: one row for each parameter of the model.
        picture: the nodes and edges that the drawings are made from.
        label: what was diagnosed, for example ``"train.py:step"``.
        loss: its value as text, or its shape if it is not a scalar.
        backward: whether ``loss.backward()`` has something to start from.
        error: what backward raised, ``""`` if nothing.
        runs: how many times the step was run.
        harmless: stop-gradients that were looked at and cost no parameter its gradient.
        grad_fn: autograd's name of the node that made the loss, ``""`` if none did.
        left: what was raised where something could not be put back as it was; ``()`` as a rule.
        untried: parts of the diagnosis that broke off, for example a rerun; what is said does not rest on them.
        meant: how gradkit knows which parameters should learn.
        autograd: the nodes that ``graph(view="torchviz")`` is drawn from.
        origin: which statements of a program were run again for it; None for a step that was handed over.
        terms: what the loss is the sum of, term by term; ``()`` of a loss that is no sum.
    """

    findings: tuple[Finding, ...]
    parameters: tuple[Parameter, ...]
    picture: Picture
    label: str = ""
    loss: str = ""
    backward: bool = True
    error: str = ""
    runs: int = 1
    harmless: tuple[Harmless, ...] = ()
    grad_fn: str = ""
    left: tuple[str, ...] = ()
    untried: tuple[Untried, ...] = ()
    meant: Meant = field(default_factory=Meant)
    autograd: Kept = field(default_factory=Kept)
    origin: Origin | None = None
    terms: tuple[LossTerm, ...] = ()

    @property
    def healthy(self) -> bool:
        """Backward would work, and every parameter that should train gets a gradient."""
        return not self.findings

    @property
    def barren(self) -> bool:
        """Healthy, but every gradient is exactly zero: from this batch nothing is learned."""
        wanted = [row for row in self.parameters if row.should_train]
        return self.healthy and bool(wanted) and all(row.grad_norm == 0 for row in wanted)

    def since(self, before: Report) -> Report:
        """The same report, whose picture marks what was fixed since an earlier one, with the lines that were changed.

        Args:
            before: the report on the program as it was before a change of its files.

        Example:
            >>> report = Report((), (), Picture((), (), (), ()))
            >>> report.since(report).picture.fixed
            ()
        """
        return dataclasses.replace(self, picture=fixed.since(before.picture, self.picture))

    # -- words --------------------------------------------------------------------------------------------------

    def verdict(self, language: str | None = None) -> str:
        """The whole diagnosis in one sentence."""
        wanted = [row for row in self.parameters if row.should_train]
        starved = sum(not row.reached for row in wanted)
        with speaking(language):
            if not self.barren:
                return layout.verdict(
                    self.findings, len(wanted), starved, self.backward, self.error, len(self.parameters)
                )
            why = [one for one in self.harmless if one.why == BARREN or one.why.startswith("zero_")]
            zero = next((layout.aside(one)[0] for one in why), "")
            said = words("verdict.barren", n=len(wanted))
            return words("verdict.barren_at", head=said, place=zero) if zero else said

    def summary(self, language: str | None = None) -> str:
        """How many parameters there are, should train, and are reached; and how often the step was run."""
        rows = self.parameters
        wanted = [row for row in rows if row.should_train]
        facts = {"all": len(rows), "wanted": len(wanted), "reached": sum(r.reached for r in wanted), "runs": self.runs}
        return words("report.summary_raised" if self.error else "report.summary", language, **facts)

    def sections(self, language: str | None = None) -> tuple[layout.Section, ...]:
        """The findings laid out for text or HTML."""
        wanted = [row for row in self.parameters if row.should_train]
        numel = sum(row.numel for row in wanted)
        with speaking(language):
            return tuple(layout.section(finding, len(wanted), numel) for finding in self.findings)

    def asides(self, language: str | None = None) -> tuple[tuple[str, str], ...]:
        """What was looked at and found harmless, a handful of it: place and sentence of each."""
        shown = [one for one in self.harmless if one.why != BARREN][:MOST_ASIDES]
        with speaking(language):
            return tuple(map(layout.aside, shown))

    def limits(self, language: str | None = None) -> tuple[str, ...]:
        """A sentence for each part of the diagnosis that could not be made, and for what could not be put back."""
        left = (words("report.left", language, error=one) for one in self.left)
        return (*(words(f"untried.{one.what}", language, error=one.error) for one in self.untried), *left)

    def origins(self, language: str | None = None) -> tuple[str, ...]:
        """A sentence on the statements that were run again, and one for each way in which that was not the same."""
        with speaking(language):
            return layout.origin(self.origin) if self.origin is not None else ()

    def _foot(self) -> str:
        still = layout.frozen(self.parameters, self.meant) if self.healthy else ()
        said = [self.summary(), *layout.meant(self.meant), *still, *self.origins(), *self.limits()]
        return "\n".join(filter(None, said))

    def checklist(self) -> tuple[Check, ...]:
        """Point by point what was seen of the run; each says itself by ``text(language)``."""
        return checks(self.parameters, self.loss, self.grad_fn, self.error, len(self.findings), backward=self.backward)

    def text(self, language: str | None = None) -> str:
        """The report for a terminal, in signs that the encoding of ``sys.stdout`` has, so that ``print`` never raises.

        ``save("report.txt")`` writes every sign as it is.
        """
        with speaking(language):
            return self._text(printable.fitted)

    def _text(self, fit: Callable[[str], str]) -> str:
        return text.write(
            self.sections(), self.verdict(), self._foot(), self.asides(), fit, table=terms.write(self.terms, fit)
        )

    def breakdown(self, depth: int = 1, language: str | None = None) -> str:
        """The parameters counted by module: elements in all, should train, ``requires_grad``, reached; with a remark
        where something that should train is not reached, or something that should not may train.

        Args:
            depth: how many steps to go down from the innermost module that holds everything.
            language: ``"en"``, ``"zh"``, or None for the one in use.

        Example:
            >>> row = Parameter("fc.weight", (2, 3), 6, "float32", True, True, True, True, True, 0.5, "Linear")
            >>> report = Report((), (row,), Picture((), (), (), ()))
            >>> print(report.breakdown(language="en"))  # doctest: +NORMALIZE_WHITESPACE
            By module, in values (elements of the parameters):
            Module    In all  Should train  requires_grad  Gradient  Mode
            fc             6             6              6         6  train  ✓ gradient
              weight       6             6              6         6  train  ✓ gradient
            <BLANKLINE>
        """
        with speaking(language):
            return breakdown.write(breakdown.shares(self.parameters, self.picture.modules, depth))

    def html(self, language: str | None = None, *, with_picture: bool = True) -> str:
        """The report as an HTML fragment, with the still picture where it can be drawn."""
        with speaking(language):
            return self._fragment(self._drawing() if with_picture else "")

    def _fragment(self, drawing: str) -> str:
        return html.write(
            self.sections(), self.verdict(), self._foot(), healthy=self.healthy, drawing=drawing, **self._tables()
        )

    def _tables(self) -> dict[str, Any]:
        shares = breakdown.shares(self.parameters, self.picture.modules)
        return {"asides": self.asides(), "breakdown": breakdown.table(shares), "terms": terms.table(self.terms)}

    def page(self, language: str | None = None) -> str:
        """The report as one HTML page that needs nothing else: with the viewer, in both languages, with the guides.

        Args:
            language: the one that it is opened in: ``"en"``, ``"zh"``, or None for the one in use.
        """
        with speaking(language):
            return self._page(FILE, framed=False)

    def _page(self, room: Room, *, framed: bool) -> str:
        first, view = i18n.language(), fold.choose_boxes(self.picture, "auto")
        told = i18n.in_each(self._told)
        drawings = held(self.picture, self.autograd, room)
        return pages.write(told, self.findings, drawings, first, view, framed=framed)

    def cell(self, language: str | None = None) -> str:
        """The report as HTML for the output of a notebook's cell: the page in a frame, and a still form beside it.

        It is saved with the notebook and needs no kernel. The still form is shown where frames are taken out: in a
        notebook that is not trusted, and on GitHub.
        """
        with speaking(language):
            title = words("page.frame", verdict=self.verdict())
            still = self._fragment(cell.still_picture(self.graph()))
            return cell.write(self._page(CELL, framed=True), still, title)

    def _told(self) -> pages.Told:
        foot = html.foot(self._foot(), **self._tables())
        return pages.Told(self.verdict(), self.sections(), foot, self.healthy)

    def _drawing(self) -> str:
        try:
            return self.svg()
        except GradkitError as error:
            return f"<p>{printable.entities(error.text())}</p>"

    # -- pictures -----------------------------------------------------------------------------------------------

    def graph(
        self,
        view: str = "auto",
        language: str | None = None,
        open: tuple[str, ...] = (),  # noqa: A002
    ) -> graphviz.Digraph:
        """The drawing as DOT: ``"map"`` folds by module, ``"graph"`` shows every node, ``"auto"`` picks by size.

        ``"torchviz"`` is the autograd graph as torchviz draws it, up to 300 nodes: what lies behind the loss and, where
        a rerun with the cuts undone was made, what it misses, beside it, with the plate of every cut between the two.
        """
        with speaking(language):
            if view == "torchviz":
                starved = [row.name for row in self.parameters if row.should_train and not row.reached]
                return torchviz_view.dot(self.autograd, starved, self.picture)
            return dot.dot(self.picture, view, open=open)

    def svg(self, view: str = "auto", language: str | None = None) -> str:
        """The drawing as SVG text.

        Raises:
            GradkitError: there is no Graphviz (``no_layout``), or it took too long (``layout_timeout``).
        """
        return render.svg(self.graph(view, language))

    def png(self, view: str = "auto", language: str | None = None) -> bytes:
        """The drawing as a PNG."""
        return render.png(self.graph(view, language))

    def save(self, path: str | Path, language: str | None = None, view: str = "auto") -> Path:
        """Write the report to a file; its ending says how: .html .svg .png .dot .txt .json.

        Raises:
            GradkitError: another ending (``save_format``).
        """
        target = Path(path)
        writers: dict[str, Callable[[], bytes]] = {
            ".html": lambda: self.page().encode(),
            ".svg": lambda: self.svg(view).encode(),
            ".png": lambda: self.png(view),
            ".dot": lambda: str(self.graph(view).source).encode(),
            ".txt": lambda: self._text(str).encode(),
            ".json": lambda: printable.as_json(self.data()).encode(),
        }
        writer = writers.get(target.suffix.lower())
        if writer is None:
            raise GradkitError("save_format", path=target, formats=" ".join(writers))
        regular_files.check_target(target)
        with speaking(language):
            writing.write(target, writer())
        return target

    def data(self) -> dict[str, Any]:
        """Everything that was found as plain data, for scripts: the same in every language."""
        return {
            "healthy": self.healthy, "label": self.label, "loss": self.loss, "backward": self.backward,
            "error": self.error, "runs": self.runs, "findings": [_found(f) for f in self.findings],
            "parameters": [_plain(dataclasses.asdict(p)) for p in self.parameters],
            "harmless": [dataclasses.asdict(one) for one in self.harmless], "left": list(self.left),
            "untried": [dataclasses.asdict(one) for one in self.untried], "meant": dataclasses.asdict(self.meant),
            "terms": [_term(one) for one in self.terms],
            "origin": dataclasses.asdict(self.origin) if self.origin is not None else None,
        }  # fmt: skip

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return printable.fitted(f"<gradkit.Report: {self.verdict('en')}>")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text(), **({} if frames.in_a_terminal() else {"text/html": self.cell()})}


def _found(finding: Finding) -> dict[str, Any]:
    """A finding as plain data, without the rule that made it; variant, library and doubt stand among its facts."""
    row = dataclasses.asdict(finding)
    del row["rule"], row["cuts"]
    told = {"variant": row.pop("variant"), "via": row.pop("library"), "why": row.pop("doubt")}
    return {**row, "facts": {**row["facts"], **{name: value for name, value in told.items() if value}}}


def _term(term: LossTerm) -> dict[str, Any]:
    return {**_plain(dataclasses.asdict(term)), "carries": term.carries}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no nan and no infinity: they become text."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
