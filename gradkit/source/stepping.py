"""Why a program that goes backward never comes to ``optimizer.step()``, as far as its source tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import locations, syntax
from gradkit.source.syntax import FUNCTIONS

UNCALLED, GUARDED, SKIPPED, MISTAKEN, MISSING = "uncalled", "guarded", "skipped", "mistaken", "missing"
_NO_OPTIMIZER = re.compile(r"sched|env|prof|bar$|swa|ema|warmup|logger|tracker|train|step", re.IGNORECASE)
_LEAVES = (ast.Continue, ast.Break, ast.Return, ast.Raise)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class HeldBack:
    """Where a program stays away from an optimizer's step.

    Attributes:
        kind: ``"uncalled"`` (``optimizer.step`` without parentheses), ``"guarded"`` (a condition that never came true),
            ``"skipped"`` (what is left before), ``"mistaken"`` (another optimizer steps in its place), ``"missing"``
            (there is no step at all: the place of the backward).
        location: the line.
    """

    kind: str
    location: Location


def held_back(chain: Chain, names: Collection[str]) -> HeldBack | None:
    """What keeps an optimizer from stepping.

    Args:
        chain: the user's frames at a backward, innermost first.
        names: the optimizer's, as variables or attributes.

    Returns:
        None if the source does not tell.
    """
    files = list(dict.fromkeys(code.co_filename for code, _ in chain))
    stepping = {name for file in files for name in _functions_that_step(file, names)}
    for code, lasti in chain:
        function = _function(code.co_filename, locations.qualified_name(code), locations.line_of((code, lasti)))
        if function is None:
            continue
        found = _in_function(function, locations.line_of((code, lasti)), names, stepping)
        if found is not None:
            kind, node = found
            return HeldBack(kind, locations.place(code.co_filename, node, locations.qualified_name(code)))
    inside = [one for file in files for one in _inside(file, names)]
    if len(inside) == 1:
        return inside[0]
    if not chain or _is_mentioned(files, names, "step") or not _is_mentioned(files, names, "zero_grad"):
        return None
    return HeldBack(MISSING, _update_of_scaler(chain[0]) or locations.locate(chain[0], whole=True))


def mistaken(files: Iterable[str], names: Collection[str]) -> HeldBack | None:
    """A step that is taken with another optimizer, where this one's gradients were cleared for it, and it never steps.

    Args:
        names: the optimizer's, as variables or attributes.
    """
    files = list(files)
    for file in files:
        for node, around in syntax.statements(file):
            if _is_uncalled(node, names):
                return HeldBack(UNCALLED, locations.place(file, node, syntax.function_of(around)))
    if _is_mentioned(files, names, "step"):
        return None
    found = [one for file in files for one in _after_clearing(file, names)]
    return found[0] if len(found) == 1 else None


def rate_lines(files: Iterable[str]) -> list[Location]:
    """The lines that set the learning rate of a group by hand: ``group["lr"] = ...``."""
    return [
        locations.place(file, node, syntax.function_of(around))
        for file in files
        for node, around in syntax.statements(file)
        for target in (node.targets if isinstance(node, ast.Assign) else ())
        if isinstance(target, ast.Subscript) and ast.unparse(target.slice) == "'lr'"
    ]


def _update_of_scaler(point: Point) -> Location | None:
    """The ``scaler.update()`` in the function that goes backward, where what has scaled its loss is to step first."""
    code, function = point[0], locations.qualified_name(point[0])
    node = _function(code.co_filename, function, locations.line_of(point))
    for one in _own(node) if node is not None else ():
        call = one.value if isinstance(one, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "update":
            if not call.args and _is_mentioned([code.co_filename], {_last(call.func.value)}, "scale"):
                return locations.place(code.co_filename, one, function)
    return None


# -- in the function that goes backward, and those that call it --------------------------------------------------------


def _function(file: str, name: str, line: int) -> Any:
    """The function, or the module, in which a line stands."""
    tree = locations.tree_of(file)
    if tree is None:
        return None
    last = name.rpartition(".")[2]
    inside = [
        node for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS) and node.name == last and node.lineno <= line <= (node.end_lineno or 0)
    ]  # fmt: skip
    return inside[-1] if inside else tree if name == "<module>" else None


def _in_function(function: Any, line: int, names: Collection[str], stepping: Collection[str]) -> Any:
    uncalled = next((node for node in _own(function) if _is_uncalled(node, names)), None)
    if uncalled is not None:
        return UNCALLED, uncalled
    for step in _own(function):
        if isinstance(step, ast.Expr | ast.Assign) and any(_steps(node, names, stepping) for node in ast.walk(step)):
            found = _in_the_way(function, line, step)
            if found is not None:
                return found
    return None


def _in_the_way(function: Any, line: int, step: ast.stmt) -> tuple[str, ast.AST] | None:
    """The condition around a step that is not around the line; else what leaves the block between them."""
    way = _way(function, step)
    for at, (outer, block) in enumerate(way):
        before = [one for one in block if _spans(one, line)]
        if before and before[0] is not step and not _spans(way[at + 1][0] if at + 1 < len(way) else step, line):
            leaving = next(filter(None, (_leaves(one, before[0], step) for one in block)), None)
            if leaving is not None:
                return SKIPPED, leaving
            guard = next((one for one, _ in way[at + 1 :] if isinstance(one, (ast.If, *_LOOPS))), None)
            return (GUARDED, guard.test if isinstance(guard, ast.If) else guard) if guard is not None else None
        if outer is step:
            break
    return None


def _inside(file: str, names: Collection[str]) -> Iterator[HeldBack]:
    """The condition around a step in a function that does not go backward itself."""
    for step, around in syntax.statements(file):
        functions = [one for one in around if isinstance(one, FUNCTIONS)]
        if not isinstance(step, ast.Expr) or not functions or not _steps(step.value, names):
            continue
        guards = [one for one, _ in _way(functions[-1], step)[1:] if isinstance(one, ast.If)]
        calls = (node for node in ast.walk(functions[-1]) if isinstance(node, ast.Call))
        if guards and not any(syntax.call_name(one) == "backward" for one in calls):
            yield HeldBack(GUARDED, locations.place(file, guards[-1].test, syntax.function_of(around)))


def _leaves(one: ast.stmt, after: ast.stmt, before: ast.stmt) -> ast.stmt | None:
    """A statement between two others, if it may leave the block."""
    if not after.lineno < one.lineno < before.lineno or isinstance(one, (*FUNCTIONS, *_LOOPS, ast.ClassDef)):
        return None
    return one if any(isinstance(node, _LEAVES) for node in ast.walk(one)) else None


def _way(function: Any, step: ast.stmt) -> list[tuple[Any, list[ast.stmt]]]:
    """The statements around a step, outermost first, each with the block of it that leads there."""
    found: list[tuple[Any, list[ast.stmt]]] = []
    node = function
    while node is not step:
        blocks = [block for block in _blocks(node) if any(_holds(one, step) for one in block)]
        if not blocks:
            return found
        found.append((node, blocks[0]))
        node = next(one for one in blocks[0] if _holds(one, step))
    return found


def _blocks(node: Any) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if isinstance(getattr(node, name, None), list):
            yield getattr(node, name)
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _holds(outer: ast.stmt, inner: ast.stmt) -> bool:
    return outer.lineno <= inner.lineno and (inner.end_lineno or 0) <= (outer.end_lineno or 0)


def _spans(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= (node.end_lineno or node.lineno))


def _own(function: Any) -> list[ast.stmt]:
    """The statements of a function, without those of functions inside."""
    found: list[ast.stmt] = []
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop(0)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        found += [node] if isinstance(node, ast.stmt) else []
        todo += [one for one in ast.iter_child_nodes(node) if isinstance(one, (ast.stmt, ast.excepthandler))]
    return found


# -- what steps -------------------------------------------------------------------------------------------------------


def _functions_that_step(file: str, names: Collection[str]) -> set[str]:
    """The names of a file's functions that step the optimizer, also by calling one another."""
    tree = locations.tree_of(file)
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)] if tree is not None else []
    found: set[str] = set()
    while True:
        more = {f.name for f in functions if any(_steps(node, names, found) for node in ast.walk(f))} - found
        if not more:
            return found
        found |= more


def _steps(node: ast.AST, names: Collection[str], functions: Collection[str] = ()) -> bool:
    """Whether a call steps the optimizer: ``optimizer.step()``, ``scaler.step(optimizer)``, or a function that does."""
    if not isinstance(node, ast.Call):
        return False
    if syntax.call_name(node) != "step" or not isinstance(node.func, ast.Attribute):
        return syntax.call_name(node) in functions
    given = [_last(one) for one in (node.func.value, *node.args[:1])]
    return any(one in names for one in given) or (not names and not _NO_OPTIMIZER.search(given[0]))


def _is_uncalled(node: ast.AST, names: Collection[str]) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Attribute) and value.attr == "step" and _last(value.value) in names


def _is_mentioned(files: Iterable[str], names: Collection[str], method: str) -> bool:
    for file in files:
        for node, _ in syntax.statements(file):
            if isinstance(node, ast.Attribute) and node.attr == method and _last(node.value) in names:
                return True
            if method == "step" and _steps(node, names):
                return True
    return False


def _after_clearing(file: str, names: Collection[str]) -> Iterator[HeldBack]:
    """The step that follows where the gradients of an optimizer are cleared and a backward is made, in one block."""
    tree = locations.tree_of(file)
    for node, around in syntax.statements(file) if tree is not None else ():
        for block in _blocks(node):
            if not all(isinstance(one, ast.stmt) for one in block):
                continue
            stage: Sequence[str] = ("zero_grad", "backward", "step")
            for one in block:
                call = one.value if isinstance(one, (ast.Expr, ast.Assign)) else None
                name = syntax.call_name(call) if isinstance(call, ast.Call) else ""
                mine = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
                if name != stage[0] or not mine:
                    continue
                if name == "zero_grad" and _last(call.func.value) not in names:  # type: ignore[union-attr]
                    continue
                stage = stage[1:]
                if not stage:
                    yield HeldBack(MISTAKEN, locations.place(file, one, syntax.function_of([*around, node])))
                    break


def _last(node: ast.AST) -> str:
    """The last name of ``self.optimizer``, ``optimizer`` or ``optimizers["g"]``."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
