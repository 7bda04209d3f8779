"""Optimizers that change nothing as long as a program trains: a learning rate that stays 0, a step that never comes.

Nothing is run again for them: what the program did in all its steps tells more than one step.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from gradkit.core import introspection
from gradkit.core.records import Finding, Location, Origin, Picture
from gradkit.diagnosis.facts.optimizers import gap_of
from gradkit.diagnosis.rules import idle
from gradkit.live import bystanders, stack, whose
from gradkit.live.candidates import files
from gradkit.live.stack import Point
from gradkit.source import frames, locations, stepping, units
from gradkit.witness.deeds import SCHEDULED
from gradkit.witness.histories import deeds_of

if TYPE_CHECKING:
    from gradkit.live.explain import Explanation

WATCHED = "watched"


def at_rest(optimizer: Optimizer, frame: FrameType) -> Explanation | None:
    """An optimizer whose learning rate has been 0 in every step: built with 0, or kept there.

    Args:
        frame: what called its step.
    """
    points = stack.running(frame)
    near = tuple(locations.qualified_name(one.code) for one in points)
    built, spot = gap_of(optimizer, ()), None
    if any(group.get("initial_lr", built.settings.get("lr") != "0.0") for group in optimizer.param_groups):
        spot = _schedule(optimizer, files(points))
    return _told(idle.at_rest(built, spot, files(points), near), points)


def waiting(optimizer: Optimizer, names: frozenset[str], frame: FrameType, alone: bool) -> Explanation | None:
    """An optimizer that does not step, although backward fills what it holds; None if the source does not tell why.

    Args:
        names: its names, as variables or attributes.
        frame: what called for a backward, or for another optimizer's step.
        alone: no optimizer has stepped.
    """
    points = stack.running(frame)
    users = [one for one in reversed(points) if frames.is_user_file(one.code.co_filename)]
    if alone:
        held = stepping.held_back(tuple((one.code, one.lasti) for one in users), names)
    else:
        held = stepping.mistaken(files(points), names)
    return _told(idle.never(gap_of(optimizer, ()), held), points) if held is not None else None


def _told(finding: Finding, points: Sequence[Point]) -> Explanation | None:
    from gradkit.live.explain import Explanation
    from gradkit.report.report import Report

    users = [point for point in points if frames.is_user_file(point.code.co_filename)]
    if not users or finding.location is None:
        return None
    label = whose.name_of(users[-1])
    line = finding.location.line
    origin = Origin(finding.location.file, label, WATCHED, first=line, last=line, reproduced=True, silent=True)
    picture = Picture((), (), (), (finding,))
    return Explanation(Report((finding,), (), picture, label, backward=True, error="", runs=0, origin=origin))


# -- what keeps a learning rate at 0 ----------------------------------------------------------------------------------


def _schedule(optimizer: Optimizer, known: Sequence[str]) -> Location | None:
    """The line that returns 0 to a scheduler, else the one that builds the scheduler, else the only one that sets
    a learning rate by hand."""
    schedulers = bystanders.schedulers_of(optimizer)
    asked = [line for one in schedulers for line in map(_returning, _asked(one)) if line is not None]
    deed = next((one for one in deeds_of(optimizer) if one.kind == SCHEDULED and one.chain), None)
    built = locations.locate(deed.chain[0], whole=True) if deed is not None else None
    by_hand = stepping.rate_lines(known) if not schedulers else []
    return next(iter(asked), None) or built or (by_hand[0] if len(by_hand) == 1 else None)


def _asked(scheduler: LRScheduler) -> list[CodeType]:
    """The user's functions that a scheduler asks for its factor."""
    given = introspection.entries(introspection.attributes(scheduler).get("lr_lambdas"))
    codes = [introspection.ask(one, "__code__") for one in given]
    return [one for one in codes if isinstance(one, CodeType) and frames.is_user_file(one.co_filename)]


def _returning(code: CodeType) -> Location | None:
    """The line on which a function returns, if there is one only; of a lambda the line that it stands on."""
    tree = units.tree_of(code)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and _begins(node, code):
            found = [one for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
            name = locations.qualified_name(code)
            return locations.place(code.co_filename, found[0], name) if len(found) == 1 else None
    return None


def _begins(node: ast.FunctionDef, code: CodeType) -> bool:
    return code.co_firstlineno in (node.lineno, *(one.lineno for one in node.decorator_list))
