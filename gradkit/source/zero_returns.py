"""A function that returns zeros at a position of its tuple whatever it is given: the line that returns them.

They are made there, ``torch.zeros_like(flow)`` or ``0 * grad``, and nothing writes into them; or what is written goes
into a copy, ``g[rows][mask] = s``, or is let go, ``g.index_add(0, rows, s)``. What stands behind a condition, is handed
to another function or has a second name may be written where this run did not: then nothing is said.
"""

from __future__ import annotations

import ast
from types import CodeType

from gradkit.core.records import Location
from gradkit.source import locations, returns, syntax
from gradkit.source.syntax import FUNCTIONS

_MAKERS = frozenset("zeros zeros_like new_zeros zero_".split())
_FULL = frozenset("full full_like new_full fill_".split())
_SHAPES = frozenset(
    "to type_as float half double bfloat16 contiguous clone detach view view_as reshape reshape_as expand expand_as "
    "unsqueeze squeeze permute transpose flatten t sum mean neg".split()
)
_OF_NEW = frozenset(
    "add sub mul div addcmul addcdiv index_add index_copy index_fill index_put index_reduce scatter scatter_add "
    "scatter_reduce masked_fill masked_scatter where fill copy".split()
)
"""Methods that leave their tensor as it is, and have a twin with ``_`` that writes into it."""
_FACTS = frozenset("shape dtype device layout ndim size dim numel stride is_cuda requires_grad".split())
_DEPTH = 3


def return_of_zeros(code: CodeType, position: int, inputs: int, *, untouched: bool) -> Location | None:
    """The last ``return`` of a function that gives zeros at a position, if it gives no more there in any case.

    Args:
        position: among the values that are not plainly None, if there are as many as ``inputs``.
        inputs: for how many tensors it has to return a gradient.
        untouched: the run showed that nothing was written into what it returned.
    """
    tree, function = locations.tree_at(code), returns.function_of(code)
    lines = {line for *_, line in code.co_lines() if line}
    if function is None or tree is None:
        return None
    reader = _Reader(syntax.named(tree), function, _DEPTH, untouched=untouched)
    found = [one for one in reader.returns if one.lineno in lines and not reader.gives_none(one, position, inputs)]
    if not found or not all(reader.gives_zeros(one, position, inputs) for one in found):
        return None
    return locations.place(code.co_filename, found[-1], locations.qualified_name(code))


class _Reader:
    """Reads one function.

    Attributes:
        returns: its own ``return`` statements.
    """

    def __init__(
        self, named: dict[str, list[syntax.Function]], function: syntax.Function, depth: int, *, untouched: bool
    ) -> None:
        self._named, self._depth, self._untouched = named, depth, untouched
        self._paths = [path for statement in function.body for path in syntax.paths(statement)]
        inner = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
        own = [p for p in self._paths if not any(isinstance(x, inner) for x in p[:-1])]
        self.returns = [path[-1] for path in own if isinstance(path[-1], ast.Return)]

    def gives_none(self, end: ast.Return, position: int, inputs: int) -> bool:
        """Whether a ``return`` plainly gives None at a position, or altogether."""
        at = self._at(end.value, position, inputs)
        return end.value is None or syntax.is_none(end.value) or (at is not None and syntax.is_none(at))

    def gives_zeros(self, end: ast.Return, position: int, inputs: int) -> bool:
        """Whether a ``return`` gives zeros at a position."""
        at = self._at(end.value, position, inputs)
        if at is not None:
            return self._is_zeros(at)
        return isinstance(end.value, ast.Call) and self._of_helper(end.value, position, inputs)

    def _at(self, value: ast.expr | None, position: int, inputs: int) -> ast.expr | None:
        """What stands at a position of what is returned; None if that cannot be read off."""
        given = self._given(value.id) if isinstance(value, ast.Name) else []
        value = given[0] if len(given) == 1 and isinstance(given[0], ast.Tuple) else value
        if not isinstance(value, ast.Tuple):
            return value if inputs == 1 and value is not None else None
        parts = value.elts
        parts = [one for one in parts if not syntax.is_none(one)] if len(parts) != inputs else parts
        return parts[position] if len(parts) == inputs and not _is_starred(value) else None

    def _is_zeros(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Constant):
            return type(value.value) in (int, float) and value.value == 0
        if isinstance(value, ast.Name):
            return self._are_zeros(value.id)
        if isinstance(value, ast.UnaryOp):
            return self._is_zeros(value.operand)
        if isinstance(value, ast.BinOp):
            sides = [self._is_zeros(value.left), self._is_zeros(value.right)]
            if isinstance(value.op, (ast.Add, ast.Sub)):
                return all(sides)
            return any(sides) if isinstance(value.op, ast.Mult) else isinstance(value.op, ast.Div) and sides[0]
        if isinstance(value, ast.IfExp):
            return all(syntax.is_none(one) or self._is_zeros(one) for one in (value.body, value.orelse))
        return isinstance(value, ast.Call) and self._is_made_of_zeros(value)

    def _is_made_of_zeros(self, call: ast.Call) -> bool:
        name = syntax.call_name(call)
        if name in _MAKERS:
            return True
        if name in _FULL:
            number = syntax.argument(call, "fill_value", 0 if name == "fill_" else 1)
            return isinstance(number, ast.Constant) and self._is_zeros(number)
        if name in _SHAPES and isinstance(call.func, ast.Attribute):
            return self._is_zeros(call.func.value)
        return self._of_helper(call, 0, 1)

    def _of_helper(self, call: ast.Call, position: int, inputs: int) -> bool:
        """Whether a function of the same file, of which there is one by this name, gives zeros at a position."""
        found = self._named.get(syntax.call_name(call), [])
        if len(found) != 1 or not self._depth:
            return False
        reader = _Reader(self._named, found[0], self._depth - 1, untouched=self._untouched)
        ends = [one for one in reader.returns if not reader.gives_none(one, position, inputs)]
        return bool(ends) and all(reader.gives_zeros(one, position, inputs) for one in ends)

    def _given(self, name: str) -> list[ast.expr]:
        """What a name is given, whole."""
        pairs = [pair for path in self._paths for pair in syntax.pairs(path[-1])]
        return [value for target, value in pairs if isinstance(target, ast.Name) and target.id == name]

    def _are_zeros(self, name: str) -> bool:
        """Whether a name stands for zeros wherever it is given something, and nothing is written into them."""
        uses = [path for path in self._paths if isinstance(path[-1], ast.Name) and path[-1].id == name]
        given = [value for value in self._given(name) if not syntax.is_none(value)]
        parts = list(self._parts(name))
        stores = sum(isinstance(path[-1].ctx, ast.Store) for path in uses)  # type: ignore[attr-defined]
        if not (given or parts) or stores != len(self._given(name)) + len(parts):
            return False
        if not all(map(self._is_zeros, given)) or not all(self._of_helper(*one) for one in parts):
            return False
        return all(self._only_reads(path) for path in uses if isinstance(path[-1].ctx, ast.Load))  # type: ignore[attr-defined]

    def _parts(self, name: str) -> list[tuple[ast.Call, int, int]]:
        """The calls that a name is given a part of what they return of: the call, the position, and of how many."""
        pairs = (pair for path in self._paths for pair in syntax.pairs(path[-1]))
        return [
            (value, at, len(target.elts))
            for target, value in pairs
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Call) and not _is_starred(target)
            for at, one in enumerate(target.elts)
            if isinstance(one, ast.Name) and one.id == name
        ]

    def _only_reads(self, path: list[ast.AST]) -> bool:
        """Whether one use of a name, at the end of the nodes that lead to it, leaves what it stands for as it is."""
        name, around = path[-1], path[-2]
        if any(isinstance(one, (*FUNCTIONS, ast.Lambda, ast.ClassDef)) for one in path):
            return False
        if isinstance(around, (ast.Return, ast.Compare)):
            return True
        if isinstance(around, ast.Tuple):
            return isinstance(path[-3], ast.Return) or _is_given_to_a_name(path[-3], around)
        if isinstance(around, ast.BinOp):
            return True
        if isinstance(around, ast.Attribute) and around.attr in _FACTS:
            return True
        if isinstance(around, ast.Attribute):
            return self._is_of_new(path)
        return self._untouched and isinstance(around, ast.Subscript) and around.value is name and _is_into_a_copy(path)

    @staticmethod
    def _is_of_new(path: list[ast.AST]) -> bool:
        """Whether a method is called of which the result is let go, and which makes a new tensor: ``g.add(s)``."""
        called = isinstance(path[-3], ast.Call) and path[-3].func is path[-2] and isinstance(path[-4], ast.Expr)
        return called and path[-2].attr in _OF_NEW  # type: ignore[attr-defined]


def _is_into_a_copy(path: list[ast.AST]) -> bool:
    """Whether ``g[rows][mask] = s`` is run in any case: that nothing was written then shows that rows makes a copy."""
    statement, part = path[0], path[-3]
    whole = isinstance(statement, (ast.Assign, ast.AugAssign)) and len(path) > 3
    return whole and isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store) and part.value is path[-2]


def _is_given_to_a_name(statement: ast.AST, value: ast.Tuple) -> bool:
    """Whether a tuple is given a name as a whole: ``grads = a, b``."""
    named = isinstance(statement, ast.Assign) and statement.value is value
    return named and all(isinstance(one, ast.Name) for one in statement.targets)  # type: ignore[attr-defined]


def _is_starred(value: ast.Tuple) -> bool:
    return any(isinstance(one, ast.Starred) for one in value.elts)
