"""Optimizers that change nothing as long as a program trains: a learning rate that stays 0, a step that never comes.

Nothing is run again for them: what the program did in all its steps tells more than one step.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradkit.core import introspection
from gradkit.core.records import Finding, Location, Origin, Parameter, Picture
from gradkit.core.trace import Chain
from gradkit.diagnosis.facts.optimizers import gap_of
from gradkit.diagnosis.rules import idle
from gradkit.live import bystanders, plain_names, stack, surroundings, whose
from gradkit.live.candidates import files
from gradkit.live.stack import Point
from gradkit.source import frames, locations, stepping, syntax, units, zeros
from gradkit.state import registered
from gradkit.tracing.after_backward import held_by
from gradkit.witness.deeds import SCHEDULED, Deed
from gradkit.witness.histories import deeds_of

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation

WATCHED = "watched"
BUILT_HERE, SET_HERE = "schedule_built", "rate_set"


def at_rest(optimizer: Optimizer, frame: FrameType) -> Explanation | None:
    """An optimizer whose learning rate has been 0 in every step: built with 0, or kept there.

    Args:
        frame: what called its step.
    """
    points = stack.running(frame)
    near = tuple(locations.qualified_name(one.code) for one in points)
    built, spot, origin, note = gap_of(optimizer, ()), None, None, ""
    if any(group.get("initial_lr", built.settings.get("lr") not in ("0", "0.0")) for group in optimizer.param_groups):
        spot, origin, note = _schedule(optimizer, files(points))
    return _told(idle.at_rest(built, spot, files(points), near, origin, note), optimizer, frame, points)


def waiting(optimizer: Optimizer, names: frozenset[str], frame: FrameType, alone: bool) -> Explanation | None:
    """An optimizer that does not step, although backward fills what it holds; None if the source does not tell why.

    Args:
        names: its names, as variables or attributes.
        frame: what called for a backward, or for another optimizer's step.
        alone: no optimizer has stepped.
    """
    points = stack.running(frame)
    users = [one for one in reversed(points) if frames.is_user_file(one.code.co_filename)]
    chain = tuple((one.code, one.lasti) for one in users)
    held = stepping.held_back(chain, names) if alone else stepping.mistaken(chain, names)
    return _told(idle.never(gap_of(optimizer, ()), held), optimizer, frame, points) if held is not None else None


def _told(finding: Finding, optimizer: Optimizer, frame: FrameType, points: Sequence[Point]) -> Explanation | None:
    from gradkit.live.explain import Explanation
    from gradkit.report.report import Report

    users = [point for point in points if frames.is_user_file(point.code.co_filename)]
    if not users or finding.location is None:
        return None
    label = whose.name_of(users[-1])
    line = finding.location.line
    origin = Origin(finding.location.file, label, WATCHED, first=line, last=line, reproduced=True, silent=True)
    rows = _rows(optimizer, frame)
    wanted = [row for row in rows if row.should_train]
    names, numel = tuple(row.name for row in wanted), sum(row.numel for row in wanted)
    finding = replace(finding, parameters=names, numel=numel)
    picture = Picture((), (), (), (finding,))
    return Explanation(Report((finding,), rows, picture, label, backward=True, error="", runs=0, origin=origin))


def _rows(optimizer: Optimizer, frame: FrameType) -> tuple[Parameter, ...]:
    """The parameters of the models that an optimizer trains, and what else it holds, by number."""
    held = {id(one): one for one in held_by(optimizer)}
    found: dict[str, Parameter] = {}
    known = set[int]()
    for model in surroundings.models_of(frame, held):
        holders, plain = registered.holders(model), plain_names.names_in(model)
        for name, one in registered.parameters(model):
            known.add(id(one))
            module = holders[name]
            row = _row(plain[name], one, type(module).__name__, module.training, id(one) in held)
            found.setdefault(row.name, row)
    left = [(f"params[{number}]", one) for number, (key, one) in enumerate(held.items()) if key not in known]
    found.update({name: _row(name, tensor, "", True, True) for name, tensor in left})
    return tuple(found.values())


def _row(name: str, one: torch.Tensor, module: str, training: bool, held: bool) -> Parameter:
    """As the program's own backward has left it."""
    reached, dtype = one.grad is not None, str(one.dtype).removeprefix("torch.")
    return Parameter(
        name, tuple(one.shape), one.numel(), dtype, one.requires_grad, training,
        should_train=one.requires_grad and held, used=reached, reached=reached, grad_norm=None, module=module,
    )  # fmt: skip


# -- what keeps a learning rate at 0 ----------------------------------------------------------------------------------


def _schedule(optimizer: Optimizer, known: Sequence[str]) -> tuple[Location | None, Location | None, str]:
    """The line that keeps a learning rate at 0, where what it was handed became 0, and the note on the former then.

    It is the one that returns 0 to a scheduler, else the one that builds the scheduler, else the only one that sets a
    learning rate by hand.
    """
    schedulers = bystanders.schedulers_of(optimizer)
    deed = next((one for one in deeds_of(optimizer) if one.kind == SCHEDULED and one.chain), None)
    built = locations.locate(_outside_of_init(deed.chain), whole=True) if deed is not None else None
    factors = [one for scheduler in schedulers for one in _factors(scheduler)]
    origin = next(filter(None, (_handed_zero(one, deed) for one in factors)), None)
    if origin is not None:
        return built or origin, origin, BUILT_HERE
    by_hand = stepping.rates_set(known) if not schedulers and built is None else []
    if len(by_hand) == 1:
        spot, rate = by_hand[0]
        return spot, zeros.written_at(spot.file, rate), SET_HERE
    codes = filter(None, map(_code, [*factors, *map(_own_rule, schedulers)]))
    asked, made = next((found for found in map(_returning, codes) if found[0] is not None), (None, None))
    moved = any(introspection.attributes(one).get("last_epoch", 0) > 0 for one in schedulers)  # else it was never asked
    if built is not None and made is not None and moved:
        return built, made, BUILT_HERE
    return asked or built, None, ""


def _outside_of_init(chain: Chain) -> tuple[CodeType, int]:
    """The innermost of some places that is in no ``__init__``: who calls that builds a scheduler of a user's class."""
    return next((one for one in chain if one[0].co_name != "__init__"), chain[0])


def _own_rule(scheduler: LRScheduler) -> Any:
    """How a scheduler of a user's class tells the rates."""
    return introspection.ask(type(scheduler), "get_lr")


def _factors(scheduler: LRScheduler) -> list[Any]:
    """The functions that a scheduler asks for its factor."""
    return introspection.entries(introspection.attributes(scheduler).get("lr_lambdas"))


def _code(factor: Any) -> CodeType | None:
    """The code of a function of the user's."""
    code = introspection.ask(factor, "__code__")
    return code if isinstance(code, CodeType) and frames.is_user_file(code.co_filename) else None


def _handed_zero(factor: Any, deed: Deed | None) -> Location | None:
    """Where one of the numbers that a factor is computed from became 0. A warm-up of no steps is none of them."""
    code = _code(factor)
    if code is not None:
        tree = locations.tree_of(code.co_filename)
        names = [name for name, value in _enclosed(factor) if _is_no_total(name, value)]
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)] if tree is not None else []
        uses = [n for n in nodes if isinstance(n, ast.Name) and n.id in names and _within(n, code)]
        return _one(zeros.written_at(code.co_filename, use) for use in uses)
    if deed is None or deed.library is None or not introspection.is_a(factor, functools.partial):
        return None
    names = [name for name, value in factor.keywords.items() if _is_no_total(name, value)]
    called, point = deed.library[0], deed.chain[0]
    places = called.co_varnames[: called.co_argcount + called.co_kwonlyargcount]
    call = locations.node_at(point)
    given = [syntax.argument(call, name, places.index(name)) for name in names if name in places]
    return _one(zeros.written_at(point[0].co_filename, one) for one in given if one is not None)


def _enclosed(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function takes from the functions around it."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # an empty cell
            yield name, cell.cell_contents


def _is_no_total(name: str, value: Any) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and value == 0 and not re.search("warm|last|min|start", name)


def _within(node: ast.Name, code: CodeType) -> bool:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return min(lines) <= node.lineno <= max(lines)


def _one(found: Iterable[Location | None]) -> Location | None:
    """The one line that was found, None if there are several."""
    lines = {(one.file, one.line): one for one in found if one is not None}
    return next(iter(lines.values())) if len(lines) == 1 else None


def _returning(code: CodeType) -> tuple[Location | None, Location | None]:
    """The line on which a function returns, if there is one only, of a lambda the line that it stands on; and the one
    that makes what is returned 0, if it is another."""
    tree = units.tree_of(code)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and _begins(node, code):
            found = [one for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
            if len(found) != 1 or found[0].value is None:
                return None, None
            place = locations.place(code.co_filename, found[0], locations.qualified_name(code))
            return place, zeros.written_at(code.co_filename, found[0].value)
    return None, None


def _begins(node: ast.FunctionDef, code: CodeType) -> bool:
    return code.co_firstlineno in (node.lineno, *(one.lineno for one in node.decorator_list))
