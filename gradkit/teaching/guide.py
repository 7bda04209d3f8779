"""Guides: for each cause six steps in two languages, with code that is pulled out of a program that runs.

``guides/<cause>/{case.py,en.md,zh.md}``: the text holds no code, only directives on lines of their own:
``{{code wrong}}`` (a region of ``case.py``), ``{{diff wrong fixed}}`` (how one region becomes another) and
``{{experiment name}}`` (the function ``experiment_name`` holds the claim above it). A region of the program stands
between ``# [name]`` and ``# [end]``; a line that a right diagnosis names ends in ``# CUT``.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from gradkit.core import causes, i18n, package
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.teaching import bilingual, claim

_CUT = re.compile(r"\s*# CUT$")
_MARK = re.compile(r"^\s*# \[(\w+)\]$")


def region(cause: str, name: str) -> str:
    """The code between ``# [name]`` and ``# [end]`` of the cause's program: dedented, without its ``# CUT`` marks.

    Raises:
        GradkitError: ``no_such_guide``, ``no_such_region``.

    Example:
        >>> ".detach()" in region("detach", "wrong")
        True
    """
    lines = _lines(cause)
    first, last = span(lines, name)
    if first > last:
        raise GradkitError("no_such_region", cause=cause, region=name)
    return unmarked(lines[first - 1 : last])


def span(lines: list[str], name: str) -> tuple[int, int]:
    """The first and the last line of the region ``name``, counted from 1; ``(1, 0)`` if there is none.

    Example:
        >>> span(["x = 1", "# [see]", "x", "# [end]"], "see")
        (3, 3)
    """
    marks = [(number, mark[1]) for number, line in enumerate(lines, 1) if (mark := _MARK.match(line))]
    return next(
        ((start + 1, stop - 1) for (start, opened), (stop, _) in itertools.pairwise(marks) if opened == name), (1, 0)
    )


@functools.cache
def definition(cause: str, function: str) -> str:
    """The source of one function of the cause's program.

    Raises:
        GradkitError: ``no_such_guide``, ``no_such_region``.
    """
    found = bilingual.function(_lines(cause), function)
    if not found:
        raise GradkitError("no_such_region", cause=cause, region=function)
    return unmarked(found)


def unmarked(lines: list[str]) -> str:
    """Lines of a program as a reader sees them: dedented, without marks.

    Example:
        >>> unmarked(["    # [wrong]", "    x = x.detach()  # CUT", "    # [end]"])
        'x = x.detach()'
    """
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
    return bilingual.load_paired(guides_folder(cause) / "case.py", f"gradkit.teaching.guides.{cause}.case")


def case_source(cause: str) -> str:
    """The cause's program.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> "def make():" in case_source("detach")
        True
    """
    return (guides_folder(cause) / "case.py").read_text(encoding="utf-8")


def _lines(cause: str) -> list[str]:
    return case_source(cause).splitlines()


def guides_folder(cause: str) -> Path:
    """Where a guide lies.

    Raises:
        GradkitError: ``no_such_guide``.
    """
    return package.FOLDER / "teaching" / "guides" / causes.cause(cause).id


def difference(cause: str, before: str, after: str) -> str:
    """How one region of the cause's program becomes another, as the lines of a diff.

    Raises:
        GradkitError: ``no_such_guide``, ``no_such_region``.
    """
    old, new = (region(cause, name).splitlines() for name in (before, after))
    return "\n".join(list(difflib.unified_diff(old, new, n=99, lineterm=""))[3:])


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
    with speaking(language):
        *steps, last = (replace(step, markdown=_with_code(cause, step.markdown)) for step in bare.steps)
        fix = STEPS.index("fix")
        steps[fix] = replace(steps[fix], markdown=steps[fix].markdown + _variants(cause))
        last = replace(last, markdown=last.markdown + _related(cause))
    return replace(bare, steps=(*steps, last))


def outline(cause: str, language: str) -> Guide:
    """The guide for ``cause`` with its directives still in it, ``{{code wrong}}`` and the like.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> "{{diff wrong fixed}}" in outline("detach", "en").steps[3].markdown
        True
    """
    facts, body = bilingual.front_matter((guides_folder(cause) / f"{language}.md").read_text(encoding="utf-8"))
    steps = tuple(GuideStep(step, title, text) for step, title, text in bilingual.paired_parts(body))
    return Guide(cause, language, facts["title"], facts["summary"], steps)


def _with_code(cause: str, text: str) -> str:
    def block(match: re.Match[str]) -> str:
        kind, names = match[1], match[2].split()
        if kind == "code":
            return _fence("python", region(cause, names[0]))
        if kind == "diff":
            return _fence("diff", difference(cause, *names))
        name = f"experiment_{names[0]}"
        checked = words("guide.checked_by", name=name)
        return f"{checked}\n\n" + _fence("python proof", definition(cause, name))

    return DIRECTIVE.sub(block, text)


def variants(cause: str) -> dict[str, str]:
    """The code of the same cure where a library runs the loop, by the library's name; ``{}`` where it is no other.

    It lies in ``variants.py`` beside the program: of each library a region, and a wrong and a right function that the
    tests run. Its sentence is ``guide.variant.<cause>.<library>``.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> list(variants("idle_optimizer")), variants("data_attr")
        (['lightning', 'accelerate'], {})
    """
    path = guides_folder(cause) / "variants.py"
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    found = {name: span(lines, name) for name in LIBRARIES}
    return {name: unmarked(lines[first - 1 : last]) for name, (first, last) in found.items() if first <= last}


LIBRARIES = ("trainer", "lightning", "accelerate", "ddp")


def _variants(cause: str) -> str:
    """How the cure looks elsewhere, as the end of the step that gives it; where it is the same, that."""
    told = [
        f"{words(f'guide.variant.{cause}.{name}')}\n\n{_fence('python', code)}"
        for name, code in variants(cause).items()
    ]
    return "\n\n".join(["", *([words("guide.variant.title"), *told] if told else [words("guide.variant.same")])])


def _related(cause: str) -> str:
    """The beliefs that have to do with the cause, as the end of the last step."""
    told = [
        words("claims.one_related", belief=one.belief, verdict=words(f"claims.verdict.{one.verdict}"), claim=one.id)
        for one in claim.claims_about(cause)
    ]
    lines = "\n".join(f"- {line}" for line in told)
    return f"\n\n{words('claims.related')}\n\n{lines}" if told else ""


def _fence(info: str, code: str) -> str:
    return f"```{info}\n{code}\n```"


def markdown(guide: Guide) -> str:
    """The whole guide as one CommonMark page.

    Example:
        >>> markdown(guide("detach", "en")).splitlines()[0].startswith("# ")
        True
    """
    page = [f"# {guide.title}", guide.summary]
    with speaking(guide.language):
        for number, step in enumerate(guide.steps, 1):
            said = words(f"guide.step.{step.id}")
            page += [words("guide.heading", number=number, step=said, title=step.title), step.markdown]
    return "\n\n".join(page) + "\n"
