"""Guides: for each cause six steps in two languages, with code that is pulled out of a program that runs.

``guides/<cause>/{case.py,en.md,zh.md}``: the text holds no code, only directives on lines of their own:
``{{code wrong}}`` (a region of ``case.py``), ``{{diff wrong fixed}}`` (how one region becomes another) and
``{{experiment name}}`` (the function ``experiment_name`` holds the claim above it).
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
import textwrap
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType

from gradkit import i18n, paired
from gradkit.errors import GradkitError

STEPS = ("symptom", "why", "see", "fix", "verify", "not_this")

_CUT = re.compile(r"\s*# CUT$")
_MARK = re.compile(r"^\s*# \[(\w+)\]$")
_DIRECTIVE = re.compile(r"^\{\{(\w+) ([\w ]+)\}\}$", re.MULTILINE)


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


@functools.cache
def causes() -> tuple[str, ...]:
    """The causes that have a guide, in alphabetical order.

    Example:
        >>> "detach" in causes()
        True
    """
    return tuple(sorted(entry.name for entry in _root().iterdir() if (entry / "case.py").is_file()))


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
    facts, body = paired.front_matter((_folder(cause) / f"{language}.md").read_text(encoding="utf-8"))
    steps = tuple(GuideStep(step, title, _with_code(cause, language, text)) for step, title, text in paired.parts(body))
    return Guide(cause, language, facts["title"], facts["summary"], steps)


def _with_code(cause: str, language: str, text: str) -> str:
    def block(match: re.Match[str]) -> str:
        kind, names = match[1], match[2].split()
        if kind == "code":
            return _fence("python", region(cause, names[0]))
        if kind == "diff":
            return _fence("diff", _diff(region(cause, names[0]), region(cause, names[1])))
        name = f"experiment_{names[0]}"
        checked = i18n.words("guide.checked_by", language, name=name)
        return f"{checked}\n\n" + _fence("python proof", _experiment(cause, name))

    return _DIRECTIVE.sub(block, text)


def _fence(info: str, code: str) -> str:
    return f"```{info}\n{code}\n```"


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=99, lineterm="")
    return "\n".join(list(lines)[3:])


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


def region(cause: str, name: str) -> str:
    """The code between ``# [name]`` and ``# [end]`` of the cause's program: dedented, without its ``# CUT`` marks.

    Raises:
        GradkitError: ``no_such_guide``, ``no_such_region``.

    Example:
        >>> ".detach()" in region("detach", "wrong")
        True
    """
    lines = _lines(cause)
    marks = [(number, mark[1]) for number, line in enumerate(lines) if (mark := _MARK.match(line))]
    for (start, opened), (stop, _) in itertools.pairwise(marks):
        if opened == name:
            return _shown(lines[start + 1 : stop])
    raise GradkitError("no_such_region", cause=cause, region=name)


@functools.cache
def _experiment(cause: str, function: str) -> str:
    found = paired.function(_lines(cause), function)
    if not found:
        raise GradkitError("no_such_region", cause=cause, region=function)
    return _shown(found)


def _shown(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(_CUT.sub("", line) for line in lines if not _MARK.match(line))).strip("\n")


def cut_lines(cause: str) -> frozenset[int]:
    """The lines of the cause's program, counted from 1, that a right diagnosis names.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> len(cut_lines("detach"))
        1
    """
    return frozenset(number for number, line in enumerate(_lines(cause), 1) if _CUT.search(line))


def load_case(cause: str) -> ModuleType:
    """The cause's program as a module: ``make()`` is wrong, ``make_fixed()`` cured; each returns ``(model, step)``.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> model, step = load_case("detach").make()
        >>> step().requires_grad
        True
    """
    return paired.load(_folder(cause) / "case.py", f"gradkit.guides.{cause}.case")


def _lines(cause: str) -> list[str]:
    return (_folder(cause) / "case.py").read_text(encoding="utf-8").splitlines()


def _folder(cause: str) -> Path:
    if cause not in causes():
        raise GradkitError("no_such_guide", cause=cause, known=", ".join(causes()))
    return _root() / cause


def _root() -> Path:
    return Path(str(resources.files("gradkit").joinpath("guides")))
