"""Guides: for each cause six steps in two languages, with code that is pulled out of a program that runs.

``guides/<cause>/{case.py,en.md,zh.md}``: the text holds no code, only directives on lines of their own:
``{{code wrong}}`` (a region of ``case.py``), ``{{diff wrong fixed}}`` (how one region becomes another) and
``{{experiment name}}`` (the function ``experiment_name`` holds the claim above it).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

from gradkit import beliefs, i18n, paired
from gradkit.casefiles import definition, difference, folder, region
from gradkit.errors import GradkitError

STEPS = ("symptom", "why", "see", "fix", "verify", "not_this")

DIRECTIVE = re.compile(r"^\{\{(\w+) ([\w ]+)\}\}$", re.MULTILINE)


@dataclass(frozen=True)
class GuideStep:
    """One step of a guide.

    Attributes:
        id: one of ``STEPS``.
        title: its heading, in the guide's language.
        markdown: its body in CommonMark without raw HTML. Code stands in fences whose info string is ``python``,
            ``diff`` or ``python proof`` (an experiment: a page may fold it away).
    """

    id: str
    title: str
    markdown: str


@dataclass(frozen=True)
class Guide:
    """What to tell a person whose gradient was lost by ``cause``. ``language`` is ``"en"`` or ``"zh"``."""

    cause: str
    language: str
    title: str
    summary: str
    steps: tuple[GuideStep, ...]


def guide(cause: str, language: str | None = None) -> Guide:
    """The guide for ``cause``.

    Args:
        cause: a cause id, as in ``Finding.cause``.
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Raises:
        GradkitError: ``no_such_guide``, ``unknown_language``.

    Example:
        >>> [step.id for step in guide("detach", "en").steps]
        ['symptom', 'why', 'see', 'fix', 'verify', 'not_this']
    """
    language = language or i18n.language()
    if language not in i18n.LANGUAGES:
        raise GradkitError("unknown_language", code=language)
    return _read(cause, language)


@functools.cache
def _read(cause: str, language: str) -> Guide:
    bare = outline(cause, language)
    *steps, last = (replace(step, markdown=_with_code(cause, language, step.markdown)) for step in bare.steps)
    last = replace(last, markdown=last.markdown + _related(cause, language))
    return replace(bare, steps=(*steps, last))


def outline(cause: str, language: str) -> Guide:
    """The guide for ``cause`` with its directives still in it, ``{{code wrong}}`` and the like.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> "{{diff wrong fixed}}" in outline("detach", "en").steps[3].markdown
        True
    """
    facts, body = paired.front_matter((folder(cause) / f"{language}.md").read_text(encoding="utf-8"))
    steps = tuple(GuideStep(step, title, text) for step, title, text in paired.parts(body))
    return Guide(cause, language, facts["title"], facts["summary"], steps)


def _with_code(cause: str, language: str, text: str) -> str:
    def block(match: re.Match[str]) -> str:
        kind, names = match[1], match[2].split()
        if kind == "code":
            return _fence("python", region(cause, names[0]))
        if kind == "diff":
            return _fence("diff", difference(cause, *names))
        name = f"experiment_{names[0]}"
        checked = i18n.words("guide.checked_by", language, name=name)
        return f"{checked}\n\n" + _fence("python proof", definition(cause, name))

    return DIRECTIVE.sub(block, text)


def _related(cause: str, language: str) -> str:
    """The beliefs that have to do with the cause, as the end of the last step."""
    told = [
        i18n.words(
            "claims.one_related", language,
            belief=one.belief, verdict=i18n.words(f"claims.verdict.{one.verdict}", language), claim=one.id,
        )
        for one in beliefs.about(cause, language)
    ]  # fmt: skip
    lines = "\n".join(f"- {line}" for line in told)
    return f"\n\n{i18n.words('claims.related', language)}\n\n{lines}" if told else ""


def _fence(info: str, code: str) -> str:
    return f"```{info}\n{code}\n```"


def markdown(guide: Guide) -> str:
    """The whole guide as one CommonMark page.

    Example:
        >>> markdown(guide("detach", "en")).splitlines()[0].startswith("# ")
        True
    """
    page = [f"# {guide.title}", guide.summary]
    for number, step in enumerate(guide.steps, 1):
        facts = {"number": number, "step": i18n.words(f"guide.step.{step.id}", guide.language), "title": step.title}
        page += [i18n.words("guide.heading", guide.language, **facts), step.markdown]
    return "\n\n".join(page) + "\n"
