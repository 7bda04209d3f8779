"""What earlier cells of a notebook have made for the cell that fails: those of their statements are run again first.

``loss.backward()`` often stands in a cell of its own. The value that it begins at was made by the cell that ran last
among those that store its name, and that one may rest on another. A value is made again if it carries a history or
hangs on something that trains; data, models and optimizers are taken as they are.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch.optim import Optimizer

from gradkit.core import introspection
from gradkit.core.records import Note, Stretch
from gradkit.live import caveats, pruning
from gradkit.live.candidates import Candidate
from gradkit.live.rebuild import CannotRebuild, step_of
from gradkit.source import faults, frames, rebinding, syntax, units
from gradkit.source.units import Unit
from gradkit.state import reachable, registered
from gradkit.tracing.after_backward import held_by

MOST = 5
"""Earlier cells that are run again for one step."""
WITH_VALUES, WITH_BACKWARDS, WITH_ALL = "values", "backwards", "all"
"""How a cell is run again, if not by itself: after those that made what it reads, as far back as an error can come
from; also after those that went backward; as far back as anything trains."""
NONE = "no_earlier_cell"
"""The reason of a refusal that is not worth a word."""
_FILLS = re.compile(r"append|extend|insert|update|add|setdefault|retain_grad|\w*[a-z0-9]_")
_OPAQUE = ("run_cell_magic", "run_line_magic", "exec", "eval", "system")


def ways(candidate: Candidate, *, silent: bool = False) -> Iterator[Candidate]:
    """A candidate in each of the ways in which it may be run again, the likeliest first.

    Anything but the top level of a notebook's cell is run by itself.

    Args:
        silent: nothing was raised.
    """
    frame = candidate.point.frame
    if frame.f_locals is not frame.f_globals or not frames.is_cell(candidate.point.code.co_filename):
        yield candidate
        return
    later = [replace(candidate, cells=one) for one in ([WITH_ALL] if silent else [WITH_VALUES, WITH_BACKWARDS])]
    yield from [*later, candidate] if _rests_on_others(candidate.unit, frame.f_globals) else [candidate, *later]


def _rests_on_others(unit: Unit, space: dict[str, Any]) -> bool:
    """Whether a cell reads what carries a history, or nothing that trains."""
    values = [space.get(name) for name in rebinding.flow(unit.statements).read]
    if unit.kind == units.LOOP:
        return False
    return any(map(_has_history, values)) or not any(map(_trains, values))


@dataclass(frozen=True, eq=False)
class Part:
    """Statements of an earlier cell.

    Attributes:
        number: its place among the executed cells, counted from 0.
        code: the cell's.
        unit: the statements.
        gives: the names that they give a value, of those that were wanted.
    """

    number: int
    code: CodeType
    unit: Unit
    gives: frozenset[str]


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """A unit and what is run before it.

    Attributes:
        step: runs all of it.
        before: the lines of the earlier cells.
        caveats: how that may differ from what the program ran.
        unlike: once it has run, the names whose values are of another kind than those in the notebook.
    """

    step: Callable[[], object]
    before: tuple[Stretch, ...] = ()
    caveats: tuple[Note, ...] = ()
    unlike: Sequence[str] = ()


def rebuilt(candidate: Candidate) -> Rebuilt:
    """The step of a candidate, with the earlier cells that it is to be run after.

    Raises:
        CannotRebuild: it, or one of those cells, cannot be run again.
    """
    frame = candidate.point.frame
    if not candidate.cells:
        return Rebuilt(step_of(candidate.unit, frame))
    history = _History(candidate)
    parts = history.parts()
    given = frozenset[str]().union(*(one.gives for one in parts))
    steps = [step_of(one.unit, frame, code=one.code, made=given) for one in parts]
    last = step_of(candidate.unit, frame, made=given)
    unlike = list[str]()
    known = {name: _kind(frame.f_globals.get(name)) for name in given - candidate.unit.stored}

    def check() -> None:  # a function of ours: what it closes over is not taken for the step's
        _compare(frame.f_globals, known, unlike)

    before = tuple(Stretch(one.code.co_filename, one.unit.first, one.unit.last) for one in parts)
    stepped = (Note("weights", None, {}),) if history.steps_since(parts[0].number, given) else ()
    return Rebuilt(functools.partial(_in_turn, *steps, check, last), before, stepped, unlike)


@faults.on_behalf
def _in_turn(*steps: Callable[[], object]) -> object:
    value: object = None
    for step in steps:
        value = step()
    return value


def _compare(space: dict[str, Any], known: dict[str, Any], unlike: list[str]) -> None:
    """Whether what was made again is of the kind that it was; asked at the first run alone."""
    unlike += [name for name, kind in known.items() if _kind(space.get(name)) != kind]
    known.clear()


def _kind(value: Any) -> Any:
    if introspection.is_a(value, torch.Tensor):
        return value.shape, value.dtype, value.requires_grad, type(value.grad_fn)
    return type(value)


# -- which cells ------------------------------------------------------------------------------------------------------


class _History:
    """The cells that ran before a candidate's, and which of their statements it rests on."""

    def __init__(self, candidate: Candidate) -> None:
        self._unit, self._space = candidate.unit, candidate.point.frame.f_globals
        self._backwards, self._all = candidate.cells == WITH_BACKWARDS, candidate.cells == WITH_ALL
        run = frames.cells_run()
        file = candidate.point.code.co_filename
        last = next((at for at in reversed(range(len(run))) if run[at] == file), 0)
        self._cells = [_cell(one) if one else None for one in run[:last]]
        self._known: dict[tuple[str, int, bool], bool] = {}
        optimizers = [one for one in self._space.values() if introspection.is_a(one, Optimizer)]
        self._held = {id(one) for optimizer in optimizers for one in held_by(optimizer)}

    def parts(self) -> list[Part]:
        """What is to be run first, in its order.

        Raises:
            CannotRebuild: there is nothing, or it cannot be run again.
        """
        found: list[Part] = []
        lost = self._lost(self._unit)
        wanted = self._wanted(rebinding.flow(self._unit.statements).read, len(self._cells)) | lost
        for number in reversed(range(len(self._cells))):
            if not wanted:
                break
            self._refuse_opaque(number, wanted)
            part = self._part(number, wanted)
            if part is None:
                continue
            if len(found) == MOST:
                raise CannotRebuild("many_cells", n=str(MOST))
            found.insert(0, part)
            lost = self._lost(part.unit)
            reads = rebinding.flow(part.unit.statements).read
            self._refuse_overwritten(part, reads - lost)
            wanted = (wanted - part.gives) | self._wanted(reads, number) | lost
        if not found:
            raise CannotRebuild(NONE)
        if wanted:
            raise CannotRebuild("unknown_cell", name=min(wanted))
        if self._backwards and not any(rebinding.backward_calls(one.unit.statements) for one in found):
            raise CannotRebuild(NONE)
        return found

    def steps_since(self, number: int, given: Collection[str]) -> bool:
        """Whether an optimizer has stepped since a cell ran, in cells that do not go backward from the same values."""
        later = [self._tree(at).body for at in range(number, len(self._cells))]
        trained = [body for body in later if not any(_goes_backward(one, given) for one in body)]
        calls = (node for body in trained for node in rebinding.own_nodes(body) if isinstance(node, ast.Call))
        return any(syntax.call_name(call) == "step" for call in calls)

    def _tree(self, number: int) -> ast.Module:
        cell = self._cells[number]
        return cell[1] if cell is not None else ast.Module([], [])

    def _part(self, number: int, wanted: frozenset[str]) -> Part | None:
        """The statements of a cell that give any of the names a value, or change what they stand for."""
        cell = self._cells[number]
        if cell is None:
            return None
        code, tree = cell
        spots = [spot for one in tree.body for spot in _changing(one, wanted, self._backwards)]
        if not spots:
            return None
        for unit in units.units_of(code, 0, spots[-1].lineno):
            gives = unit.stored & wanted
            if unit.kind == units.MODULE or (gives and not gives & unit.lost and not unit.redraws):
                cut = self._slice(unit, wanted)
                return Part(number, code, cut, rebinding.flow(cut.statements).stored & wanted)
        return None

    def _slice(self, unit: Unit, names: frozenset[str]) -> Unit:
        """A unit without the statements that none of the names hangs on; what was built is taken as it is."""
        rows = list(unit.statements)
        if unit.kind != units.LOOP:
            rows = pruning.without_what_was_built(rows, unit, self._space)
        kept, needed = [rows[-1]], names | rebinding.flow(rows[-1:]).read
        for one in reversed(rows[:-1]):
            if _stores(one, needed) or (self._backwards and _goes_backward(one, needed)):
                kept.insert(0, one)
                needed |= rebinding.flow([one]).read
        return replace(unit, statements=tuple(kept), first=kept[0].lineno)

    def _wanted(self, names: Collection[str], number: int) -> frozenset[str]:
        """Those of the names whose values have to be made again, as they were before a cell ran.

        Where something trains in what reads them, values without a history count as data, such as features of a frozen
        model, unless an optimizer holds what they come from.
        """
        far = self._all or not any(_trains(self._space.get(name)) for name in names)
        return frozenset(name for name in names if self._is_wanted(name, number, far))

    def _is_wanted(self, name: str, number: int, far: bool) -> bool:
        key = name, number, far
        if key not in self._known:
            self._known[key] = False  # a value does not hang on itself
            self._known[key] = self._ask(name, number, far)
        return self._known[key]

    def _ask(self, name: str, number: int, far: bool) -> bool:
        value = self._space.get(name)
        if _has_history(value):
            return True
        if value is None or _is_taken(value):
            return False
        for at in reversed(range(number)):
            part = self._part(at, frozenset((name,)))
            if part is not None:
                reads = rebinding.flow(part.unit.statements).read
                found = [one for name in reads for one in _parameters(self._space.get(name))]
                trains = bool(found) if far else any(id(one) in self._held for one in found)
                return trains or any(self._is_wanted(one, at, far) for one in reads)
        return False

    def _lost(self, unit: Unit) -> frozenset[str]:
        """The names that a unit reads and writes over, of which it needs the tensors from before."""
        return frozenset(
            name for name in unit.lost - unit.targets if any(True for _ in caveats.tensors_in(self._space.get(name)))
        )

    def _refuse_overwritten(self, part: Part, reads: Collection[str]) -> None:
        """Refuse a cell that reads what has been given another value since."""
        later = [self._tree(at).body for at in range(part.number + 1, len(self._cells))]
        stored = self._unit.stored.union(*(rebinding.flow(one).stored for one in later))
        rest = [one for one in self._tree(part.number).body if one.lineno > part.unit.last]
        stored |= rebinding.flow(rest).stored
        gone = sorted(one for one in stored & {*reads} if not isinstance(self._space.get(one), ModuleType))
        if gone:
            raise CannotRebuild("overwritten_since", name=gone[0])

    def _refuse_opaque(self, number: int, wanted: Collection[str]) -> None:
        """Refuse to look behind a cell that may have given a name a value unseen, by a magic or by ``exec``."""
        for node in ast.walk(self._tree(number)):
            if isinstance(node, ast.Call) and syntax.call_name(node) in _OPAQUE:
                said = ast.unparse(node)
                unseen = [one for one in sorted(wanted) if re.search(rf"\b{re.escape(one)}\b", said)]
                if unseen or "'run'" in said:
                    raise CannotRebuild("unknown_cell", name=(unseen or sorted(wanted))[0])


@functools.lru_cache(maxsize=256)
def _cell(file: str) -> tuple[CodeType, ast.Module] | None:
    """What a cell was compiled to, and its syntax tree; None if it is no Python."""
    try:
        code = compile(
            "".join(linecache.getlines(file)), file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
    except (SyntaxError, ValueError):
        return None
    tree = units.tree_of(code)
    return (code, tree) if tree is not None else None


def _changing(statement: ast.stmt, names: Collection[str], backwards: bool) -> Iterator[ast.stmt]:
    """The innermost statements that give one of the names a value, or change what it stands for, in their order."""
    inner = [
        one for _, block in ast.iter_fields(statement) if isinstance(block, list) for one in block
        if isinstance(one, (ast.stmt, ast.excepthandler, ast.match_case))
    ]  # fmt: skip
    below = [] if isinstance(statement, rebinding.SCOPES) else inner
    found = [spot for one in below for spot in _changing(one, names, backwards)]  # type: ignore[arg-type]
    if found or not isinstance(statement, ast.stmt):
        yield from found
    elif _stores(statement, names) or (backwards and _goes_backward(statement, names)):
        yield statement


def _stores(statement: ast.stmt, names: Collection[str]) -> bool:
    if rebinding.flow([statement]).stored & {*names}:
        return True
    for node in rebinding.own_nodes([statement]):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            if _root(node) in names:
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _FILLS.fullmatch(node.func.attr):
            if _root(node.func) in names:
                return True
    return False


def _goes_backward(statement: ast.stmt, names: Collection[str]) -> bool:
    return any(syntax.names_in(call) & {*names} for call in rebinding.backward_calls([statement]))


def _root(node: ast.AST) -> str:
    """The name that an attribute or an entry is of, in the end."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# -- which values -----------------------------------------------------------------------------------------------------


def _has_history(value: Any) -> bool:
    return any(one.grad_fn is not None for one in caveats.tensors_in(value))


def _is_taken(value: Any) -> bool:
    """Whether a value is no matter of computing: a model, an optimizer, a function, a leaf that trains."""
    return isinstance(value, (ModuleType, FunctionType, type, str, bool)) or pruning.is_built(value, frozenset())


def _trains(value: Any) -> bool:
    """Whether a value has parameters, or is a function or an object that can reach some."""
    return bool(_parameters(value))


def _parameters(value: Any) -> list[torch.Tensor]:
    if introspection.is_a(value, torch.Tensor):
        return [value] if value.is_leaf and value.requires_grad else []
    if value is None or isinstance(value, (ModuleType, int, float, str)):
        return []
    modules = [module for one in reachable.members(value) for module in reachable.modules_of(one)]
    return [parameter for module in modules for _, parameter in registered.parameters(module)]
