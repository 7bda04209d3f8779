"""Whether a program may have more losses than the step in which it failed: that step ends where it failed.

What such a step leaves aside, or cuts off, may learn by a loss that it did not come to; nothing is blamed for it then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType

from gradkit.core import introspection
from gradkit.core.trace import Chain
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.live.candidates import Candidate, files
from gradkit.live.stack import Point
from gradkit.source import frames, locations, rebinding, syntax


def may_follow(candidate: Candidate, first: FirstRun) -> bool:
    """Whether the files of a program ask for a gradient on a line that the run of its step has not come to.

    Args:
        candidate: the unit that was run.
        first: its run.
    """
    ran = {candidate.place, *_lines(first)}
    return any((file, line) not in ran for file in _files(candidate.stack) for line in _asking(file))


def _lines(first: FirstRun) -> Iterator[tuple[str, int]]:
    """The lines of all frames of a run."""
    chains: list[Chain] = [call.chain for call in first.trace.calls]
    if first.mishap is not None:
        chains += [first.mishap.chain, *(one.chain for one in first.mishap.freeing)]
    codes: dict[int, CodeType] = {}
    points: dict[tuple[int, int], None] = {}
    for code, at in (point for chain in chains for point in chain):
        codes[id(code)] = code
        points[id(code), at] = None
    for key, at in points:
        yield codes[key].co_filename, locations.line_of((codes[key], at))


def _files(stack: Sequence[Point]) -> tuple[str, ...]:
    """The user's files of a stack, and those of what its frames have at hand."""
    users = [point for point in stack if frames.is_user_file(point.code.co_filename)]
    at_hand = [value for point in users for value in introspection.entries(point.frame.f_globals)]
    written = [file for value in at_hand for file in _written(value) if file and frames.is_user_file(file)]
    return tuple(dict.fromkeys([*files(stack), *written]))


def _written(value: object) -> Iterator[str]:
    """The file that a function, a module, or the class of a thing is written in."""
    if introspection.is_a(value, FunctionType):
        yield value.__code__.co_filename
    elif introspection.is_a(value, ModuleType):
        yield str(introspection.attributes(value).get("__file__") or "")
    cls = value if introspection.is_a(value, type) else type(value)
    for method in introspection.attributes(cls).values():
        if introspection.is_a(method, FunctionType):
            yield method.__code__.co_filename
            return


def _asking(file: str) -> Iterator[int]:
    """The lines of a file that go backward, or ask for derivatives; 0 where it cannot be read."""
    tree = locations.tree_of(file)
    if tree is None:
        yield 0
        return
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        if rebinding.is_backward(call) or (syntax.call_name(call) == "grad" and isinstance(call.func, ast.Attribute)):
            yield call.lineno
