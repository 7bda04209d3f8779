"""Where an argument that a function was not given, or the key of a mapping, ought to have been given.

The function's caller is known from the run; from there the argument is followed back through the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.core.trace import Point
from gradkit.source import helpers, locations, syntax
from gradkit.source.callgraph import FunctionsRan
from gradkit.source.conditions import RequiredArgument
from gradkit.source.syntax import FUNCTIONS, Function, assigned, looked_up, parameters, same, stores

_DEEPEST = 6
_Value = ast.expr | ast.keyword | None  # an expression, ``**mapping``, or nothing


@dataclass(frozen=True)
class _Scope:
    """Where names are looked up: the functions around a line, innermost last, and where the run was in that one."""

    file: str
    functions: tuple[Function, ...]
    point: Point | None = None

    @property
    def name(self) -> str:
        return self.functions[-1].name if self.functions else ""


def missing_at(guard: RequiredArgument, ran: FunctionsRan, files: Iterable[str]) -> tuple[Location | None, bool]:
    """Where what a guard asks for ought to have been given, or is taken out again; None if it may have been given.

    Args:
        files: the user's, to look for functions and for what loads the data.

    Returns:
        The line, and whether it takes it out.
    """
    files, asked = tuple(files), (guard.file, guard.function, guard.argument, guard.key)
    taken = _taken_out(files, guard.key) if guard.key else []
    if len(taken) == 1:  # not where it is made without: that line alone would do
        made = _Search(ran, files).argument(*asked, sure=False)
        return made or taken[0], made is None
    return _Search(ran, files).argument(*asked, guard.alone), False


def _taken_out(files: Iterable[str], key: str) -> list[Location]:
    """The lines that take a key out of a mapping: ``batch.pop("image")``, ``del batch["image"]``."""
    return [
        locations.place(file, node, syntax.function_of(around))
        for file in dict.fromkeys(files)
        for node, around in syntax.statements(file)
        if key in map(_text, _keys_taken(node))
    ]


def _gone_through(made: ast.DictComp) -> ast.expr | None:
    """The mapping that a comprehension has all keys of: ``{k: v.to(device) for k, v in batch.items()}``."""
    loop = made.generators[0]
    named = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
    items = loop.iter.func if isinstance(loop.iter, ast.Call) and not loop.iter.args else None
    is_whole = (
        len(made.generators) == 1 and not loop.ifs and named is not None and ast.unparse(made.key) == ast.unparse(named)
    )
    return items.value if is_whole and isinstance(items, ast.Attribute) and items.attr == "items" else None


def _keys_taken(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Delete):
        return [one.slice for one in node.targets if isinstance(one, ast.Subscript)]
    return [*node.args[:1]] if isinstance(node, ast.Call) and syntax.call_name(node) == "pop" else []


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


class _Search:
    def __init__(self, ran: FunctionsRan, files: tuple[str, ...]) -> None:
        self.ran, self.files, self.left = ran, files, _DEEPEST

    def argument(self, file: str, function: Function, name: str, key: str, sure: bool) -> Location | None:
        """``sure``: it was not given, or given as None, whether that can be seen or not."""
        found = [self._missed(function, name, key, sure, *told) for told in self._given(file, function, name)]
        return found[0] if found and None not in found else None

    def _missed(
        self, function: Function, name: str, key: str, sure: bool, value: _Value, scope: _Scope, point: Point
    ) -> Location | None:
        """Where one call ought to have given it."""
        if value is None:
            return locations.locate(point) if not key and _is_optional(function, name) else None
        if isinstance(value, ast.keyword):
            found = self.lacking(value.value, name, scope) if not key else None
        elif key:
            found = self.lacking(value, key, scope)
        else:
            found = self.value(value, scope, sure)
        return found or (locations.locate(point) if sure else None)

    def value(self, value: ast.expr, scope: _Scope, sure: bool) -> Location | None:
        """Where a value that is None, or empty, comes from."""
        here = locations.place(scope.file, value, scope.name)
        if isinstance(value, ast.Constant):
            return here if not value.value else None
        function = scope.functions[-1] if scope.functions else None
        made = value
        if isinstance(value, ast.Name) and function is not None:
            if value.id in parameters(function) and not stores(function, value.id, value.lineno):
                return self.argument(scope.file, function, value.id, "", sure) or (here if sure else None)
            made = assigned(function, value.id, value.lineno) or value
        mapping, key = looked_up(made)
        found = self.lacking(mapping, key, scope) if mapping is not None else None
        return found or (here if sure else None)

    def lacking(self, mapping: ast.expr, key: str, scope: _Scope) -> Location | None:
        """Where a mapping is made without a key, or with None for it."""
        self.left -= 1
        if self.left < 0:
            return None
        here = locations.place(scope.file, mapping, scope.name)
        if isinstance(mapping, ast.Dict):
            told = [
                (ast.unparse(k) if k is not None else "", v) for k, v in zip(mapping.keys, mapping.values, strict=True)
            ]
            return None if any(not k for k, _ in told) else _entry(told, repr(key), here, scope)
        if isinstance(mapping, ast.DictComp):
            whole = _gone_through(mapping)
            return here if whole is None else self.lacking(whole, key, scope)
        if isinstance(mapping, ast.Name):
            return self._named(mapping, key, scope)
        if not isinstance(mapping, ast.Call):
            return None
        if ast.unparse(mapping.func) == "dict" and not mapping.args and all(k.arg for k in mapping.keywords):
            return _entry([(k.arg or "", k.value) for k in mapping.keywords], key, here, scope)
        if ast.unparse(mapping.func) == "next":
            return self._loaded(key)
        called = self.ran.called(scope.point, mapping) if scope.point is not None else None
        return self._returned(called or ("", 0, ast.unparse(mapping.func).rpartition(".")[2]), key)

    def _named(self, name: ast.Name, key: str, scope: _Scope) -> Location | None:
        for depth in range(len(scope.functions), -1, -1):
            function = scope.functions[depth - 1] if depth else locations.tree_of(scope.file)
            inner = _Scope(scope.file, scope.functions[:depth], scope.point if depth == len(scope.functions) else None)
            given = list(_given_to(name.id, function)) if function is not None else []
            if len(given) == 1:
                value = given[0]
                return self._loaded(key) if value is None else self.lacking(value, key, inner)
            if given:
                return None
            if isinstance(function, FUNCTIONS) and name.id in parameters(function):
                told = self._given(scope.file, function, name.id)
                mapping, outer = told[0][:2] if len(told) == 1 else (None, inner)
                return self.lacking(mapping, key, outer) if isinstance(mapping, ast.expr) else None
            if isinstance(function, FUNCTIONS) and function.args.kwarg and function.args.kwarg.arg == name.id:
                return self.argument(scope.file, function, key, "", sure=False)
        return None

    def _given(self, file: str, function: Function, name: str) -> list[tuple[_Value, _Scope, Point]]:
        """What each call of a function gave it, with the scope and the call; ``[]`` if that of one cannot be told."""
        names, rest = parameters(function), function.args.kwarg
        names = names[1:] if _is_method(file, function) else names
        found: list[tuple[_Value, _Scope, Point]] = []
        for point in self.ran.callers(file, function):
            call = locations.node_at(point) if point is not None else None
            if point is None or not isinstance(call, ast.Call) or any(isinstance(a, ast.Starred) for a in call.args):
                return []
            told = {k.arg: k.value for k in call.keywords if k.arg is not None}
            spreads = [k for k in call.keywords if k.arg is None]
            if len(call.args) > len(names) or len(spreads) > 1 or not (set(told) <= set(names) or rest):
                return []
            value = told.get(name) or dict(zip(names, call.args, strict=False)).get(name)
            scope = self._scope(point[0].co_filename, call, point)
            found.append((value or next(iter(spreads), None), scope, point))
        return found

    def _scope(self, file: str, node: ast.AST, point: Point | None) -> _Scope:
        around = next((around for other, around in syntax.statements(file) if same(other, node)), [])
        return _Scope(file, tuple(a for a in around if isinstance(a, FUNCTIONS)), point)

    def _returned(self, called: tuple[str, int, str], key: str) -> Location | None:
        """Where the mapping is made that a function of the user's returns, if it has one ``return``."""
        file, line, name = called
        found = [
            one
            for one in helpers.named(name, [file] if file else self.files)
            if not line or line in (one.node.lineno, *(mark.lineno for mark in one.node.decorator_list))
        ]
        values = helpers.ends(found[0]) if len(found) == 1 else []
        if len(values) != 1:
            return None
        scope = _Scope(values[0].file, tuple(reversed(values[0].functions())))
        return self.lacking(values[0].node, key, scope)

    def _loaded(self, key: str) -> Location | None:
        """Where what a loader hands out is made: by the one ``collate_fn`` in the files, else by ``__getitem__``."""
        calls = (node for file in self.files for node, _ in syntax.statements(file) if isinstance(node, ast.Call))
        given = {ast.unparse(k.value) for call in calls for k in call.keywords if k.arg == "collate_fn"}
        return self._returned(("", 0, given.pop() if given else "__getitem__"), key) if len(given) < 2 else None


def _entry(told: list[tuple[str, ast.expr]], key: str, here: Location, scope: _Scope) -> Location | None:
    """The mapping itself if it lacks the key; the None it has for it; None if it has something."""
    value = next((v for k, v in told if k == key), None)
    if value is None:
        return here
    return locations.place(scope.file, value, scope.name) if ast.unparse(value) == "None" else None


def _given_to(name: str, scope: ast.AST) -> Iterator[ast.expr | None]:
    """What a name is given in a function or a file, without the functions inside of it; None for what a loop gives."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(node)
        if isinstance(node, (ast.For, ast.AsyncFor)) and name in syntax.names_in(node.target):
            yield None
        for target, value in syntax.pairs(node):
            if isinstance(target, ast.Subscript) and name in syntax.names_in(target.value):
                yield from (value, value)  # it is given more entries later: who knows which
            elif name in syntax.names_in(target) and not isinstance(target, ast.Attribute):
                yield value if isinstance(target, ast.Name) else ast.Constant(1)


def _is_method(file: str, function: Function) -> bool:
    """Whether calls of a function leave out its first parameter."""
    around = next((around for node, around in syntax.statements(file) if same(node, function)), [])
    marks = [ast.unparse(mark) for mark in function.decorator_list]
    return bool(around) and isinstance(around[-1], ast.ClassDef) and "staticmethod" not in marks


def _is_optional(function: Function, name: str) -> bool:
    """Whether a parameter that is not given is None, False or empty."""
    given, told = function.args, syntax.default(function, name)
    known = name in [one.arg for one in (*given.posonlyargs, *given.args)]
    return not known or (told is not None and ast.unparse(told) in ("None", "False", "()", "[]", "''", "0"))
