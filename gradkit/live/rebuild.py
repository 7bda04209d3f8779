"""A unit and the frame that it was taken from become a function, which runs the unit again as the frame would.

It has the frame's own file, lines, columns, globals and cells, and a copy of its local variables; so what is found in
it is told by the lines of the program. Running it changes what the frame could change: do so where all is put back.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import CellType, CodeType, FrameType, FunctionType, GeneratorType
from typing import Any

from gradkit.core import introspection
from gradkit.diagnosis.experiments import changed_code
from gradkit.live import cells, pruning, remade, stack
from gradkit.source import locations, provenance, rebinding, units
from gradkit.source.units import Unit
from gradkit.state import reachable

_STEP, _ONCE, _FACTORY = "__gradkit_step__", "__gradkit_once__", "__gradkit_factory__"
_BY_NAME = frozenset(("locals", "vars", "eval", "exec", "dir"))  # they read what no name in the statements tells
_SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)


class CannotRebuild(Exception):  # noqa: N818  it is a reason, not a fault
    """Why a unit is no step: a reason with a sentence ``origin.refused.<reason>``, and what the sentence names.

    Attributes:
        reason: ``"suspends"`` (it yields or awaits), ``"loss_from_outside"``, ``"name_gone"`` (``name``),
            ``"iterator_moves_on"`` (``name``), ``"class_body"``, ``"nothing_left"``, ``"does_not_compile"``.
        facts: what the sentence names.
    """

    def __init__(self, reason: str, **facts: str) -> None:
        super().__init__(reason, *facts.values())
        self.reason, self.facts = reason, facts


def step_of(
    unit: Unit, frame: FrameType, *, alone: bool = False, code: CodeType | None = None, made: Collection[str] = ()
) -> FunctionType:
    """The function that runs a unit of a frame once more. It takes no arguments.

    ``continue``, ``break`` and ``return`` in the unit end it. What only logs or prints is left out; of a function's
    body and of a module, what they built (modules, optimizers, loaders, leaves that train) is taken as it is now.

    Args:
        unit: from ``units_of`` of the code that the frame runs.
        frame: it may be running, or have ended by an exception.
        alone: other ``backward()`` calls than the failing one are left out.
        code: what the unit was taken from, where that is not what the frame runs: another cell, over the same globals.
        made: names that something gives a value right before it; a loss among them is not from outside.

    Raises:
        CannotRebuild: it cannot be run by itself.

    Example:
        >>> import linecache
        >>> from gradkit.live import stack
        >>> text = "def train():\\n    for x in [1, 2, 0]:\\n        y = 6 / x\\n"
        >>> linecache.cache["<rebuild>"] = len(text), None, text.splitlines(True), "<rebuild>"
        >>> exec(compile(text, "<rebuild>", "exec"))
        >>> try: train()
        ... except ZeroDivisionError as error: point = stack.of_error(error)[-1]
        >>> [loop, body] = units.units_of(point.code, point.lasti, point.line)
        >>> step = step_of(loop, point.frame)
        >>> step()
        Traceback (most recent call last):
        ZeroDivisionError: division by zero
        >>> step.__code__.co_name, step.__code__.co_filename
        ('train', '<rebuild>')
    """
    names = _Names(unit, frame, code or frame.f_code)
    body = _body(unit, names, alone)
    _refuse(body, names, made)
    step = names.function(_compiled(unit, body, names))
    changed_code.pieces[step] = partial(_with_text, unit, names, alone)
    return step


def _with_text(unit: Unit, names: _Names, alone: bool, text: str) -> FunctionType | None:
    """The same, with the program's text changed; None where that changes nothing of it, or cannot be run."""
    tree = units.tree_of(names.code)
    kept = remade.statements(unit.statements, tree, text) if tree is not None else None
    if kept is None:
        return None
    changed = replace(unit, statements=tuple(kept))
    try:
        body = _body(changed, names, alone)
        _refuse(body, names, ())
        return names.function(_compiled(changed, body, names))
    except CannotRebuild:
        return None


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's local variables; of a module's, the globals themselves."""
    return frame.f_globals if frame.f_locals is frame.f_globals else dict(frame.f_locals)


class _Names:
    """What the names of a unit stand for in its frame. Private names are the mangled ones."""

    def __init__(self, unit: Unit, frame: FrameType, code: CodeType) -> None:
        self.unit, self.frame, self.code = unit, frame, code
        self.is_module = frame.f_locals is frame.f_globals
        self.local: Mapping[str, Any] = locals_of(frame)
        self.own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        self.is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # else what exec runs with locals of its own
        self.own |= {*self.local} if not self.is_function else set()

    def mangled(self, names: Iterable[str]) -> set[str]:
        return {_mangled(name, self.unit.owner) for name in names}

    def function(self, made: CodeType) -> FunctionType:
        """The function of compiled code: with the frame's own cells, and the values of its local variables now."""
        frame, found = self.frame, cells.of_frame(self.frame) if made.co_freevars else {}
        closure = tuple(found.get(name) or self._new_cell(name) for name in made.co_freevars)
        given = tuple(self.local[name] for name in made.co_varnames[: made.co_argcount])
        step = FunctionType(made, frame.f_globals, self.code.co_name, given, closure)
        vars(step)[reachable.PIECE] = True
        step.__qualname__ = getattr(self.code, "co_qualname", "") or locations.qualified_name(self.code)
        return step

    def _new_cell(self, name: str) -> CellType:
        return CellType(self.local[name]) if name in self.local else CellType()


def _mangled(name: str, owner: str) -> str:
    bare = owner.lstrip("_")
    return f"_{bare}{name}" if bare and name.startswith("__") and not name.endswith("__") else name


# -- what is run -------------------------------------------------------------------------------------------------------


def _body(unit: Unit, names: _Names, alone: bool) -> list[ast.stmt]:
    kept: list[ast.stmt] = list(unit.statements)
    if unit.kind != units.LOOP:
        kept = pruning.without_what_was_built(kept, unit, names.local)
    body = pruning.without_logging(copy.deepcopy(kept), unit.failing, names.frame)
    first = names.code.co_varnames[0] if names.code.co_argcount else ""
    adapted = _Adapted(unit, first, alone)
    return [*_counted_back(unit, names), *(adapted.visit(one) for one in body)]


def _counted_back(unit: Unit, names: _Names) -> list[ast.stmt]:
    """Statements that give counters the value that they had when the failing pass began."""
    found = list[ast.stmt]()
    for name, by in unit.counted:
        if type(names.local.get(_mangled(name, unit.owner))) is int:
            back = ast.AugAssign(ast.Name(name, ast.Store()), ast.Sub(), ast.Constant(by))
            found.append(ast.fix_missing_locations(ast.copy_location(back, unit.statements[0])))
    return found


class _Adapted(ast.NodeTransformer):
    """What a function may not hold, or would take otherwise than the place that the statements come from."""

    def __init__(self, unit: Unit, first: str, alone: bool) -> None:
        self._unit, self._first, self._alone = unit, first, alone

    def visit_Global(self, node: ast.stmt) -> ast.stmt:  # the step declares all of them at its top
        return ast.copy_location(ast.Pass(), node)

    visit_Nonlocal = visit_Global  # noqa: N815

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        outside = node.module == "__future__" or any(alias.name == "*" for alias in node.names)
        return ast.copy_location(ast.Pass(), node) if outside else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:  # a global may not be annotated
        self.generic_visit(node)
        plain = ast.Assign([node.target], node.value) if node.value is not None else ast.Pass()
        return ast.copy_location(plain, node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if self._alone and node.value in rebinding.backward_calls([node]):
            if not units.stands_in(node, self._unit.failing):
                return ast.copy_location(ast.Pass(), node)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self._first:
            given = [ast.Name("__class__", ast.Load()), ast.Name(self._first, ast.Load())]
            node.args = [ast.copy_location(one, node) for one in given]
        return node

    def visit_FunctionDef(self, node: Any) -> Any:  # it has names, and a first argument, of its own
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef  # noqa: N815


def _refuse(body: list[ast.stmt], names: _Names, made: Collection[str]) -> None:
    if not names.is_module and names.code.co_name == _class_name(names.frame):
        raise CannotRebuild("class_body")
    if not any(not isinstance(one, ast.Pass) for one in body):
        raise CannotRebuild("nothing_left")
    if any(isinstance(node, _SUSPENDS) or getattr(node, "is_async", 0) for node in rebinding.own_nodes(body)):
        raise CannotRebuild("suspends")
    if not made and rebinding.loss_from_outside(body):
        raise CannotRebuild("loss_from_outside")
    needed = names.mangled(rebinding.flow(body).needed).difference(made)
    gone = sorted(name for name in needed if _is_gone(name, names))
    if gone:
        raise CannotRebuild("name_gone", name=gone[0])
    moving = _moving(body, names) if stack.is_running(names.frame) else ""
    if moving:
        raise CannotRebuild("iterator_moves_on", name=moving)


def _class_name(frame: FrameType) -> str:
    """The name of the class whose body a frame runs, ``""`` if it runs no class's."""
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED or "__qualname__" not in frame.f_locals:
        return ""
    return frame.f_code.co_name


def _is_gone(name: str, names: _Names) -> bool:
    if name in names.local:
        return False
    if not names.is_module and name in names.own:
        return True
    return name not in names.frame.f_globals and name not in names.frame.f_builtins


def _moving(body: list[ast.stmt], names: _Names) -> str:
    """The name of a generator that is read, while the program goes on: what is drawn from it, that would not get."""
    for name in sorted(names.mangled(rebinding.flow(body).used)):
        value = names.local.get(name, names.frame.f_globals.get(name))
        if introspection.is_a(value, GeneratorType):
            return name
    return ""


# -- the function ------------------------------------------------------------------------------------------------------


def _compiled(unit: Unit, body: list[ast.stmt], names: _Names) -> CodeType:
    """The code of the step, which stands for a part of the frame's code."""
    code = names.code
    module = _module(unit, body, names)
    futures = code.co_flags & provenance.FUTURES
    try:
        whole = compile(module, code.co_filename, "exec", flags=futures, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise CannotRebuild("does_not_compile", detail=str(error)) from None
    made = _renamed(next(one for one in _codes(whole) if one.co_name == _STEP), code)
    for one in _codes(made):
        provenance.cut_out(one, code)
    return made


def _module(unit: Unit, body: list[ast.stmt], names: _Names) -> ast.Module:
    body = pruning.within_switches(unit.around, body, names.frame)
    flow = rebinding.flow(body)
    used, stored = names.mangled(flow.used), names.mangled(flow.stored)
    if _BY_NAME & used:
        used |= names.own
    code, shared, given, missing = names.code, list[str](), list[str](), list[str]()
    if not names.is_module:
        shared = sorted({*code.co_cellvars, *code.co_freevars} & (used | stored) - {"__class__"})
        given = sorted(name for name in used & names.own - {*shared} if name in names.local)
        missing = sorted((used & names.own) - stored - {*shared, *given})
    once = ast.For(ast.Name(_ONCE, ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), body, [])
    outer = sorted(stored if names.is_module else stored - names.own if names.is_function else ())
    declared: list[ast.stmt] = [ast.Global(outer)] if outer else []
    declared += [ast.Nonlocal(written)] if (written := sorted({*shared} & stored)) else []
    declared += [_unbound(name) for name in missing]
    step = _function(_STEP, given, [*declared, once])
    held: ast.stmt = _class(unit.owner, step) if unit.owner else step
    return _placed(ast.Module([_function(_FACTORY, shared, [held])], []), code.co_firstlineno)


def _unbound(name: str) -> ast.stmt:
    """A local variable without a value, where a global of the same name would be found."""
    return ast.If(ast.Constant(False), [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))], [])


def _function(name: str, given: list[str], body: list[ast.stmt]) -> ast.stmt:
    given_ast = ast.arguments([], [ast.arg(one) for one in given], None, [], [], None, [])
    made = ast.FunctionDef(name, given_ast, body, [], None, None)
    return _without_type_parameters(made)


def _class(name: str, step: ast.stmt) -> ast.stmt:
    return _without_type_parameters(ast.ClassDef(name, [], [], [step], []))


def _without_type_parameters(node: ast.stmt) -> ast.stmt:
    if sys.version_info >= (3, 12):
        node.type_params = []  # type: ignore[attr-defined]
    return node


def _placed(module: ast.Module, line: int) -> ast.Module:
    """Give what was put round the statements the frame's first line; they keep their own."""
    for node in ast.walk(module):
        if isinstance(node, (ast.stmt, ast.expr, ast.arg)) and not hasattr(node, "lineno"):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    return module


def _codes(code: CodeType) -> list[CodeType]:
    """A code object and all that was compiled from within it."""
    return [code, *(inner for one in code.co_consts if isinstance(one, CodeType) for inner in _codes(one))]


def _renamed(made: CodeType, code: CodeType) -> CodeType:
    """The step's code, and that of functions in it, under the names that they have in the program."""
    name = made.co_name if made.co_name != _STEP else code.co_name
    inner = tuple(_renamed(one, code) if isinstance(one, CodeType) else one for one in made.co_consts)
    if sys.version_info >= (3, 11):
        _, _, below = made.co_qualname.rpartition(f"{_STEP}.<locals>.")
        around = f"{code.co_qualname}.<locals>." if code.co_flags & inspect.CO_OPTIMIZED else ""
        qualified = code.co_qualname if made.co_name == _STEP else f"{around}{below}"
        return made.replace(co_name=name, co_qualname=qualified, co_consts=inner)
    return made.replace(co_name=name, co_consts=inner)
