"""docs/api.md and docs/api.zh.md: what a program may import, from the docstrings.

python tools/api.py            write them
python tools/api.py --check    exit with 1 if either is out of date

It reads signatures with ``inspect`` and turns the sections of a docstring (Args, Attributes, Returns, Raises, Example)
into Markdown, which code hosts show as it is; a documentation generator would give HTML, and a site to publish it on.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[1]
sys.path.insert(0, str(REPO))

PAGES = {"en": REPO / "docs" / "api.md", "zh": REPO / "docs" / "api.zh.md"}
PUBLIC: dict[tuple[str, str], tuple[str, ...]] = {
    ("Diagnose", "诊断"): ("gradkit.diagnose", "gradkit.types.Report"),
    ("Watch a program that trains", "监看正在训练的程序"): (
        "gradkit.explain", "gradkit.watch", "gradkit.types.Watch", "gradkit.types.Explanation", "gradkit.callback",
    ),
    ("What a report is made of", "报告由什么组成"): (
        "gradkit.types.Finding", "gradkit.types.Location", "gradkit.types.Note", "gradkit.types.Harmless",
        "gradkit.types.Parameter", "gradkit.types.LossTerm",
        "gradkit.types.Check", "gradkit.types.Share", "gradkit.types.Untried",
    ),
    ("Check in a CI", "在 CI 中检查"): (
        "gradkit.verify", "gradkit.types.Verification", "gradkit.scan", "gradkit.types.Scan",
        "gradkit.types.Judgement", "gradkit.types.Site", "gradkit.types.Skipped", "gradkit.testing.assert_learns",
    ),
    ("Load what you have", "载入手头已有的东西"): (
        "gradkit.load.Step", "gradkit.load.from_objects", "gradkit.load.from_step", "gradkit.load.from_spec",
        "gradkit.teaching.examples.from_builtin",
    ),
    ("In a notebook", "在 notebook 中"): ("gradkit.panel", "gradkit.quiz"),
    ("Guides and beliefs", "指南与说法"): (
        "gradkit.causes", "gradkit.guide", "gradkit.types.Guide", "gradkit.types.GuideStep", "gradkit.claims",
        "gradkit.claim", "gradkit.types.Claim", "gradkit.judge", "gradkit.types.Trial",
    ),
    ("Language and errors", "语言与错误"): ("gradkit.language", "gradkit.GradkitError"),
}  # fmt: skip
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):\n", re.MULTILINE)


def fresh(page: str, language: str) -> str:
    """A page with what stands between ``<!-- api -->`` and ``<!-- end -->`` written anew.

    Raises:
        ValueError: the place is not marked.
    """
    head, mark, rest = page.partition("<!-- api -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    if not mark or not end:
        raise ValueError("no place marked api")
    at = list(PAGES).index(language)
    parts = [f"## {title[at]}\n\n{''.join(map(entry, names))}" for title, names in PUBLIC.items()]
    return f"{head}{mark}{''.join(parts)}{end}{tail}"


def entry(name: str) -> str:
    """One function or class, with its public methods and properties.

    Raises:
        AttributeError: there is nothing of that name.
    """
    owner, _, word = name.rpartition(".")
    thing = getattr(importlib.import_module(owner), word)
    text = f"### `{name}`\n\n{_fence(_signature(word, thing))}{_text(thing)}"
    for member, value in vars(thing).items() if inspect.isclass(thing) else ():
        got = value.fget if isinstance(value, property) else value
        if member.startswith("_") or not inspect.isfunction(got) or not got.__doc__:
            continue
        head = f"#### `{word}.{member}`\n\n"
        text += head + ("" if isinstance(value, property) else _fence(_signature(member, got))) + _text(got)
    return text


def _signature(name: str, thing: Any) -> str:
    if dataclasses.is_dataclass(thing):
        return f"class {name}"
    signature = inspect.signature(thing)
    told = [one for one in signature.parameters.values() if one.name != "self"]
    line = f"{name}{signature.replace(parameters=told)}".replace("'", "")
    if len(line) <= 100:
        return line
    star = next((i for i, one in enumerate(told) if one.kind is inspect.Parameter.KEYWORD_ONLY), None)
    listed = [str(one).replace("'", "") for one in told]
    if star is not None:
        listed.insert(star, "*")
    return f"{name}(\n" + "".join(f"    {one},\n" for one in listed) + f"){line.rpartition(')')[2]}"


def _fence(code: str) -> str:
    return f"```python\n{code}\n```\n\n"


def _text(thing: Any) -> str:
    """A docstring as Markdown."""
    parts = _SECTION.split(inspect.cleandoc(thing.__doc__ or ""))
    text = f"{_inline(parts[0]).strip()}\n\n"
    for title, indented in zip(parts[1::2], parts[2::2], strict=True):
        body = textwrap.dedent(indented).strip("\n")
        if title == "Example":
            text += _fence(body)
        elif title == "Returns":
            text += f"**Returns:** {' '.join(_inline(body).split())}\n\n"
        else:
            text += f"**{title}:**\n\n" + "".join(f"- {one}\n" for one in _items(body)) + "\n"
    return text


def _items(body: str) -> Iterator[str]:
    """``name: text`` items; lines that are indented go on with the one before."""
    for item in re.split(r"\n(?=\S)", body):
        name, colon, text = item.partition(":")
        plain = " ".join(_inline(text if colon else item).split())
        yield f"`{name}`: {plain}" if colon else plain


def _inline(text: str) -> str:
    return re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`")


def main() -> int:
    """Write both pages, or compare them."""
    check, stale = "--check" in sys.argv, 0
    for language, path in PAGES.items():
        page = path.read_text(encoding="utf-8")
        if (new := fresh(page, language)) != page:
            stale += 1
            print(f"{path.name} {'is out of date: python tools/api.py' if check else 'written'}")
            if not check:
                path.write_text(new, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
