"""Where a class keeps what it was handed as something else than a parameter, under a name that no assignment shows.

``self.register_buffer(key, value)`` makes a buffer even of a Parameter; what is written into ``self.__dict__``, or by
``object.__setattr__``, goes past ``nn.Module.__setattr__``, which would have registered it; and what ``setattr`` is
given may be a plain copy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import attributes, locations, syntax
from gradkit.source.syntax import FUNCTIONS

_ITS_NAMES = ("__dict__", "_buffers")


def kept_at(cls: type, attribute: str) -> Location | None:
    """The line that keeps ``self.<attribute>`` of a class unregistered; None if there is none, or not just one.

    A line that writes the name out comes before those that are handed it.

    Args:
        cls: the class of the object that holds the attribute.
        attribute: its name.
    """
    told: dict[tuple[str, int], Location] = {}
    handed: dict[tuple[str, int], Location] = {}
    for file, function, method in _methods(cls):
        for node, key in _stores(method):
            if isinstance(key, ast.Constant) and key.value != attribute:
                continue
            spot = locations.place(file, node, function)
            (told if isinstance(key, ast.Constant) else handed).setdefault((file, spot.line), spot)
    found = told or handed
    return next(iter(found.values())) if len(found) == 1 else None


def put_at(way: Sequence[tuple[type, str]], key: str, files: Iterable[str]) -> Location | None:
    """The line that puts something into an object's table or list: ``graph.edata["w"] = nn.Parameter(...)``.

    A line of a class that holds the object comes before all others, and one that writes the key out before those that
    are handed it. Where the object's own method puts it there, what calls that is meant.

    Args:
        way: the class of each object on the way to the table, and the attribute taken from it; its own is the last.
        key: by which it lies there.
        files: the user's.

    Returns:
        None if there is none, or not just one.
    """
    *holders, (cls, attribute) = way
    methods = [one for holder, _ in holders for one in _methods(holder)]
    held = [one for file, name, node in methods for one in _puts(file, name, ast.walk(node), attribute)]
    own = {node.name for file, name, node in _methods(cls) if [*_puts(file, name, ast.walk(node), attribute)]}
    held = held or [one for file, name, node in methods for one in _hands(file, name, node, own)]
    anywhere = [
        one
        for file in files
        for node, around in syntax.statements(file)
        for one in _puts(file, syntax.function_of(around), [node], attribute)
    ]
    for found in (held, anywhere):
        lines = {(spot.file, spot.line): spot for spot, what in found if _is_key(what, key)}
        lines = lines or {(spot.file, spot.line): spot for spot, _ in found}
        if lines:
            return next(iter(lines.values())) if len(lines) == 1 else None
    return None


def _puts(
    file: str, function: str, nodes: Iterable[ast.AST], attribute: str
) -> Iterator[tuple[Location, ast.expr | None]]:
    for node in nodes:
        if isinstance(node, ast.stmt) and not isinstance(getattr(node, "body", None), list):
            for what in _put(node, attribute):
                yield locations.place(file, node, function), what


def _hands(file: str, function: str, method: ast.AST, named: set[str]) -> Iterator[tuple[Location, ast.expr | None]]:
    """The calls that hand a Parameter to a method of these names: ``self.store.put("w", nn.Parameter(...))``."""
    for call in ast.walk(method):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in named:
            values = syntax.arguments(call)
            if any(isinstance(one, ast.Call) and syntax.call_name(one) == "Parameter" for one in values):
                yield locations.place(file, call, function), next(iter(call.args), None)


def _is_key(what: ast.expr | None, key: str) -> bool:
    return isinstance(what, ast.Constant) and str(what.value) == key


def _put(statement: ast.stmt, attribute: str) -> Iterator[ast.expr | None]:
    """By which key a statement puts something into ``<any>.<attribute>``, once for each thing; None for no key."""
    for target, _ in syntax.pairs(statement):
        if isinstance(target, ast.Subscript) and _is_named(target.value, attribute):
            yield target.slice
    for call in ast.walk(statement):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and _is_named(call.func.value, attribute)
        ):
            if call.func.attr in ("append", "extend", "insert", "add", "setdefault"):
                yield call.args[0] if call.func.attr == "setdefault" and call.args else None
            elif call.func.attr == "update":
                yield from (ast.Constant(one.arg) if one.arg else None for one in call.keywords)
                yield from [None] * bool(call.args)


def _is_named(value: ast.expr, attribute: str) -> bool:
    return isinstance(value, ast.Attribute) and value.attr == attribute


def given_at(attribute: str, files: Iterable[str]) -> list[Location]:
    """The expressions that make a Parameter and hand it over by the name of an attribute: ``k1=nn.Parameter(...)``."""
    return [
        locations.place(file, one.value, syntax.function_of(around))
        for file in files
        for node, around in syntax.statements(file)
        if isinstance(node, ast.stmt) and not isinstance(getattr(node, "body", None), list)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        for one in call.keywords
        if one.arg == attribute and isinstance(one.value, ast.Call) and syntax.call_name(one.value) == "Parameter"
    ]


def _methods(cls: type) -> Iterator[tuple[str, str, syntax.Function]]:
    """File, qualified name and body of each method of a class that another does not stand in for."""
    hidden: set[str] = set()
    for file, body in attributes.bodies(cls):
        own = [node for node in body.body if isinstance(node, FUNCTIONS) and node.name not in hidden]
        yield from ((file, f"{body.name}.{one.name}", one) for one in own)
        hidden |= {one.name for one in own if "super" not in syntax.names_in(one)}


def _stores(method: ast.AST) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """Each node that keeps something past the parameters of a module, with the name it does so under; None for many."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call):
            yield from _by_call(node)
        for target, _ in syntax.pairs(node):
            if isinstance(target, ast.Subscript) and _is_table(target.value):
                yield node, target.slice


def _by_call(call: ast.Call) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    name, by = syntax.call_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    if name == "register_buffer" and by is not None and ast.unparse(by) in ("self", "super()"):
        yield call, syntax.argument(call, "name", 0)
    elif ast.unparse(call.func) in ("object.__setattr__", "setattr") and len(call.args) == 3:
        yield from [(call, call.args[1])] if ast.unparse(call.args[0]) == "self" else ()
    elif name == "update" and by is not None and _is_table(by):
        keys = [one.arg for one in call.keywords]
        yield from ((call, ast.Constant(key) if key else None) for key in keys or [None])


def _is_table(value: ast.expr) -> bool:
    """Whether an expression is the table of an object's own names: ``self.__dict__``, ``vars(self)``."""
    return ast.unparse(value) in ("vars(self)", *(f"self.{one}" for one in _ITS_NAMES))
