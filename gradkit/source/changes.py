"""The change to a user's own lines that a cause and a line suggest: read from source, never run.

Whether one cures is for ``diagnosis.experiments.judge`` to say. Where several would do, they come with the one first
that leaves most as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from gradkit.core import causes
from gradkit.core.records import STRAIGHT_THROUGH, Change, Finding, Location
from gradkit.source import imported, rewrites, syntax
from gradkit.source.imported import Source
from gradkit.source.rewrites import Changes

FLAG = "flag"
_LONGEST = 8
STACKED, UNWRAPPED, IN_TORCH, OUT_OF_PLACE, ASSIGNED = "stacked", "unwrapped", "in_torch", "out_of_place", "assigned"
REWRITES = frozenset((STACKED, UNWRAPPED, IN_TORCH, OUT_OF_PLACE, ASSIGNED))
"""Kinds of changes that write an expression anew: the numbers of both have to be compared."""
_INFERENCE = "torch.inference_mode("


@dataclass(frozen=True)
class Candidate:
    """A change that may cure. ``kind`` is one of those that ``ChangeTried.kind`` names."""

    kind: str
    changes: Changes


class OutdatedError(Exception):
    """A line is not, or no longer, what a change takes it for."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def derive_change(finding: Finding) -> Changes:
    """The plainest change that removes the cut; ``()`` where a person has to decide, or where the file is not what ran.

    Example:
        >>> spot = Location("a.py", 3, 10, 19, "f", "    x = y.detach()", 3)
        >>> [f"{c.sign} {c.text}" for c in derive_change(Finding("detach", spot))]
        ['-     x = y.detach()', '+     x = y']
    """
    found = derive_changes(finding)
    return plainest(found).changes if found else ()


def plainest(several: Sequence[Candidate]) -> Candidate:
    """Of several changes, the one that does nothing but undo the line."""
    return next((one for one in several if one.kind == "word"), several[-1])


def derive_changes(finding: Finding, stays: Container[int] = ()) -> tuple[Candidate, ...]:
    """All changes that may cure, in the order in which they are to be tried.

    Args:
        stays: lines in a block that does not record which are to stay there.
    """
    spot = finding.location
    if spot is None or finding.variant == STRAIGHT_THROUGH or not imported.stands_as_imported(spot):
        return ()
    cause = causes.cause(finding.cause)
    if finding.variant == FLAG:
        found: list[Candidate | None] = [Candidate(FLAG, _flag(spot))]
    elif cause.word:
        beside = [note.location for note in finding.notes if note.kind == "beside" and note.location is not None]
        found = [Candidate("stored", _stored(spot, cause.word)) if not beside else None]
        found.append(Candidate("word", _drop([spot, *beside], cause.word)))
        found.append(Candidate("moved", _moved([spot, *beside], cause.word)))
    elif cause.change == "block" and not spot.text.strip().startswith("@"):
        around = _around(finding, spot) if cause.in_block else spot
        found = [Candidate("narrowed", _narrowed(around, stays)), Candidate("block", _block(around))]
    elif cause.change == "kept":
        found = [Candidate("stored", _stored(spot, "")), Candidate("moved", rewrites.put_detached(spot))]
        found.append(Candidate(ASSIGNED, rewrites.assigned(spot)))
    elif cause.change in REWRITES:
        found = list(_rewritten(cause.change, spot, finding))
    else:
        kind = "decorator" if cause.change == "block" else cause.change
        found = [Candidate(kind, RULES[kind](spot))] if kind in RULES else []
    if cause.change == "block" and _INFERENCE in spot.text:
        found.insert(0, Candidate("no_grad", _replaced(spot, spot.text.replace(_INFERENCE, "torch.no_grad("))))
    return tuple(one for one in found if one is not None and one.changes)


def joined(block: Changes, line: Changes) -> Changes:
    """A block that is taken away and lines that are written anew, as one change; ``()`` if they are not of that kind.

    Example:
        >>> block = Change("-", 1, "with f():"), Change("-", 2, "    a = b"), Change("+", 2, "a = b")
        >>> made = joined(block, (Change("-", 2, "    a = b"), Change("+", 2, "    a = c")))
        >>> [f"{c.sign}{c.text}" for c in made]
        ['-with f():', '-    a = b', '+a = c']
    """
    made, gone = list(block), {change.number for change in block if change.sign == "-"}
    pairs = list(zip(line[::2], line[1::2], strict=False))
    if len(line) % 2 or any((a.sign, b.sign, a.number) != ("-", "+", b.number) for a, b in pairs):
        return ()
    for was, now in pairs:
        found = [i for i, c in enumerate(made) if c.sign == "+" and c.text.strip() == was.text.strip()]
        if was.number not in gone:
            made += [was, now]
        elif len(found) != 1:
            return ()
        else:
            text = made[found[0]].text
            made[found[0]] = Change(
                "+", made[found[0]].number, text[: len(text) - len(text.lstrip())] + now.text.strip()
            )
    return tuple(made)


def applied(text: str, changes: Sequence[Change]) -> str:
    """``text`` with the changes made; each line keeps its own way to end.

    Raises:
        OutdatedError: a line that is to go is another one in this text.

    Example:
        >>> applied("a = 1\\r\\nb = 2\\r\\n", [Change("-", 2, "b = 2"), Change("+", 2, "b = 3")])
        'a = 1\\r\\nb = 3\\r\\n'
    """
    gone = {change.number: change.text for change in changes if change.sign == "-"}
    parts = re.split(r"(\r\n|\r|\n)", text)
    lines = list(zip(parts[::2], [*parts[1::2], ""], strict=True))
    for number, was in gone.items():
        if number > len(lines) or lines[number - 1][0] != was:
            raise OutdatedError(number)
    made: list[str] = []
    for number, (line, end) in enumerate(lines, 1):
        new = [change.text for change in changes if (change.sign, change.number) == ("+", number)]
        if number not in gone:
            new.append(line)
        between = end or (parts[1] if len(parts) > 1 else "\n")  # the last line of all may have no end
        made += [between.join(new) + end] if new else []
    return "".join(made)


# -- an expression ----------------------------------------------------------------------------------------------------


def _rewritten(change: str, spot: Location, finding: Finding) -> Iterator[Candidate]:
    """The ways to write an expression anew that a cause asks for; the plainest comes last."""
    if change == STACKED:
        yield Candidate(STACKED, rewrites.stacked(spot))
        yield Candidate(UNWRAPPED, rewrites.unwrapped(spot))
        yield Candidate(UNWRAPPED, rewrites.uncopied(spot))
    elif change == IN_TORCH:
        kinds = ("comes_back", "used_again")  # from_numpy() is not heard, but what uses its tensor is
        back = [note.location for note in finding.notes if note.kind in kinds and note.location is not None]
        both, alone = rewrites.kept_in_torch(spot, back), rewrites.kept_in_torch(spot)
        yield from (Candidate(IN_TORCH, made) for made in dict.fromkeys((both, alone)))
    elif change == OUT_OF_PLACE and not finding.variant:
        yield Candidate(OUT_OF_PLACE, rewrites.out_of_place(spot))


# -- a word -----------------------------------------------------------------------------------------------------------


_NO_GRAD = re.compile(r"^((?:\.\w+\(\))*)\.requires_grad_\((?:requires_grad=)?False\)")


def _drop(spots: Sequence[Location], word: str) -> Changes:
    """Take a word out of a line, wherever it cuts, with what only a leaf can be told behind it."""
    text = spots[0].text
    for spot in sorted(spots, key=lambda spot: -spot.column):
        before, inside = text[: spot.column - 1], text[spot.column - 1 : spot.end_column - 1]
        if inside != word or not before.strip():
            return ()
        text = before + _NO_GRAD.sub(r"\1", text[spot.end_column - 1 :])
    return _replaced(spots[0], text)


def _replaced(spot: Location, text: str) -> Changes:
    return (Change("-", spot.line, spot.text), Change("+", spot.line, text)) if text != spot.text else ()


def _stored(spot: Location, word: str) -> Changes:
    """Store the value without its history, and hand it on with it: ``self.x = v.detach()``, and ``v`` where
    ``self.x`` was read later in the function.

    Args:
        word: what cuts where the value is stored; ``""`` if nothing does yet.
    """
    source = imported.source_of(spot)
    function = rewrites.function_around(source, spot.line) if source is not None else None
    statement = next((s for s in ast.walk(function) if _stores(s, spot.line)), None) if function is not None else None
    if source is None or function is None or not isinstance(statement, ast.Assign):
        return ()
    target, inner = statement.targets[0], _inner(statement.value, word)
    reads = _reads_after(function, statement, target)
    name = _name_for(target, inner, syntax.names_in(function))
    if inner is None or not name or any(node.lineno != node.end_lineno for node in reads):
        return ()
    named = isinstance(inner, ast.Name)
    if not reads and (word or not named):
        return ()
    text = source.line(statement.lineno)
    indent = text[: statement.col_offset]
    made: list[Change] = []
    if not (word and named):
        first = [] if named else [f"{indent}{name} = {rewrites.text_of(source, inner)}"]
        made = [Change("-", statement.lineno, text)]
        kept = f"{indent}{ast.unparse(target)} = {name}{word or '.detach()'}"
        made += [Change("+", statement.lineno, new) for new in (*first, kept)]
    return (*made, *rewrites.written_anew(source, dict.fromkeys(reads, name)))


def _moved(spots: Sequence[Location], word: str) -> Changes:
    """Take a word out of the line that makes a variable, and detach that where it is stored later in the function."""
    source, dropped = imported.source_of(spots[0]), _drop(spots, word)
    function = rewrites.function_around(source, spots[0].line) if source is not None else None
    if source is None or function is None or not dropped:
        return ()
    here = [
        s for s in ast.walk(function) if isinstance(s, ast.Assign) and s.lineno <= spots[0].line <= (s.end_lineno or 0)
    ]
    made = {n.id for s in here for target in s.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    later = [s for s in ast.walk(function) if rewrites.keeps(s) and s.lineno > spots[0].line]
    names = {n: f"{n.id}.detach()" for s in later for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in made}
    return (*dropped, *rewrites.written_anew(source, names)) if names else ()


def _stores(node: ast.AST, line: int) -> bool:
    """Whether a statement on one line stores a value in an attribute or under a key, and does nothing else."""
    return (
        isinstance(node, ast.Assign) and node.lineno == line == node.end_lineno and len(node.targets) == 1
        and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
    )  # fmt: skip


def _inner(value: ast.expr, word: str) -> ast.expr | None:
    """``v`` of ``v.detach()`` or ``v.data``, None of anything else; the value itself if no word is to go."""
    if not word:
        return value
    node = value.func if isinstance(value, ast.Call) and not value.args and not value.keywords else value
    called = isinstance(value, ast.Call) == word.endswith("()")
    return node.value if called and isinstance(node, ast.Attribute) and f".{node.attr}" == word.rstrip("()") else None


def _reads_after(function: ast.AST, statement: ast.stmt, target: ast.expr) -> list[ast.expr]:
    """Where a function reads what a statement has stored, on the lines behind it."""
    wanted = ast.unparse(target)
    return [
        node for node in ast.walk(function)
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load)
        and node.lineno > statement.lineno and ast.unparse(node) == wanted
    ]  # fmt: skip


def _name_for(target: ast.expr, inner: ast.expr | None, taken: Container[str]) -> str:
    """The variable that holds a value, or one called after the attribute; ``""`` if the function uses that already."""
    if isinstance(inner, ast.Name):
        return inner.id
    name = target.attr.strip("_") if isinstance(target, ast.Attribute) else "value"
    return name if name and name not in taken else ""


# -- a block ----------------------------------------------------------------------------------------------------------


def _block(spot: Location) -> Changes:
    """Take the ``with`` away and pull its body out by one level."""
    return _narrowed(spot, None)


def _narrowed(spot: Location, stays: Container[int] | None) -> Changes:
    """Pull out of a block what is to record; statements on lines that are to stay keep a block of their own."""
    found = _with_at(spot)
    if found is None:
        return ()
    source, node = found
    groups = list(_groups(node, stays or ()))
    if stays is not None and (not any(kept for kept, _ in groups) or all(kept for kept, _ in groups)):
        return ()
    step, lines = node.body[0].col_offset - node.col_offset, _lines_of(node)
    made: list[str] = []
    for kept, (first, last) in groups:
        texts = [source.line(number) for number in range(first, last + 1)]
        made += [spot.text, *texts] if kept else [t[step:] if t[:step].isspace() else t for t in texts]
    gone = [(spot.line, spot.text), *((number, source.line(number)) for number in lines)]
    return (*(Change("-", number, text) for number, text in gone), *(Change("+", lines[-1], text) for text in made))


def _around(finding: Finding, spot: Location) -> Location:
    """Of a finding about a line inside of a block, the line of the block, if that is in the same file."""
    blocks = (note.location for note in finding.notes if note.kind == "unrecorded")
    return next((block for block in blocks if block is not None and block.file == spot.file), spot)


def block_statements(spot: Location) -> tuple[tuple[int, int], ...]:
    """First and last line of every statement in the ``with`` at a line, if that is what ``derive_changes`` changes."""
    found = _with_at(spot)
    return tuple(_spans(found[1])) if found is not None else ()


def _with_at(spot: Location) -> tuple[Source, ast.With] | None:
    source = imported.source_of(spot)
    for node in ast.walk(source.tree) if source is not None and source.tree is not None else ():
        if isinstance(node, ast.With) and node.lineno == spot.line and len(node.items) == 1 and source is not None:
            first, head = node.body[0], node.items[0].context_expr
            short = len(_lines_of(node)) <= _LONGEST and first.col_offset > node.col_offset
            return (source, node) if short and first.lineno > spot.line == head.end_lineno else None
    return None


def _lines_of(node: ast.With) -> range:
    return range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)


def _spans(node: ast.With) -> Iterator[tuple[int, int]]:
    """The lines of each statement, with the comments in front of it."""
    first = node.body[0].lineno
    for statement in node.body:
        last = statement.end_lineno or statement.lineno
        if last >= first:
            yield first, last
            first = last + 1


def _groups(node: ast.With, stays: Container[int]) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Statements that follow one another, and whether they stay in a block."""
    now: tuple[bool, tuple[int, int]] | None = None
    for first, last in _spans(node):
        kept = any(number in stays for number in range(first, last + 1))
        if now is not None and now[0] == kept:
            now = kept, (now[1][0], last)
            continue
        if now is not None:
            yield now
        now = kept, (first, last)
    if now is not None:
        yield now


# -- others -----------------------------------------------------------------------------------------------------------


def _decorator(spot: Location) -> Changes:
    return (Change("-", spot.line, spot.text),) if spot.text.strip().startswith("@") else ()


def _trainable(spot: Location) -> Changes:
    """Add ``is_trainable=True`` to the call that loads the adapter."""
    source = imported.source_of(spot)
    if source is None or source.tree is None:
        return ()
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or node.lineno > spot.line or (node.end_lineno or 0) < spot.line:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("from_pretrained", "load_adapter"):
            end, number = node.end_col_offset or 0, node.end_lineno or spot.line
            text = source.line(number)
            if "Config" in ast.unparse(node.func):
                continue  # peft ignores what is given to that
            given = _flag_given(node)
            if given is None and any(keyword.arg is None for keyword in node.keywords):
                return ()
            if _is_frozen_later(source.tree, node):
                return ()
            if given is not None:
                return _true_for(source.line(given.lineno), given)
            head = text.encode()[: end - 1].decode().rstrip()
            comma = "" if head.endswith((",", "(")) else ","
            gap = " " if head.strip() else ""
            return (
                Change("-", number, text),
                Change("+", number, f"{head}{comma}{gap}is_trainable=True{text.encode()[end - 1 :].decode()}"),
            )
    return ()


_FREEZERS = frozenset(("prepare_model_for_kbit_training", "prepare_model_for_int8_training"))


def _flag_given(call: ast.Call) -> ast.expr | None:
    """What a call that loads an adapter is given for ``is_trainable``, by its name or its place."""
    place = 3 if isinstance(call.func, ast.Attribute) and call.func.attr == "from_pretrained" else 2
    named = next((keyword.value for keyword in call.keywords if keyword.arg == "is_trainable"), None)
    return named or (call.args[place] if len(call.args) > place else None)


def _true_for(line: str, given: ast.expr) -> Changes:
    if not isinstance(given, ast.Constant) or given.value is not False:
        return ()
    text = line.encode()
    new = (text[: given.col_offset] + b"True" + text[given.end_col_offset or 0 :]).decode()
    return Change("-", given.lineno, line), Change("+", given.lineno, new)


def _is_frozen_later(tree: ast.Module, load: ast.Call) -> bool:
    """Whether what a call loads is handed to peft's preparation, which freezes all that there is by then."""
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    helpers = (one for one in ast.walk(tree) if isinstance(one, syntax.FUNCTIONS))
    names = _FREEZERS.union(
        one.name for one in helpers
        if any(isinstance(n, ast.Call) and syntax.call_name(n) in _FREEZERS for n in ast.walk(one))
    )  # fmt: skip
    function = syntax.function_at(tree, load.lineno)
    inside = {id(one) for one in ast.walk(load)}
    return any(
        syntax.call_name(one) in names and id(one) not in inside
        and syntax.function_at(tree, one.lineno) is function
        and (one.lineno > load.lineno or any(part is load for part in ast.walk(one)))
        for one in calls
    )  # fmt: skip


def _flag(spot: Location) -> Changes:
    """Take out a statement that does no more than set ``requires_grad``, where it is not all that its block holds."""
    source = imported.source_of(spot)
    for node in ast.walk(source.tree) if source is not None and source.tree is not None else ():
        parts = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
        bodies = [body for body in parts if isinstance(body, list)]
        for statement in (one for body in bodies if len(body) > 1 for one in body):
            if statement.lineno == statement.end_lineno == spot.line and _sets_flag(statement):
                alone = spot.text.strip().split("#")[0].strip() == ast.unparse(statement)
                return (Change("-", spot.line, spot.text),) if alone else ()
    return ()


def _sets_flag(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return all(isinstance(one, ast.Attribute) and one.attr == "requires_grad" for one in statement.targets)
    called = statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "requires_grad_" and isinstance(called.value, ast.Name)


def _reentrant(spot: Location) -> Changes:
    before, inside = spot.text[: spot.column - 1], spot.text[spot.column - 1 : spot.end_column - 1]
    if inside == "True":
        return _replaced(spot, f"{before}False{spot.text[spot.end_column - 1 :]}")
    return _replaced(spot, spot.text.replace("use_reentrant=True", "use_reentrant=False"))


RULES: dict[str, Callable[[Location], Changes]] = {
    "decorator": _decorator, "trainable": _trainable, "reentrant": _reentrant,
}  # fmt: skip
