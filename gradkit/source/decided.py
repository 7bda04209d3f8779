"""Where a flag that is wrong was decided: by a caller, a default, or what set it on an object or in a table.

A run knows what the flag was when it was read. Where the source holds one line alone that makes it so, that line
decided; where it holds several, or one whose value cannot be read, none is named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.core.trace import Chain
from gradkit.source import came_from, held_flags, helpers, locations, syntax
from gradkit.source.came_from import Given
from gradkit.source.held_flags import Held, bare


@dataclass(frozen=True)
class Decided:
    """Where an argument that is not as it should be was decided.

    Attributes:
        location: the line.
        name: the parameter, attribute or setting that it was left out of, or given for.
        by_default: nobody gives it: the default decides.
        opposite: the argument is ``not name``.
    """

    location: Location
    name: str
    by_default: bool = False
    opposite: bool = False


def decided_at(
    chain: Chain, call: ast.AST | None, name: str, position: int, files: Iterable[str], *, wrong: bool = False
) -> Decided | None:
    """Where a flag that a call hands on is wrong: the line that gives that or leaves it out, or the default.

    Args:
        chain: the frames of the call, and those further out that ran it.
        call: what is called, in the innermost of them.
        name, position: the parameter of what is called, ``"create_graph"`` and 4 of ``torch.autograd.grad``.
        files: the user's: the default is to blame only where no call in them gives the flag.
        wrong: what the flag is and should not be: off, as a rule.

    Returns:
        None where the call itself decides, or where it cannot be told.
    """
    given = syntax.argument(call, name, position)
    if given is None or not chain:
        return None
    value, opposite = bare(given)
    last = list(came_from.handed(chain, value))[-1]
    files = tuple(dict.fromkeys((last.code.co_filename, *files)))
    if last.value is None:
        return _left_out(last, opposite, files, wrong)
    value, turned = bare(last.value)
    opposite = opposite is not turned
    if isinstance(value, ast.Constant):
        where = locations.place(last.code.co_filename, last.value, locations.qualified_name(last.code))
        is_so = _is_so(wrong, value.value, opposite)
        return Decided(where, last.name, opposite=opposite) if last.name and is_so else None
    if isinstance(value, ast.Name):
        return _bound(last, value, opposite, files, wrong)
    return _held(last, value, opposite, files, wrong)


def _is_so(wrong: bool, value: object, opposite: bool) -> bool:
    """Whether a flag is what it should not be, by a value that stands for it or for its opposite."""
    return (bool(value) is not opposite) is wrong


def _bound(last: Given, name: ast.Name, opposite: bool, files: Sequence[str], wrong: bool) -> Decided | None:
    """The statement that gave a variable its value; or, where that is a setting, the line that made it so."""
    statement = came_from.binding(last.chain[0], name.id)
    found = [v for t, v in syntax.pairs(statement) if ast.unparse(t) == name.id] if statement is not None else []
    if statement is None or len(found) != 1:
        return None
    value, turned = bare(found[0])
    if not isinstance(value, ast.Constant):
        return _held(last, value, opposite is not turned, files, wrong)
    if not _is_so(wrong, value.value, opposite is not turned):
        return None
    where = locations.place(last.code.co_filename, statement, locations.qualified_name(last.code))
    return Decided(where, name.id, opposite=opposite)


def _held(last: Given, value: ast.expr, opposite: bool, files: Sequence[str], wrong: bool) -> Decided | None:
    """The one line that makes what an object or a table holds so."""
    setting = held_flags.read(value, locations.qualified_name(last.code))
    return held_at(setting, files, wrong=wrong, opposite=opposite) if setting is not None else None


def spread_at(call: ast.AST | None, name: str, files: Sequence[str], *, wrong: bool = False) -> Decided | None:
    """The one line that makes an entry wrong of what a call spreads out: ``checkpoint(f, x, **self.options)``.

    Args:
        call, name, files, wrong: as of :func:`decided_at`.
    """
    spread = isinstance(call, ast.Call) and any(one.arg is None for one in call.keywords)
    return held_at(Held(name, key=True), files, wrong=wrong) if spread else None


def held_at(setting: Held, files: Sequence[str], *, wrong: bool = False, opposite: bool = False) -> Decided | None:
    """The one line that makes a flag wrong which an object or a table holds; None where there are several, or none.

    Args:
        opposite: what is asked about is ``not`` the flag.
    """
    ends = held_flags.ends(setting, files)
    so = [one for one in ends or () if _is_so(wrong, one.is_on, opposite is not one.turned)]
    lines = {(one.location.file, one.location.line): one for one in so}
    if len(lines) != 1:
        return None
    (end,) = lines.values()
    return Decided(end.location, end.name, end.by_default, opposite is not end.turned)


def _left_out(last: Given, opposite: bool, files: Sequence[str], wrong: bool) -> Decided | None:
    """The call that leaves a parameter out; where every call does, its default."""
    call = locations.node_at(last.chain[0])
    default, turned = bare(last.default) if last.default is not None else (None, False)
    opposite = opposite is not turned
    if not isinstance(call, ast.Call) or not isinstance(default, ast.Constant):
        return None
    if not _is_so(wrong, default.value, opposite):
        return None
    called = syntax.call_name(call)
    owners = [one for one in helpers.named(called, files) if last.name in syntax.parameters(one.node)]
    calls = (node for one in files for node in syntax.nodes(one) if isinstance(node, ast.Call))
    same = [one for one in calls if syntax.call_name(one) == called]
    if len(owners) != 1 or any(held_flags.gives(one, last.name, owners[0].node) for one in same):
        return Decided(locations.locate(last.chain[0], whole=True), last.name, opposite=opposite)
    where = locations.place(owners[0].file, last.default or default, owners[0].name)
    return Decided(where, last.name, by_default=True, opposite=opposite)
