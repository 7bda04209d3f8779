"""Why a program that goes backward never comes to ``optimizer.step()``, as far as its source tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import locations, returns, syntax
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


def asked(chain: Chain) -> Chain:
    """The frames from the line on that has an optimizer step; past a function that is handed the optimizer to step.

    Such a function steps whenever it is called: what comes before and after, its caller decides.

    Example:
        >>> def update(loss, optimizer): optimizer.step()
        >>> asked(((update.__code__, 0), (asked.__code__, 0)))[0][0].co_name
        'update'
    """
    node, code = (locations.node_at(chain[0]), chain[0][0]) if len(chain) > 1 else (None, None)
    if code is None or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return chain
    name = node.func.value.id if isinstance(node.func.value, ast.Name) else "self"
    handed = name != "self" and name in code.co_varnames[: code.co_argcount]
    return chain[1:] if node.func.attr == "step" and handed else chain


def held_back(chain: Chain, names: Collection[str]) -> HeldBack | None:
    """What keeps an optimizer from stepping.

    Args:
        chain: the user's frames at a backward, innermost first.
        names: the optimizer's, as variables or attributes.

    Returns:
        None if the source does not tell.
    """
    code = _Reached(chain)
    stepping = _functions_that_step(code, names)
    for place in code.frames:
        found = _in_function(place, names, stepping)
        if found is not None:
            return HeldBack(found[0], locations.place(place.file, found[1], place.name))
    inside = list(_inside(code, names))
    if len(inside) == 1:
        return inside[0]
    if not chain or _is_mentioned(code, names, "step") or not _is_mentioned(code, names, "zero_grad"):
        return None
    return HeldBack(MISSING, _update_of_scaler(code) or locations.locate(chain[0], whole=True))


def update_skipped(chain: Chain, files: Iterable[str]) -> Location | None:
    """The only line that calls ``update()`` of the gradient scaler that a call is a method of, among what may have run.

    That is the functions which it was called in, the innermost first, and those that they call by name.

    Args:
        chain: the user's frames at the call, innermost first.
    """
    node = locations.node_at(chain[0]) if chain else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    scaler = _last(node.func.value)
    running = [function for code, _ in chain if (function := returns.function_of(code)) is not None]
    called = {syntax.call_name(one) for function in running for one in ast.walk(function) if isinstance(one, ast.Call)}
    found = [
        (file, one, syntax.function_of(around), syntax.innermost_function(around))
        for file in dict.fromkeys((*(code.co_filename for code, _ in chain), *files))
        for one, around in syntax.statements(file)
        if (updated := _updated(one)) and updated == scaler
    ]
    within = [[one for one in found if one[3] is not None and syntax.same(one[3], function)] for function in running]
    helpers = [one for one in found if one[3] is not None and one[3].name in called]
    owners = {locations.qualified_name(code).rpartition(".")[0] for code, _ in chain}
    own = [one for one in helpers if one[2].rpartition(".")[0] in owners]
    near = next(filter(None, [*within, own, helpers]), [])
    return locations.place(*near[0][:3]) if len(near) == 1 else None


def _updated(node: ast.AST) -> str:
    """The last name of a scaler whose ``update()`` a node calls; ``""`` for any other node."""
    plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args
    return _last(node.func.value) if plain and node.func.attr == "update" else ""  # type: ignore[attr-defined]


def mistaken(chain: Chain, names: Collection[str]) -> HeldBack | None:
    """A step that is taken with another optimizer, where this one's gradients were cleared for it, and it never steps.

    Args:
        chain: the user's frames at the step of another optimizer, innermost first.
        names: the optimizer's, as variables or attributes.
    """
    code = _Reached(chain)
    for one in code:
        if _is_uncalled(one.node, names):
            return HeldBack(UNCALLED, one.location)
    if _is_mentioned(code, names, "step"):
        return None
    found = list(_after_clearing(code, names))
    return found[0] if len(found) == 1 else None


def rates_set(files: Iterable[str]) -> list[tuple[Location, ast.expr]]:
    """The lines that set the learning rate of a group by hand, ``group["lr"] = ...``, each with what it sets."""
    return [
        (locations.place(file, node, syntax.function_of(around)), node.value)
        for file in files
        for node, around in syntax.statements(file)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Subscript) and ast.unparse(target.slice) == "'lr'"
    ]


# -- the code that can have run ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Node:
    """A node of a syntax tree, and the statements around it, outermost first."""

    file: str
    node: ast.AST
    around: Sequence[Any]

    @property
    def location(self) -> Location:
        return locations.place(self.file, self.node, syntax.function_of(self.around))


@dataclass(frozen=True, eq=False)
class _Frame:
    """A function of the user's, or a module, that is running, and the line that it is at."""

    file: str
    name: str
    line: int
    function: Any


class _Reached:
    """What the functions of some frames, and those of their files that they lead to by name, are made of.

    Attributes:
        frames: the innermost first.
    """

    def __init__(self, chain: Chain) -> None:
        self.frames = [one for one in map(_frame, chain) if one is not None]
        by_function: dict[int, list[_Node]] = {}
        named: dict[str, list[Any]] = {}
        for file in dict.fromkeys(one.file for one in self.frames):
            for node, around in syntax.statements(file):
                functions = [one for one in around if isinstance(one, FUNCTIONS)]
                by_function.setdefault(id(functions[-1]) if functions else 0, []).append(_Node(file, node, around))
                if isinstance(node, FUNCTIONS):
                    named.setdefault(node.name, []).append(node)
        self._nodes: list[_Node] = []
        todo = [one.function for one in self.frames]
        done = set[int]()
        while todo:
            function = todo.pop(0)
            key = 0 if isinstance(function, ast.Module) else id(function)
            if key not in done:
                done.add(key)
                mine = by_function.get(key, [])
                self._nodes += mine
                todo += [one for node in mine for name in _spoken(node.node) for one in named.get(name, ())]

    def __iter__(self) -> Iterator[_Node]:
        return iter(self._nodes)


def _spoken(node: ast.AST) -> list[str]:
    return [node.id] if isinstance(node, ast.Name) else [node.attr] if isinstance(node, ast.Attribute) else []


def _frame(point: Point) -> _Frame | None:
    """The function, or the module, that a frame runs, in the tree of its file; None if that is not known."""
    code, line, name = point[0], locations.line_of(point), locations.qualified_name(point[0])
    tree = locations.tree_of(code.co_filename)
    last = name.rpartition(".")[2]
    inside = [
        node for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, FUNCTIONS) and node.name == last and node.lineno <= line <= (node.end_lineno or 0)
    ]  # fmt: skip
    function = inside[-1] if inside else tree if code.co_name.startswith(("<module", "<cell")) else None
    return _Frame(code.co_filename, name, line, function) if function is not None else None


def _update_of_scaler(code: _Reached) -> Location | None:
    """The ``scaler.update()`` in the function that goes backward, where what has scaled its loss is to step first."""
    place = code.frames[0] if code.frames else None
    for one in _own(place.function) if place is not None else ():
        scaler = _updated(one.value) if isinstance(one, ast.Expr) else ""
        if place is not None and scaler and _is_mentioned(code, {scaler}, "scale"):
            return locations.place(place.file, one, place.name)
    return None


# -- in the function that goes backward, and those that call it -------------------------------------------------------


def _in_function(place: _Frame, names: Collection[str], stepping: Collection[str]) -> tuple[str, ast.AST] | None:
    uncalled = next((node for node in _own(place.function) if _is_uncalled(node, names)), None)
    if uncalled is not None:
        return UNCALLED, uncalled
    for step in _own(place.function):
        if isinstance(step, ast.Expr | ast.Assign) and any(_steps(node, names, stepping) for node in ast.walk(step)):
            found = _in_the_way(place.function, place.line, step)
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


def _inside(code: _Reached, names: Collection[str]) -> Iterator[HeldBack]:
    """The condition around a step in a function that does not go backward itself."""
    for one in code:
        functions = [outer for outer in one.around if isinstance(outer, FUNCTIONS)]
        if not isinstance(one.node, ast.Expr) or not functions or not _steps(one.node.value, names):
            continue
        guards = [outer for outer, _ in _way(functions[-1], one.node)[1:] if isinstance(outer, ast.If)]
        calls = (node for node in ast.walk(functions[-1]) if isinstance(node, ast.Call))
        if guards and not any(syntax.call_name(call) == "backward" for call in calls):
            yield HeldBack(GUARDED, locations.place(one.file, guards[-1].test, syntax.function_of(one.around)))


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


def _functions_that_step(code: _Reached, names: Collection[str]) -> set[str]:
    """The names of the functions that step the optimizer, also by calling one another."""
    functions = {id(outer): outer for one in code for outer in one.around if isinstance(outer, FUNCTIONS)}
    found: set[str] = set()
    while True:
        more = {f.name for f in functions.values() if any(_steps(node, names, found) for node in ast.walk(f))} - found
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


def _is_mentioned(code: _Reached, names: Collection[str], method: str) -> bool:
    for one in code:
        node = one.node
        if isinstance(node, ast.Attribute) and node.attr == method and _last(node.value) in names:
            return True
        if method == "step" and _steps(node, names):
            return True
    return False


def _after_clearing(code: _Reached, names: Collection[str]) -> Iterator[HeldBack]:
    """The step that follows where the gradients of an optimizer are cleared and a backward is made, in one block."""
    blocks = [(one, block) for one in code for block in _blocks(one.node)]
    blocks += [(_Node(one.file, one.function, ()), one.function.body) for one in code.frames]
    seen = set[int]()
    for one, block in blocks:
        step = _stepped_after_clearing(block, names)
        if step is not None and id(step) not in seen:
            seen.add(id(step))
            yield HeldBack(MISTAKEN, locations.place(one.file, step, syntax.function_of([*one.around, one.node])))


def _stepped_after_clearing(block: Sequence[ast.AST], names: Collection[str]) -> ast.AST | None:
    stages = ["zero_grad", "backward", "step"]
    for one in block:
        call = one.value if isinstance(one, (ast.Expr, ast.Assign)) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != stages[0]:
            continue
        if stages[0] != "zero_grad" or _last(call.func.value) in names:
            stages.pop(0)
        if not stages:
            return one
    return None


def _last(node: ast.AST) -> str:
    """The last name of ``self.optimizer``, ``optimizer`` or ``optimizers["g"]``."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
