"""Try it yourself: an experiment that can be changed and run, with what it shows then."""

from __future__ import annotations

import contextlib
import io
import traceback
from dataclasses import replace

import ipywidgets

from gradkit import trial
from gradkit.beliefs import Claim
from gradkit.errors import GradkitError
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.trial import Trial
from gradkit.widgets import quiz_page, turns
from gradkit.widgets.code_box import CodeBox
from gradkit.widgets.parts import Column, Press, Row, Say

NAME = "experiment.py"


class Attempt(Column):
    """The code of one experiment, a button that runs it as it stands, and one that puts it back.

    Attributes:
        seen: what the last run has shown; None if there was none, or it failed.
    """

    def __init__(self) -> None:
        self._language = "en"
        self._claim: Claim | None = None
        self.seen: Trial | None = None
        self._printed = self._failure = ""
        self.code = CodeBox("quiz.code", self.run)
        self.start = Press("quiz.run_mine", self.run, look="gkp-accent gkq-run")
        self.restore = Press("quiz.restore", self._restore, look="gkq-restore")
        self.outcome = ipywidgets.HTML()
        title, hint = Say("quiz.try", tag="h4"), Say("quiz.try_hint", tag="p", look="gkp-help")
        super().__init__(title, hint, self.code, Row(self.start, self.restore), self.outcome, look="gkq-attempt")

    @property
    def belief(self) -> str:
        """The id of the belief whose experiment is offered, ``""`` for none."""
        return self._claim.id if self._claim is not None else ""

    def show(self, claim: Claim) -> None:
        """Offer the experiment of another belief."""
        self._claim = claim
        self._restore()

    def run(self) -> None:
        """Run the code as it stands."""
        printed = io.StringIO()
        self.outcome.value = f'<p class="gkp-quiet">{escape(words("quiz.running", self._language))}</p>'
        try:
            turns.refuse_beside_a_job()
            with contextlib.redirect_stdout(printed):
                self.seen, self._failure = trial.run(self.code.value, NAME), ""
        except BaseException as error:  # noqa: BLE001  # told to the reader, whose code it is; an interrupt too
            self.seen, self._failure = None, _told(error)
        self._printed = printed.getvalue()
        self._write()

    def speak(self, language: str) -> None:
        """See :class:`parts.Spoken`."""
        super().speak(language)
        self._language = language
        self._write()

    def _restore(self) -> None:
        self.seen, self._failure, self._printed = None, "", ""
        self.code.value = self._claim.code if self._claim is not None else ""
        self._write()

    def _write(self) -> None:
        told = (text for text in (self._printed, self._failure) if text)
        parts = [f'<pre class="gkp-code" tabindex="0">{escape(text)}</pre>' for text in told]
        if self.seen is not None and self._claim is not None:
            parts.append(quiz_page.table(replace(self.seen, labels=self._claim.labels), self._language))
        self.outcome.value = f'<div class="gkp-prose" aria-live="polite">{"".join(parts)}</div>' if parts else ""


def _told(error: BaseException) -> str:
    """The traceback from the reader's own code on; of what we refuse, the sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [index for index, frame in enumerate(frames) if frame.filename == NAME]
    if isinstance(error, GradkitError) and not mine:
        return str(error)
    lines = traceback.format_list(frames[mine[0] :]) if mine else []
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()
