"""What a report says, line by line, before it becomes text or HTML: both are written from these records."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gradkit.core import causes, package, printable
from gradkit.core.i18n import has, words
from gradkit.core.records import (
    BEHIND,
    CURES,
    OF_RANKS,
    TIED,
    UNTRIED,
    WITHHELD,
    Change,
    ChangeTried,
    Finding,
    FrozenAt,
    Harmless,
    Location,
    Meant,
    Note,
    Origin,
    Parameter,
    Stretch,
)  # fmt: skip
from gradkit.report.picture.outline import lineage
from gradkit.source import frames, imported

TERM, UNADDED = "term", "unadded"
_OTHER_WAYS = ("anew", "and_now", "once", "frees")  # their help says something else than what is tried
_EXAMPLES = str(package.FOLDER / "cases") + os.sep
MOST_NAMES, MOST_LETTERS = 4, 150
TAKES = ("loses", "zero", "turns", "term", "reaches")
"""Why a change is withheld that takes its gradient from one parameter to give it to another."""


@dataclass(frozen=True)
class CodeLine:
    """A line of the user's code. ``start`` and ``end`` are the columns of the carets under it (0: none), ``label`` what
    stands beside them; ``sign`` is ``"-"`` or ``"+"`` in a difference, else ``""``."""

    number: int
    text: str
    start: int = 0
    end: int = 0
    label: str = ""
    sign: str = ""


@dataclass(frozen=True)
class Section:
    """One finding, ready to be written down.

    Attributes:
        title: the sentence about the cause.
        place: ``file:line:column``, with the function and its caller.
        at: the same for what opens it; None if the line is not known.
        code: the frame around the line.
        facts: (name, sentence) pairs: what starves, how sure, what the rerun showed.
        notes: (sentence, place, code) of every other line that takes part.
        notes_at: the places of these notes, in that order.
        help: what to do; ``change`` shows it on the user's own lines where that can be derived.
    """

    cause: str
    title: str
    place: str
    code: tuple[CodeLine, ...]
    facts: tuple[tuple[str, str], ...]
    notes: tuple[tuple[str, str, tuple[CodeLine, ...]], ...]
    help: str
    change: tuple[CodeLine, ...]
    at: Location | None = None
    notes_at: tuple[Location | None, ...] = ()


def section(finding: Finding, total: int, trainable_numel: int) -> Section:
    """Lay one finding out. ``total`` and ``trainable_numel``: parameters that should train, and their elements."""
    spot, notes = finding.location, [note for note in finding.notes if note.kind != "called_by"]
    n = len(finding.parameters)
    facts = {"n": n, "call": finding.call, "total": total, **_shown({"via": finding.library, **finding.facts})}
    inside = finding.facts.get("inside", "")
    title = words(_key(finding, "title"), **facts)
    label = words("library.label" if inside else _key(finding, "label"), **facts)
    return Section(
        cause=finding.cause,
        title=words("library.title", title=title, package=inside) if inside else title,
        place=_place(finding),
        code=frame(spot, label) if spot is not None else (),
        facts=(*_facts(finding, trainable_numel), *_whose(finding)),
        notes=tuple(map(_note, notes)),
        help=_marked(finding, words(_help(finding), **facts)),
        change=tuple(CodeLine(c.number, printable.line(c.text)[0], sign=c.sign) for c in offered(finding)),
        at=spot,
        notes_at=tuple(note.location for note in notes),
    )


def offered(finding: Finding) -> tuple[Change, ...]:
    """The change that was tried and cures, as long as the file is what it was made from."""
    tried, spot = finding.tried, finding.location
    stands = tried is not None and spot is not None and imported.stands_as_imported(spot)
    return tried.changes if tried is not None and stands else ()


def _whose(finding: Finding) -> list[tuple[str, str]]:
    """Where to change a built-in example: its lines are in a file that is not the person's."""
    spot = finding.location
    ours = spot is not None and spot.file.startswith(_EXAMPLES)
    return [(words("report.file"), words("report.of_gradkit"))] if ours and offered(finding) else []


def _key(finding: Finding, part: str) -> str:
    """The sentence of a cause for its ``title``, ``label`` or ``help``: the one of the variant, if there is such."""
    plain = f"cause.{finding.cause}.{part}"
    worded = causes.cause(finding.cause).variants
    variants = (finding.variant, "library" if finding.library else "")
    return next((key for v in variants if v in worded and has(key := f"{plain}_{v}")), plain)


def frame(spot: Location, label: str, around: int = 1) -> tuple[CodeLine, ...]:
    """The line of ``spot`` with the lines next to it, carets under the expression."""
    if not spot.text:
        return ()
    lines, source = [], imported.source_of(spot)
    for number in range(spot.line - around, spot.line + around + 1):
        text = spot.text if number == spot.line else source.line(number) if source is not None else ""
        if number == spot.line:
            end = max(spot.end_column, spot.column + 1)
            lines.append(CodeLine(number, *printable.line(text, spot.column, end), label))
        elif number > 0 and text.strip():
            lines.append(CodeLine(number, printable.line(text)[0]))
    return tuple(lines)


def shown_path(file: str) -> str:
    """A path as a person would write it: relative to the current folder if inside it; a notebook cell by its number."""
    if frames.is_cell(file):
        return frames.cell_name(file)
    relative = (
        os.path.relpath(file)
        if os.path.isabs(file) and os.path.splitdrive(file)[0] == os.path.splitdrive(os.getcwd())[0]
        else file
    )
    return printable.name(relative if not relative.startswith("..") else file, printable.FACT)


def shown_place(spot: Location) -> str:
    """``train.py:41:17``."""
    return f"{shown_path(spot.file)}:{spot.line}:{spot.column}"


def _place(finding: Finding) -> str:
    spot = finding.location
    if spot is None:
        return words("report.no_line")
    place = shown_place(spot)
    if spot.function and spot.function != "<module>":
        place = words("report.in_function", place=place, function=printable.name(spot.function))
    caller = next((n.location for n in finding.notes if n.kind == "called_by" and n.location), None)
    if caller is not None:
        function = (
            printable.name(caller.function) if caller.function not in ("", "<module>") else shown_path(caller.file)
        )
        at = f"{os.path.basename(shown_path(caller.file))}:{caller.line}"
        place = words("report.called_by", place=place, function=function, at=at)
    return place


def _facts(finding: Finding, trainable_numel: int) -> list[tuple[str, str]]:
    rows = []
    if finding.parameters:
        size = f"{finding.numel:,}"
        share = "every" if finding.numel == trainable_numel else "of" if finding.numel < trainable_numel else "all"
        share = share if finding.numel else "unknown"  # made by the step: the model did not have them yet
        arrives = causes.cause(finding.cause).arrives or is_about_a_term(finding)
        name = "parameters" if arrives else "starved"
        who = {"names": _names(finding.parameters), "size": size, "total": f"{trainable_numel:,}"}
        rows.append((name, words(f"report.starved_{share}", **who)))
    if TIED in finding.facts:
        rows.append((TIED, printable.name(finding.facts[TIED], printable.LINE)))
    if finding.module:
        rows.append(("module", printable.name(finding.module)))
    runs = "_runs" if finding.revived and finding.facts.get("error") else ""
    set_of = {"": "", "1": "together"}.get(finding.facts.get("together", ""), "frozen")
    after = BEHIND if BEHIND in finding.facts and finding.doubt in ("", BEHIND) else ""
    doubt = "term" if is_of_the_loss(finding) else after or set_of or finding.doubt
    why = f"proof.{finding.proof}_{doubt}"
    key = why if has(why) else f"proof.{finding.proof}{runs}"
    facts = {"n": len(finding.revived or finding.parameters), "reruns": finding.reruns, **_shown(finding.facts)}
    rows.append((finding.proof, words(key, **facts)))
    rows += [(BEHIND, words("report.behind_error"))] if BEHIND in finding.facts else []
    if finding.alone is not None:
        rows.append(("alone", _alone(len(finding.alone), len(finding.parameters))))
    told = [*_term(finding), *((words(f"report.{name}"), text) for name, text in rows)]
    return [*told, *_tried(finding), *((words(f"report.{name}"), text) for name, text in _aside(finding))]


def _alone(n: int, total: int) -> str:
    """What one member of a set does by itself."""
    return words(f"alone.{'nothing' if not n else 'all' if n >= total else 'some'}", n=n, total=total)


def is_about_a_term(finding: Finding) -> bool:
    """Whether a finding is about one term of the loss: what it names may learn by the others."""
    return TERM in finding.facts


def is_of_the_loss(finding: Finding) -> bool:
    """Whether a finding is about a term that the loss takes in, and that teaches nothing."""
    return is_about_a_term(finding) and finding.variant != UNADDED


def _term(finding: Finding) -> list[tuple[str, str]]:
    if not is_about_a_term(finding):
        return []
    name = printable.shortened(finding.facts[TERM]) or words("terms.unnamed")
    key = "terms.about" if finding.parameters else "terms.about_none"
    key = "terms.about_unadded" if finding.variant == UNADDED else key
    return [(words("terms.fact"), words(key, term=name, n=len(finding.parameters)))]


def _aside(finding: Finding) -> list[tuple[str, str]]:
    """What is to be known of a finding besides: the error, and files that were changed."""
    rows = []
    if finding.facts.get("error"):
        rows.append(("error", printable.escaped(printable.shortened(finding.facts["error"]))))
    changed = [spot for spot in (finding.location, *finding.also) if spot is not None and spot.changed]
    if changed:
        files = dict.fromkeys(shown_path(spot.file) for spot in changed)
        key = "report.changed_shown" if all(spot.text for spot in changed) else "report.changed_hidden"
        rows.append(("changed", words(key, files=", ".join(files))))
    return rows


def _tried(finding: Finding) -> list[tuple[str, str]]:
    """What came of trying the change, and of the other way that there is."""
    one = finding.tried
    if one is None:
        return []
    cures = f"tried.{one.outcome}_{one.why}" if one.outcome == CURES and one.why else f"tried.{one.outcome}"
    told = [words(cures, n=len(one.gained), steps=one.steps, what=_way(one), why=_why(one))]
    if one.other is not None and one.other.outcome != UNTRIED:
        why = words("tried.other_cures") if one.other.outcome == CURES else _why(one.other)
        told.append(words("tried.other", what=_way(one.other), why=why))
    return [(words("tried.name"), text) for text in told]


def _stays(finding: Finding) -> bool:
    """Whether to undo the line would take from others what it gives."""
    one = finding.tried
    return one is not None and one.outcome == WITHHELD and one.why in TAKES and not finding.variant


def _help(finding: Finding) -> str:
    """The sentence that tells what to do: of a cut in a library, what to do on the user's own line."""
    if OF_RANKS in finding.facts:
        return "ranks.help"
    if _stays(finding):
        return "tried.help"
    if _would_be_kept(finding):
        return "tried.help_kept"
    if not finding.facts.get("package"):
        return _key(finding, "help")
    advice = f"library.help_{finding.facts.get('advice', '')}"
    return advice if has(advice) else "library.help"


def _would_be_kept(finding: Finding) -> bool:
    """Whether what is to be taken out of a line keeps something that is stored from holding on to its history."""
    one = finding.tried
    word = bool(causes.cause(finding.cause).word) and not finding.variant
    return word and one is not None and one.outcome == WITHHELD and one.why in ("keeps", "grows")


def _marked(finding: Finding, said: str) -> str:
    """What to do, marked as no more than advice where no change is offered: not tried, or tried and refused."""
    one = finding.tried
    if offered(finding) or (one is not None and one.outcome != WITHHELD):
        return said
    other = one is None or _stays(finding) or _would_be_kept(finding) or finding.variant in _OTHER_WAYS
    return words("tried.mark_untried" if other else "tried.mark_refused", help=said)


def _way(one: ChangeTried) -> str:
    return words(f"tried.of.{one.kind or 'any'}")


def _why(one: ChangeTried) -> str:
    if one.outcome not in (WITHHELD, UNTRIED):
        return ""
    return words(
        f"tried.why.{one.why}", names=_names(one.harmed), error=printable.shortened(one.facts.get("error", ""))
    )


def _names(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    shown = _few([printable.name(one) for one in names])
    joined, left = ", ".join(shown), len(names) - len(shown)
    return words("report.and_more", names=joined, n=left) if left > 0 else joined


def _by_part(names: Sequence[str], every: Iterable[str]) -> Sequence[str]:
    """Some parameters' names; where they are too many to be shown, those of the largest parts of which they are all.

    Args:
        every: the names of all parameters.

    Example:
        >>> every = [f"{part}.{i}.weight" for part in ("body", "head") for i in range(5)]
        >>> _by_part(every[:6], every), _by_part(every[:2], every)
        (['body.*', 'head.0.weight'], ['body.0.weight', 'body.1.weight'])
    """
    if len(_few(names)) == len(names):
        return names
    all_in, mine_in = (Counter(path for name in some for path in lineage(name)[1:-1]) for some in (every, names))
    whole = {path for path, n in mine_in.items() if 1 < n == all_in[path]}
    parts = ((next((path for path in lineage(name)[1:-1] if path in whole), ""), name) for name in names)
    return list(dict.fromkeys(f"{part}.*" if part else name for part, name in parts))


def _few(names: Sequence[str]) -> tuple[str, ...]:
    """The first names, as many as can be taken in at a glance."""
    fits = [i for i in range(1, MOST_NAMES + 1) if len(", ".join(names[:i])) <= MOST_LETTERS]
    return tuple(names[: max(fits, default=1)])


def _note(note: Note) -> tuple[str, str, tuple[CodeLine, ...]]:
    text = words(f"note.{note.kind}", **_shown(note.facts))
    if "alone" in note.facts:
        text = words("alone.noted", text=text, alone=_alone(int(note.facts["alone"]), int(note.facts["total"])))
    if note.location is None:
        return text, "", ()
    return text, shown_place(note.location), frame(note.location, "", 0)


def aside(one: Harmless) -> tuple[str, str]:
    """Place and sentence of what was looked at and found harmless."""
    place = shown_place(one.location).rsplit(":", 1)[0]
    what = words(f"harmless.of_{one.kind}", call=one.call)
    return place, words("report.told", name=what, text=words(f"harmless.{one.why}"))


def origin(of: Origin) -> tuple[str, ...]:
    """What was run again, as one sentence, and one for each way in which that was not what the program had run.

    Example:
        >>> origin(Origin("train.py", "fit", "loop", 39, 40, 43, reproduced=True))[0].split(";")[0]
        'gradkit ran one pass of the loop in line 39 again (lines 40 to 43 of train.py)'
    """
    facts = {"function": printable.name(of.function), "loop": of.loop_line}
    stretches = [_stretch(one) for one in (*of.before, Stretch(of.file, of.first, of.last))]
    lines = functools.reduce(lambda before, then: words("origin.in_turn", before=before, then=then), stretches)
    came = "same" if of.reproduced else "other"
    key = f"origin.{of.kind}" if of.kind else "origin.nothing"
    result = words(f"origin.{'silent' if of.silent else 'raised'}_{came}")
    said = words(key, lines=lines, result=result, **facts)
    return (said, *map(_caveat, of.caveats))


def _caveat(note: Note) -> str:
    """How a rerun differs; where a further run was refused, with the reason."""
    facts = _shown(note.facts)
    if "reason" in facts:
        facts["reason"] = words(f"origin.refused.{facts['reason']}", **facts)
    return words(f"origin.caveat.{note.kind}", **facts)


def _stretch(of: Stretch) -> str:
    return words("origin.lines", n=of.last - of.first + 1, first=of.first, last=of.last, file=shown_path(of.file))


def meant(one: Meant) -> tuple[str, ...]:
    """By what it is known that some parameters are not to learn; ``()`` if none are left aside."""
    said = []
    if one.apart:
        said.append(words("meant.optimizer", n=len(one.apart), optimizer=one.optimizer, names=_names(one.apart)))
    if one.copies:
        said.append(words("meant.copies", n=len(one.copies), names=_names(one.copies)))
    if one.without_influence:
        said.append(words("meant.influence", n=len(one.without_influence), names=_names(one.without_influence)))
    if one.left:
        said.append(words("meant.left", n=len(one.left), names=_names(one.left)))
    if one.unheld:
        said.append(words("meant.unheld", n=len(one.unheld), optimizer=one.optimizer, names=_names(one.unheld)))
    if one.unadded:
        name, *more = [printable.name(entry.name) for entry in one.unadded]
        place = shown_place(one.unadded[0].location).rsplit(":", 1)[0]
        said.append(words("meant.unadded", n=len(one.unadded), name=name, place=place, more=", ".join(more)))
    said += [words("meant.from_before", place=shown_place(spot).rsplit(":", 1)[0]) for spot in one.from_before[:1]]
    return tuple(said)


def frozen(rows: Sequence[Parameter], of: Meant) -> tuple[str, ...]:
    """What is frozen and not expected to learn, and by what that is known; ``()`` if nothing is."""
    still = [row for row in rows if not row.requires_grad and not row.should_train]
    if not still:
        return ()
    nothing_else = not any(row.should_train for row in rows)
    source = of.source if of.source == "should_train" or (of.source == "optimizer" and nothing_else) else "flags"
    size, total = (f"{sum(row.numel for row in some):,}" for some in (still, rows))
    every = [row.name for row in rows]
    names = _names(_by_part([row.name for row in still], every))
    first = words(f"frozen.{source}", names=names, size=size, total=total, optimizer=of.optimizer)
    return (first, *(_frozen_at(one, every) for one in of.frozen[:MOST_NAMES]))


def _frozen_at(one: FrozenAt, every: Sequence[str]) -> str:
    """Which line froze which parameters, and on which condition."""
    place = shown_place(one.location).rsplit(":", 1)[0]
    facts = {
        "place": place,
        "names": _names(_by_part(one.parameters, every)),
        "condition": printable.escaped(one.condition),
    }
    return words("frozen.at_if" if one.condition else "frozen.at", **facts)


def verdict(
    findings: tuple[Finding, ...], wanted: int, starved: int, backward: bool, error: str, total: int = 1
) -> str:
    """The whole diagnosis in one sentence. ``total``: how many parameters there are."""
    if not findings and not wanted:
        return words("verdict.none_wanted" if total else "verdict.no_parameters", n=total)
    if not findings:
        return words("verdict.healthy", n=wanted)
    first = next((f for f in findings if f.location is not None), findings[0])
    at = shown_place(first.location).rsplit(":", 1)[0] if first.location is not None else ""
    where = words("verdict.line" if at else "verdict.no_line", place=at, cause=first.cause)
    if error:
        raised = printable.name(error.splitlines()[0].split(". ")[0], printable.LINE)
        head = words("verdict.raises" if backward else "verdict.step_raises", error=raised)
    elif not wanted:
        head = words("verdict.nothing")
    elif starved == 0:
        head = words("verdict.term" if is_of_the_loss(first) else "verdict.reached", n=wanted)
    elif not backward:
        head = words("verdict.total", n=wanted)
    elif starved >= wanted:
        head = words("verdict.others", n=wanted)
    else:
        head = words("verdict.partial", n=starved, all=wanted)
    return words("verdict.join", head=head, where=where)


def _shown(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: printable.shortened(value) for name, value in facts.items()}
