"""The report as plain text for a terminal, in the manner of the best compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gradkit.core import printable
from gradkit.core.i18n import columns, words
from gradkit.report.layout import CodeLine, Section


def write(
    sections: Iterable[Section],
    verdict: str,
    summary: str,
    asides: Sequence[tuple[str, str]] = (),
    fit: Callable[[str], str] = printable.fitted,
    table: Sequence[str] = (),
) -> str:
    """The whole report.

    Args:
        asides: place and sentence of what was looked at and found harmless.
        table: the lines of the terms of the loss, with their title.
        fit: makes of a text what can be written where it goes; what stands below one another then still does.
    """
    blocks = ["\n".join(_section(section, fit)) for section in sections]
    lines = [verdict, summary, *table]
    if asides:
        lines += [words("report.harmless"), *(f"  {place}  {sentence}" for place, sentence in asides)]
    return fit(printable.inert("\n\n".join([*blocks, "\n".join(lines)]) + "\n"))


def _section(section: Section, fit: Callable[[str], str]) -> Iterator[str]:
    change = section.change
    numbers = [line.number for line in (*section.code, *change, *(c for note in section.notes for c in note[2]))]
    width = len(str(max(numbers, default=1)))
    pad = " " * width
    yield _told(f"{words('report.error')}[{section.cause}]", section.title)
    yield f"{pad}--> {section.place}"
    if section.code:
        yield f"{pad} |"
        yield from _frame(section.code, width, fit)
        yield f"{pad} |"
    for name, text in section.facts:
        yield f"{pad} = {_told(name, text)}"
    for text, place, code in section.notes:
        yield _told(words("report.note"), text)
        yield f"{pad}--> {place}"
        yield from _frame(code, width, fit)
    yield _told(words("report.help"), section.help)
    if change:
        yield f"{pad} |"
        for line in change:
            yield f"{line.number:>{width}} {line.sign} {line.text.expandtabs(4)}".rstrip()
        yield f"{pad} |"
    yield words("report.more", command=f"gradkit guide {section.cause}")


def _frame(code: Iterable[CodeLine], width: int, fit: Callable[[str], str]) -> Iterator[str]:
    for line in code:
        yield f"{line.number:>{width}} | {fit(line.text).expandtabs(4)}".rstrip()
        if line.start:
            before = columns(fit(line.text[: line.start - 1]).expandtabs(4))
            under = columns(fit(line.text[: line.end - 1]).expandtabs(4)) - before
            yield f"{' ' * width} | {' ' * before}{'^' * max(under, 1)} {line.label}".rstrip()


def _told(name: str, text: str) -> str:
    """``name: text``, with the colon of the language."""
    return words("report.told", name=name, text=text)
