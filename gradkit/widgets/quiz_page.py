"""The quiz as HTML: the board of all beliefs, what a run has shown, the explanation, and the page without widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradkit import beliefs
from gradkit.beliefs import Claim
from gradkit.i18n import words
from gradkit.printable import entities as escape
from gradkit.trial import Row, Trial
from gradkit.widgets.markup import markdown, phrase

COLUMNS = ("looked_at", "believed", "seen", "mark")
MARKS = {"open": "", "right": "✓", "wrong": "✗"}


def board(ids: Sequence[str], states: Mapping[str, str], number: int, language: str) -> str:
    """A button for each belief, by topic.

    Args:
        ids: of all beliefs, in the order of the quiz.
        states: ``"right"`` or ``"wrong"`` for each that was answered.
        number: which one is open, counted from 0.
        language: ``"en"`` or ``"zh"``.
    """
    topics: dict[str, list[str]] = {topic: [] for topic in beliefs.TOPICS}
    for n, name in enumerate(ids):
        state = states.get(name, "open")
        topics[beliefs.claim(name, "en").topic].append(_dot(name, n, state, language, now=n == number))
    groups = "".join(
        f'<div class="gkq-group"><span class="gkq-topic">{_say(f"claims.topic.{topic}", language)}</span>'
        f"{''.join(dots)}</div>"
        for topic, dots in topics.items()
    )
    return f'<nav class="gkq-board" aria-label="{_say("quiz.board", language)}">{groups}</nav>'


def _dot(name: str, number: int, state: str, language: str, *, now: bool) -> str:
    label = _say(f"quiz.dot.{state}", language, number=number + 1)
    current = ' aria-current="true"' if now else ""
    return (
        f'<button type="button" class="gkq-dot gkq-{state}" data-press="{name}" aria-label="{label}" title="{label}"'
        f'{current}>{number + 1}<span aria-hidden="true">{MARKS[state]}</span></button>'
    )


def table(seen: Trial, language: str) -> str:
    """What a run has shown: what was looked at, what was believed, what is seen; and the verdict."""
    heads = "".join(f'<th scope="col">{_say(f"quiz.column.{name}", language)}</th>' for name in COLUMNS)
    body = "".join(_row(row, seen.labels.get(row.key, f"`{row.key}`"), language) for row in seen.rows)
    return (
        f'<div class="gkp-scroll" tabindex="0"><table class="gkq-table"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{markdown(seen.summary(language))}"
    )


def _row(row: Row, name: str, language: str) -> str:
    believed = f"<code>{escape(row.believed)}</code>" if row.believed is not None else ""
    kind = "context" if row.believed is None else "as_believed" if row.as_believed else "otherwise"
    return (
        f'<tr class="gkq-{kind}"><th scope="row">{phrase(name)}</th><td>{believed}</td>'
        f"<td><code>{escape(row.seen)}</code></td><td>{_say(f'quiz.mark.{kind}', language)}</td></tr>"
    )


def explained(claim: Claim) -> str:
    """Why it is so, what to do instead, and where it was heard."""
    said = [
        f"<h4>{_say(f'claims.part.{part}', claim.language)}</h4>{markdown(getattr(claim, part))}"
        for part in ("why", "instead")
    ]
    heard = "".join(
        f'<li><a href="{escape(one)}" target="_blank" rel="noopener">{escape(one)}</a></li>' for one in claim.sources
    )
    title = _say("claims.part.sources", claim.language)
    sources = f'<details class="gkp-proof"><summary>{title}</summary><ul>{heard}</ul></details>' if heard else ""
    return "".join(said) + sources


def still(language: str) -> str:
    """All beliefs for a page without widgets: nothing is run, the answers are folded away.

    Example:
        >>> still("en").count("<details>") == len(beliefs.names())
        True
    """
    said = [f'<div lang="{"zh-CN" if language == "zh" else "en"}"><p>{_say("quiz.still", language)}</p>']
    for claim in beliefs.claims(language):
        verdict = _say(f"claims.verdict.{claim.verdict}", language)
        said.append(
            f"<details><summary>{phrase(claim.belief)}</summary>"
            f"<p><strong>{verdict}</strong> {phrase(claim.answer)}</p>"
            f"{markdown(claim.why)}{markdown(claim.instead)}<pre>{escape(claim.code)}</pre></details>"
        )
    return "\n".join([*said, "</div>"])


def _say(key: str, language: str, **facts: object) -> str:
    return escape(words(key, language, **facts))
