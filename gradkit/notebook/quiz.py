"""The quiz: guess whether a belief is right, run its experiment, see; then change the experiment and run it again."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from gradkit.core import i18n, settings
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.core.printable import entities as escape
from gradkit.notebook import turns
from gradkit.notebook.accessibility import Accessibility, style
from gradkit.notebook.parts import Button, Choice, Column, Label, Row, Sheet, Spoken, show
from gradkit.report import html
from gradkit.report.markup import code, markdown, phrase
from gradkit.teaching import claim as teaching_claim
from gradkit.teaching import experiment
from gradkit.teaching.claim import Claim
from gradkit.teaching.experiment import Observation, Trial


class CodeBox(Spoken, anywidget.AnyWidget):
    """A box of code.

    Args:
        key: the key of what screen readers call it.
        run: called when Shift+Enter or Ctrl+Enter is pressed in it.

    Attributes:
        value: the code.

    Example:
        >>> box = CodeBox("quiz.code", lambda: None)
        >>> box.value = "1 + 1"; box.value
        '1 + 1'
    """

    _esm = Path(__file__).parent / "static" / "code_box.js"

    value = traitlets.Unicode("").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)

    def __init__(self, key: str, run: Callable[[], None]) -> None:
        super().__init__()
        self._key, self._run = key, run
        self.on_msg(self._heard)

    def _write(self) -> None:
        self.label = self.spoken(self._key)

    def _heard(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict) and content.get("run"):
            code = content.get("code")
            if isinstance(code, str):
                self.value = code
            self._run()


COLUMNS = ("looked_at", "believed", "seen", "mark")
MARKS = {"open": "", "right": "✓", "wrong": "✗"}


def board(ids: Sequence[str], states: Mapping[str, str], number: int) -> str:
    """A button for each belief, by topic.

    Args:
        ids: of all beliefs, in the order of the quiz.
        states: ``"right"`` or ``"wrong"`` for each that was answered.
        number: which one is open, counted from 0.
    """
    topics: dict[str, list[str]] = {topic: [] for topic in teaching_claim.TOPICS}
    for n, name in enumerate(ids):
        state = states.get(name, "open")
        topics[teaching_claim.claim(name, "en").topic].append(_dot(name, n, state, now=n == number))
    groups = "".join(
        f'<div class="gkq-group"><span class="gkq-topic">{escape(words(f"claims.topic.{topic}"))}</span>'
        f"{''.join(dots)}</div>"
        for topic, dots in topics.items()
    )
    return f'<nav class="gkq-board" aria-label="{escape(words("quiz.board"))}">{groups}</nav>'


def _dot(name: str, number: int, state: str, *, now: bool) -> str:
    label = escape(words(f"quiz.dot.{state}", number=number + 1))
    current = ' aria-current="true"' if now else ""
    return (
        f'<button type="button" class="gkq-dot gkq-{state}" data-press="{name}" aria-label="{label}" title="{label}"'
        f'{current}>{number + 1}<span aria-hidden="true">{MARKS[state]}</span></button>'
    )


def observations_table(seen: Trial) -> str:
    """What a run has shown: what was looked at, what was believed, what is seen; and the verdict."""
    heads = "".join(f'<th scope="col">{escape(words(f"quiz.column.{name}"))}</th>' for name in COLUMNS)
    body = "".join(_row(row, seen.labels.get(row.key, f"`{row.key}`")) for row in seen.rows)
    return (
        f'<div class="gkp-scroll" tabindex="0"><table class="gkq-table"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{markdown(seen.summary())}"
    )


def _row(row: Observation, name: str) -> str:
    believed = f"<code>{escape(row.believed)}</code>" if row.believed is not None else ""
    kind = "context" if row.believed is None else "as_believed" if row.as_believed else "otherwise"
    return (
        f'<tr class="gkq-{kind}"><th scope="row">{phrase(name)}</th><td>{believed}</td>'
        f"<td><code>{escape(row.seen)}</code></td><td>{escape(words(f'quiz.mark.{kind}'))}</td></tr>"
    )


def explained(claim: Claim) -> str:
    """Why it is so, what to do instead, and where it was heard."""
    said = [
        f"<h4>{escape(words(f'claims.part.{part}'))}</h4>{markdown(getattr(claim, part))}"
        for part in ("why", "instead")
    ]
    heard = "".join(
        f'<li><a href="{escape(one)}" target="_blank" rel="noopener">{escape(one)}</a></li>' for one in claim.sources
    )
    title = escape(words("claims.part.sources"))
    sources = f'<details class="gkp-proof"><summary>{title}</summary><ul>{heard}</ul></details>' if heard else ""
    return "".join(said) + sources


def still_to_guess() -> str:
    """All beliefs for a page without widgets: nothing is run, the answers are folded away.

    Example:
        >>> still_to_guess().count("<details>") == len(teaching_claim.claim_names())
        True
    """
    said = [f'<div lang="{html.language_code()}"><p>{escape(words("quiz.still"))}</p>']
    for claim in teaching_claim.claims():
        verdict = escape(words(f"claims.verdict.{claim.verdict}"))
        said.append(
            f"<details><summary>{phrase(claim.belief)}</summary>"
            f"<p><strong>{verdict}</strong> {phrase(claim.answer)}</p>"
            f"{markdown(claim.why)}{markdown(claim.instead)}<pre>{escape(claim.code)}</pre></details>"
        )
    return "\n".join([*said, "</div>"])


NAME = "experiment.py"


class Attempt(Column):
    """The code of one experiment, a button that runs it as it stands, and one that puts it back.

    Attributes:
        seen: what the last run has shown; None if there was none, or it failed.
    """

    def __init__(self) -> None:
        self._claim: Claim | None = None
        self.seen: Trial | None = None
        self._printed = self._failure = ""
        self.code = CodeBox("quiz.code", self.run)
        self.start = Button("quiz.run_mine", self.run, look="gkp-accent gkq-run")
        self.restore = Button("quiz.restore", self._restore, look="gkq-restore")
        self.outcome = ipywidgets.HTML()
        title, hint = Label("quiz.try", tag="h4"), Label("quiz.try_hint", tag="p", look="gkp-help")
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
        self.outcome.value = f'<p class="gkp-quiet">{self.spoken_html("quiz.running")}</p>'
        try:
            turns.refuse_beside_a_job()
            with contextlib.redirect_stdout(printed):
                self.seen, self._failure = experiment.run_experiment(self.code.value, NAME), ""
        except BaseException as error:  # noqa: BLE001  # told to the reader, whose code it is; an interrupt too
            self.seen, self._failure = None, _told(error)
        self._printed = printed.getvalue()
        self._write()

    def _restore(self) -> None:
        self.seen, self._failure, self._printed = None, "", ""
        self.code.value = self._claim.code if self._claim is not None else ""
        self._write()

    def _write(self) -> None:
        super()._write()
        told = (text for text in (self._printed, self._failure) if text)
        parts = [f'<pre class="gkp-code" tabindex="0">{escape(text)}</pre>' for text in told]
        if self.seen is not None and self._claim is not None:
            with speaking(self.language):
                parts.append(observations_table(replace(self.seen, labels=self._claim.labels)))
        self.outcome.value = f'<div class="gkp-prose" aria-live="polite">{"".join(parts)}</div>' if parts else ""


def _told(error: BaseException) -> str:
    """The traceback from the reader's own code on; of what we refuse, the sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [index for index, frame in enumerate(frames) if frame.filename == NAME]
    if isinstance(error, GradkitError) and not mine:
        return str(error)
    lines = traceback.format_list(frames[mine[0] :]) if mine else []
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


GUESSES = ("true", "false", "depends")
PROGRESS = "quiz"
_CSS = Path(__file__).parent / "static" / "quiz.css"


class Quiz(Column):
    """One belief after the other. What was guessed is kept from one kernel to the next.

    Args:
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Attributes:
        guesses: by the belief's id, what was guessed.
        number: which belief is open, counted from 0.

    Example:
        >>> Quiz(language="zh").next.description
        '下一条'
    """

    def __init__(self, language: str | None = None) -> None:
        self.language = language or i18n.language()
        self.ids = tuple(one.id for one in teaching_claim.claims("en"))
        self.guesses = _kept(self.ids)
        self._seen: dict[str, Trial | str] = {}
        self.number = next((n for n, name in enumerate(self.ids) if name not in self.guesses), 0)
        self.manners = Accessibility("quiz.region")
        self.score, self.board = ipywidgets.HTML(), Sheet(lambda name: self.go(self.ids.index(name)))
        self.question, self.verdict, self.answer, self.attempt = (
            ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML(), Attempt(),
        )  # fmt: skip
        self.buttons = {name: Button(f"quiz.guess.{name}", functools.partial(self.guess, name)) for name in GUESSES}
        self.back = Button("quiz.back", lambda: self.go(self.number - 1), look="gkq-back")
        self.next = Button("quiz.next", lambda: self.go(self.number + 1), look="gkp-primary gkq-next")
        self.again = Button("quiz.again", self.start_over, look="gkp-small gkq-again")
        look = ipywidgets.HTML(style() + f"<style>{_CSS.read_text(encoding='utf-8')}</style>")
        for unseen in (look, self.manners):
            show(unseen, False)
        guess = Row(Label("quiz.ask", look="gkq-ask"), *self.buttons.values(), look="gkq-guess")
        card = Column(self.question, guess, self.verdict, self.answer, self.attempt, Row(self.back, self.next),
                      look="gkp-card gkq-card")  # fmt: skip
        super().__init__(look, self.manners, self._header(), self.board, card)
        self.add_class("gkp")
        self.speak(self.language)

    def _header(self) -> Row:
        self.languages = Choice("panel.language.", i18n.LANGUAGES, look="gkp-languages")
        self.languages.value = self.language
        self.languages.observe(lambda change: self._choose(change["new"]), "value")
        title, tagline = (
            Label("quiz.title", tag="h2", look="gkp-title"),
            Label("quiz.tagline", tag="p", look="gkp-tagline"),
        )
        return Row(Column(title, tagline, Row(self.score, self.again)), self.languages, look="gkp-header")

    @property
    def claim(self) -> Claim:
        """The belief that is open."""
        return teaching_claim.claim(self.ids[self.number], self.language)

    @property
    def right(self) -> int:
        """How many guesses were right."""
        return sum(self.is_right(name) for name in self.guesses)

    def is_right(self, name: str) -> bool:
        """Whether the guess is the verdict of the experiment: of its run, if it was run, else of its text."""
        seen = self._seen.get(name)
        verdict = seen.verdict if isinstance(seen, Trial) else teaching_claim.claim(name, "en").verdict
        return self.guesses.get(name) == verdict

    def go(self, number: int) -> None:
        """Open another belief; behind the last comes the first."""
        self.number = number % len(self.ids)
        self._show()
        self.manners.go("gkq-belief")

    def guess(self, verdict: str) -> None:
        """Guess, and see: the experiment is run. A guess that was made stays."""
        if self.claim.id in self.guesses:
            return
        self.guesses[self.claim.id] = verdict
        settings.remember(PROGRESS, json.dumps(self.guesses))
        self._show()
        self.manners.said = self._said()
        self.manners.go("gkq-verdict")

    def start_over(self) -> None:
        """Forget all guesses."""
        self.guesses.clear()
        settings.remember(PROGRESS, "{}")
        self.go(0)

    def speak(self, language: str) -> None:
        """Show every word in ``language``."""
        super().speak(i18n.language(language))
        self.languages.value = self.language
        self._show()

    def _choose(self, language: str) -> None:
        if language != self.language:
            self.speak(i18n.choose(language))

    # -- what is to be seen -------------------------------------------------------------------------------------

    def _show(self) -> None:
        claim, guessed = self.claim, self.guesses.get(self.claim.id)
        facts = {"number": self.number + 1, "total": len(self.ids)}
        topic = self.spoken_html(f"claims.topic.{claim.topic}")
        self.question.value = (
            f'<p class="gkp-quiet">{self.spoken_html("quiz.number", **facts)} · {topic}</p>'
            f'<h3 class="gkq-belief" tabindex="-1">{phrase(claim.belief)}</h3>'
        )
        for name, button in self.buttons.items():
            button.disabled = guessed is not None
            (button.add_class if name == guessed else button.remove_class)("gkq-mine")
        for part in (self.verdict, self.answer, self.attempt):
            show(part, guessed is not None)
        if guessed is not None:
            self._reveal(claim)
        self._count()

    def _reveal(self, claim: Claim) -> None:
        if not isinstance(self._seen.get(claim.id), Trial):
            self.verdict.value = f'<p class="gkq-verdict" tabindex="-1">{self.spoken_html("quiz.running")}</p>'
            self.answer.value = ""
            self._seen[claim.id] = _run(claim)
        seen = self._seen[claim.id]
        kind = "right" if self.is_right(claim.id) else "wrong"
        self.verdict.value = f'<p class="gkq-verdict gkq-{kind}" tabindex="-1">{escape(self._said())}</p>'
        with speaking(self.language):
            observed = observations_table(seen) if isinstance(seen, Trial) else code(seen, "text")
            if isinstance(seen, Trial) and seen.verdict != claim.verdict:
                observed += f"<p>{escape(teaching_claim.changed(claim, seen))}</p>"
            self.answer.value = f'<div class="gkp-prose">{markdown(claim.answer)}{observed}{explained(claim)}</div>'
        if self.attempt.belief != claim.id:
            self.attempt.show(claim)

    def _said(self) -> str:
        """Whether the guess was right, in a sentence."""
        claim = self.claim
        seen = self._seen.get(claim.id)
        verdict = seen.verdict if isinstance(seen, Trial) else claim.verdict
        facts = {"verdict": self.spoken(f"claims.verdict.{verdict}")}
        return self.spoken(f"quiz.{'right' if self.is_right(claim.id) else 'wrong'}", **facts)

    def _count(self) -> None:
        facts = {"right": self.right, "answered": len(self.guesses), "total": len(self.ids)}
        self.score.value = f'<p class="gkq-score">{self.spoken_html("quiz.score", **facts)}</p>'
        show(self.again, bool(self.guesses))
        with speaking(self.language):
            self.board.html = board(self.ids, self._states(), self.number)

    def _states(self) -> dict[str, str]:
        return {name: "right" if self.is_right(name) else "wrong" for name in self.guesses}

    def __repr__(self) -> str:
        return f"<gradkit.Quiz: {self.right} of {len(self.guesses)}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget; a page that cannot run it shows all beliefs, each with its answer folded away."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *metadata = bundle if isinstance(bundle, tuple) else (bundle,)
        with speaking(self.language):
            data = {**(data or {}), "text/plain": words("quiz.still"), "text/html": still_to_guess()}
        return (data, *metadata) if metadata else data


def _run(claim: Claim) -> Trial | str:
    try:
        turns.refuse_beside_a_job()
        return claim.run()
    except GradkitError as error:
        return str(error)
    except BaseException as error:  # noqa: BLE001  # a library that has changed, an interrupt: told, not raised in a click
        return f"{type(error).__name__}: {error}".removesuffix(": ")


def _kept(ids: tuple[str, ...]) -> dict[str, str]:
    try:
        kept = json.loads(settings.remembered(PROGRESS) or "{}")
    except (ValueError, RecursionError):
        return {}
    known = kept.items() if isinstance(kept, dict) else ()
    return {name: guess for name, guess in known if name in ids and guess in GUESSES}
