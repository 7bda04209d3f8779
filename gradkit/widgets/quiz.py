"""The quiz: guess whether a belief is right, run its experiment, see."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import ipywidgets

from gradkit import beliefs, i18n, settings
from gradkit.beliefs import Claim
from gradkit.errors import GradkitError
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.trial import Trial
from gradkit.widgets import quiz_page, turns
from gradkit.widgets.attempt import Attempt
from gradkit.widgets.manners import Manners, style
from gradkit.widgets.markup import code, markdown, phrase
from gradkit.widgets.parts import Column, Press, Row, Say, Segments, show
from gradkit.widgets.sheet import Sheet

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
        self.ids = tuple(one.id for one in beliefs.claims("en"))
        self.guesses = _kept(self.ids)
        self._seen: dict[str, Trial | str] = {}
        self.number = next((n for n, name in enumerate(self.ids) if name not in self.guesses), 0)
        self.manners = Manners("quiz.region")
        self.score, self.board = ipywidgets.HTML(), Sheet(lambda name: self.go(self.ids.index(name)))
        self.question, self.verdict, self.answer, self.attempt = (
            ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML(), Attempt(),
        )  # fmt: skip
        self.buttons = {name: Press(f"quiz.guess.{name}", functools.partial(self.guess, name)) for name in GUESSES}
        self.back = Press("quiz.back", lambda: self.go(self.number - 1), look="gkq-back")
        self.next = Press("quiz.next", lambda: self.go(self.number + 1), look="gkp-primary gkq-next")
        self.again = Press("quiz.again", self.start_over, look="gkp-small gkq-again")
        look = ipywidgets.HTML(style() + f"<style>{_CSS.read_text(encoding='utf-8')}</style>")
        for unseen in (look, self.manners):
            show(unseen, False)
        guess = Row(Say("quiz.ask", look="gkq-ask"), *self.buttons.values(), look="gkq-guess")
        card = Column(self.question, guess, self.verdict, self.answer, self.attempt, Row(self.back, self.next),
                      look="gkp-card gkq-card")  # fmt: skip
        super().__init__(look, self.manners, self._header(), self.board, card)
        self.add_class("gkp")
        self.speak(self.language)

    def _header(self) -> Row:
        self.languages = Segments("panel.language.", i18n.LANGUAGES, look="gkp-languages")
        self.languages.value = self.language
        self.languages.observe(lambda change: self._choose(change["new"]), "value")
        title, tagline = Say("quiz.title", tag="h2", look="gkp-title"), Say("quiz.tagline", tag="p", look="gkp-tagline")
        return Row(Column(title, tagline, Row(self.score, self.again)), self.languages, look="gkp-header")

    @property
    def claim(self) -> Claim:
        """The belief that is open."""
        return beliefs.claim(self.ids[self.number], self.language)

    @property
    def right(self) -> int:
        """How many guesses were right."""
        return sum(self.is_right(name) for name in self.guesses)

    def is_right(self, name: str) -> bool:
        """Whether the guess is the verdict of the experiment: of its run, if it was run, else of its text."""
        seen = self._seen.get(name)
        verdict = seen.verdict if isinstance(seen, Trial) else beliefs.claim(name, "en").verdict
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
        self.language = i18n.language(language)
        self.languages.value = self.language
        super().speak(self.language)
        self._show()

    def _choose(self, language: str) -> None:
        if language != self.language:
            self.speak(i18n.choose(language))

    # -- what is to be seen -------------------------------------------------------------------------------------

    def _show(self) -> None:
        claim, guessed = self.claim, self.guesses.get(self.claim.id)
        facts = {"number": self.number + 1, "total": len(self.ids)}
        topic = escape(self._say(f"claims.topic.{claim.topic}"))
        self.question.value = (
            f'<p class="gkp-quiet">{escape(self._say("quiz.number", **facts))} · {topic}</p>'
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
            self.verdict.value = f'<p class="gkq-verdict" tabindex="-1">{escape(self._say("quiz.running"))}</p>'
            self.answer.value = ""
            self._seen[claim.id] = _run(claim)
        seen = self._seen[claim.id]
        kind = "right" if self.is_right(claim.id) else "wrong"
        self.verdict.value = f'<p class="gkq-verdict gkq-{kind}" tabindex="-1">{escape(self._said())}</p>'
        observed = quiz_page.table(seen, self.language) if isinstance(seen, Trial) else code(seen, "text")
        if isinstance(seen, Trial) and seen.verdict != claim.verdict:
            observed += f"<p>{escape(beliefs.changed(claim, seen))}</p>"
        self.answer.value = (
            f'<div class="gkp-prose">{markdown(claim.answer)}{observed}{quiz_page.explained(claim)}</div>'
        )
        if self.attempt.belief != claim.id:
            self.attempt.show(claim)

    def _said(self) -> str:
        """Whether the guess was right, in a sentence."""
        claim = self.claim
        seen = self._seen.get(claim.id)
        verdict = seen.verdict if isinstance(seen, Trial) else claim.verdict
        facts = {"verdict": self._say(f"claims.verdict.{verdict}")}
        return self._say(f"quiz.{'right' if self.is_right(claim.id) else 'wrong'}", **facts)

    def _count(self) -> None:
        facts = {"right": self.right, "answered": len(self.guesses), "total": len(self.ids)}
        self.score.value = f'<p class="gkq-score">{escape(self._say("quiz.score", **facts))}</p>'
        show(self.again, bool(self.guesses))
        self.board.html = quiz_page.board(self.ids, self._states(), self.number, self.language)

    def _states(self) -> dict[str, str]:
        return {name: "right" if self.is_right(name) else "wrong" for name in self.guesses}

    def _say(self, key: str, **facts: object) -> str:
        return words(key, self.language, **facts)

    def __repr__(self) -> str:
        return f"<gradkit.Quiz: {self.right} of {len(self.guesses)}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live widget; a page that cannot run it shows all beliefs, each with its answer folded away."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, *metadata = bundle if isinstance(bundle, tuple) else (bundle,)
        data = {**(data or {}), "text/plain": self._say("quiz.still"), "text/html": quiz_page.still(self.language)}
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
