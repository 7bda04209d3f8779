"""The lines that set a flag which an object or a table holds: ``self.second_order``, ``cfg["second_order"]``.

Attributes, fields of a class, entries of a dictionary and what a constructor is given are looked up by the flag's name,
and followed through parameters to the calls that give them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradkit.core.records import Location
from gradkit.source import locations, syntax

_DEEPEST = 4
_TABLES = frozenset(
    "dict SimpleNamespace Namespace EasyDict AttrDict DotDict Munch Box ConfigDict update replace".split()
)
_UPDATES = frozenset(("replace", "update", "_replace"))


@dataclass(frozen=True)
class Held:
    """A flag that is read off something.

    Attributes:
        name: its name there.
        owner: of ``self.name``, the qualified name of the method that reads it; ``""`` for that of any object or table.
        key: it is an entry, and no attribute.
    """

    name: str
    owner: str = ""
    key: bool = False


@dataclass(frozen=True)
class End:
    """A line that says whether a flag is on.

    Attributes:
        location: the line.
        name: what is given there: the flag, or the parameter that is handed on to it.
        is_on: what it says.
        by_default: it is a default that nobody overrides.
        turned: the flag is ``not`` what is given there.
    """

    location: Location
    name: str
    is_on: bool
    by_default: bool = False
    turned: bool = False


def bare(value: ast.expr) -> tuple[ast.expr, bool]:
    """What stands in ``not x`` or ``bool(x)``, and whether it is the opposite of it.

    Example:
        >>> value, opposite = bare(ast.parse("not bool(first_order)", mode="eval").body)
        >>> ast.unparse(value), opposite
        ('first_order', True)
    """
    opposite = False
    while True:
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
            value, opposite = value.operand, not opposite
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "bool" and len(value.args) == 1:
            value = value.args[0]
        else:
            return value, opposite


def read(value: ast.expr, function: str) -> Held | None:
    """The flag that an expression reads off an object or a table; None if it reads none.

    Args:
        function: the qualified name of the function that the expression stands in.

    Example:
        >>> read(ast.parse("self.cfg['second_order']", mode="eval").body, "Net.forward")
        Held(name='second_order', owner='', key=True)
    """
    if isinstance(value, ast.Attribute):
        own = isinstance(value.value, ast.Name) and value.value.id == "self"
        return Held(value.attr, function if own else "")
    _, key = syntax.looked_up(value)
    return Held(key, key=True) if key else None


def gives(call: ast.Call, name: str, function: syntax.Function) -> bool:
    """Whether a call may give a function's parameter: by its name, by its position, or by what it spreads out."""
    return syntax.handed(call, function, name) is not None or _spreads(call)


def _spreads(call: ast.Call) -> bool:
    return any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)


def ends(held: Held, files: Sequence[str]) -> tuple[End, ...] | None:
    """The lines that set a flag; None if one of them sets it to what cannot be read."""
    try:
        return tuple(_Search(tuple(files)).ends(held, 0))
    except _UnreadableError:
        return None


class _UnreadableError(Exception):
    """A flag is set to what is not plain."""


@dataclass(frozen=True)
class _Place:
    """Where an expression stands: its file, the statements around it, and the name that it is given for."""

    file: str
    around: tuple[Any, ...]
    name: str

    def end(self, node: ast.AST, value: bool, *, by_default: bool = False) -> End:
        spot = locations.place(self.file, node, syntax.function_of(self.around))
        return End(spot, self.name, value, by_default)


class _Search:
    """Looks through files for what sets a flag."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files

    def ends(self, held: Held, depth: int) -> Iterator[End]:
        if depth > _DEEPEST:
            raise _UnreadableError
        for place, value in self._setting(held):
            yield from self._said(place, value, held, depth)

    def _setting(self, held: Held) -> Iterator[tuple[_Place, ast.expr]]:
        """What is given to a flag, and where: each statement, entry, keyword and field of its name."""
        related = self._related(held.owner)
        for file, node, around in self._nodes():
            place = _Place(file, tuple(around), held.name)
            if related is None or _owner(node, around) in ("", *related):
                given = list(_given_to(node, around, held, related))
                if given and not self._is_left_aside(node, around):
                    yield from ((place, value) for value in given)

    def _is_left_aside(self, node: ast.AST, around: Sequence[Any]) -> bool:
        """Whether a table stands in for an argument that all calls give: ``given or {...}``, ``if given is None:``."""
        function = syntax.innermost_function(around)
        name = _stands_in_for(node, around) if function is not None else ""
        if function is None or name not in syntax.parameters(function):
            return False
        outer = list(around[: list(around).index(function)])
        calls = [syntax.handed(call, function, name) for _, call, _ in self._calls(function, outer)]
        return bool(calls) and not any(one is None or syntax.is_none(one) for one in calls)

    def _nodes(self) -> Iterator[tuple[str, Any, list[Any]]]:
        for file in self._files:
            yield from ((file, node, around) for node, around in syntax.statements(file))

    def _related(self, owner: str) -> frozenset[str] | None:
        """The class of a method, those that it is derived from, and those derived from it; None for no class."""
        bases = self._bases
        inside = [one for one in owner.split(".") if one in bases]
        if not inside:
            return None
        up, down = {inside[-1]}, {inside[-1]}
        for _ in bases:
            up |= {base for one in up for base in bases.get(one, ())}
            down |= {one for one, above in bases.items() if down & set(above)}
        return frozenset(up | down)

    @functools.cached_property
    def _bases(self) -> dict[str, list[str]]:
        """The classes of the files, each with the names of those that it is derived from."""
        nodes = (node for _, node, _ in self._nodes() if isinstance(node, ast.ClassDef))
        return {node.name: syntax.bases(node) for node in nodes}

    def _said(self, place: _Place, value: ast.expr, held: Held, depth: int) -> Iterator[End]:
        """The lines that say what an expression is."""
        plain, turned = bare(_default_of_field(value))
        if isinstance(plain, ast.Constant):
            left = self._of_field(place, plain, turned, held)
            yield from (_turned(place.end(value, bool(plain.value)), turned),) if left is None else left
            return
        again = read(plain, syntax.function_of(place.around))
        if again is not None and again.name == held.name:
            return  # it is handed on under its own name
        found = list(self._followed(place, plain, again, depth))
        yield from (_turned(one, turned) for one in found)

    def _followed(self, place: _Place, value: ast.expr, held: Held | None, depth: int) -> Iterator[End]:
        if held is not None:
            yield from self.ends(held, depth + 1)
            return
        function = syntax.innermost_function(place.around)
        if not isinstance(value, ast.Name) or depth >= _DEEPEST:
            raise _UnreadableError
        inner = replace(place, name=value.id)
        if function is not None and value.id in syntax.parameters(function):
            if syntax.stores(function, value.id, value.lineno):
                raise _UnreadableError
            yield from self._of_parameter(inner, function, depth)
            return
        is_local = function is not None and bool(syntax.stores(function, value.id, value.lineno))
        of_module = None if is_local else _of_module(place.file, value.id)
        bound = syntax.assigned(function, value.id, value.lineno) if function is not None and is_local else of_module
        if bound is None:
            raise _UnreadableError
        yield from self._said(inner, bound, Held(value.id), depth + 1)

    def _of_parameter(self, place: _Place, function: syntax.Function, depth: int) -> Iterator[End]:
        """What the calls of a function give for a parameter; its default, where none does."""
        around = place.around[: place.around.index(function)]
        default = syntax.default(function, place.name)
        calls = list(self._giving(function, around, place.name, depth))
        some = any(value is not None for *_, value in calls)
        for file, call, outer, value in calls:
            there = _Place(file, tuple(outer), place.name)
            if value is not None:
                yield from self._said(there, value, Held(place.name), depth + 1)
            elif some:
                yield there.end(call, self._is_on(default))
        if not some:
            yield place.end(default, self._is_on(default), by_default=True) if default is not None else _unreadable()

    def _giving(
        self, function: syntax.Function, around: Sequence[Any], name: str, depth: int, *, by_name: bool = False
    ) -> Iterator[tuple[str, ast.Call, list[Any], ast.expr | None]]:
        """The calls of a function, each with what it gives for a parameter; None if it leaves that out.

        Where a call spreads out what its own function was given by name (``**options``), they are the calls of that.

        Args:
            by_name: the function has no such parameter, and takes it as one of ``**options``.
        """
        for file, call, outer in self._calls(function, around):
            named = next((one.value for one in call.keywords if one.arg == name), None)
            value = named if by_name else syntax.handed(call, function, name)
            inner = syntax.innermost_function(outer)
            if value is not None or not _spreads(call):
                yield file, call, outer, value
            elif inner is None or depth >= _DEEPEST or not _hands_on(call, inner):
                raise _UnreadableError
            else:
                further = list(self._giving(inner, outer[: outer.index(inner)], name, depth + 1, by_name=True))
                yield from further or _unreadable()

    def _calls(self, function: syntax.Function, around: Sequence[Any]) -> Iterator[tuple[str, ast.Call, list[Any]]]:
        """The calls of a function; of ``__init__``, those that make its class or one derived from it."""
        inside = around[-1] if function.name == "__init__" and around else None
        owner = inside.name if isinstance(inside, ast.ClassDef) else ""
        names = self._made_by(owner) if owner else {function.name}
        for file, node, outer in self._nodes():
            if not isinstance(node, ast.Call):
                continue
            if syntax.call_name(node) in names or (owner and self._is_super(node, outer, owner)):
                yield file, node, outer

    def _made_by(self, owner: str) -> set[str]:
        """A class, and those derived from it that have no ``__init__`` of their own."""
        classes = [node for _, node, _ in self._nodes() if isinstance(node, ast.ClassDef)]
        own = {one.name for one in classes if any(getattr(x, "name", "") == "__init__" for x in one.body)}
        found = {owner}
        for _ in classes:
            found |= {one for one, above in self._bases.items() if found & set(above) and one not in own}
        return found

    def _is_super(self, node: ast.Call, around: Sequence[Any], owner: str) -> bool:
        inside = next((one.name for one in reversed(around) if isinstance(one, ast.ClassDef)), "")
        ways = ("super().__init__", f"super({inside}, self).__init__", f"{owner}.__init__")
        return ast.unparse(node.func) in ways and owner in self._bases.get(inside, ())

    def _of_field(self, place: _Place, value: ast.Constant, turned: bool, held: Held) -> list[End] | None:
        """A field that a constructor may be given: the calls that leave it out, or its default; None if it is none."""
        inside = place.around[-1] if place.around and isinstance(place.around[-1], ast.ClassDef) else None
        if inside is None or not isinstance(inside, ast.ClassDef) or not _is_of_fields(inside):
            return None
        names = self._made_by(inside.name)
        calls = [one for one in self._nodes() if isinstance(one[1], ast.Call) and syntax.call_name(one[1]) in names]
        if any(_spreads(call) for _, call, _ in calls):
            raise _UnreadableError
        is_on, some = bool(value.value) is not turned, any(_keyword(call, held.name) for _, call, _ in calls)
        left = [_Place(f, tuple(a), held.name).end(c, is_on) for f, c, a in calls if not _keyword(c, held.name)]
        return left if some else [place.end(value, is_on, by_default=True)]

    @staticmethod
    def _is_on(default: ast.expr | None) -> bool:
        plain, turned = bare(default) if default is not None else (None, False)
        return bool(plain.value) is not turned if isinstance(plain, ast.Constant) else _unreadable()


def _of_module(file: str, name: str) -> ast.expr | None:
    """What a global variable of a file is given, if that happens once."""
    tree = locations.tree_of(file)
    given = [pair for one in (tree.body if tree is not None else ()) for pair in syntax.pairs(one)]
    found = [value for target, value in given if ast.unparse(target) == name]
    return found[0] if len(found) == 1 else None


def _unreadable() -> Any:
    raise _UnreadableError


def _turned(end: End, turned: bool) -> End:
    return replace(end, turned=end.turned is not turned)


def _stands_in_for(node: ast.AST, around: Sequence[Any]) -> str:
    """The variable in whose place a table is made, where that is None or empty; ``""`` if it is made in any case."""
    for outer in reversed(around):
        if isinstance(outer, ast.If) and any(node in ast.walk(one) for one in outer.body):
            test = ast.unparse(outer.test)
            return test.removesuffix(" is None") if test.endswith(" is None") else test.removeprefix("not ")
        plain = isinstance(outer, ast.stmt) and not hasattr(outer, "body")
        either = [one for one in ast.walk(outer) if isinstance(one, ast.BoolOp) and isinstance(one.op, ast.Or)]
        found = [one for one in either if plain and any(node in ast.walk(part) for part in one.values[1:])]
        if found:
            return ast.unparse(found[0].values[0])
    return ""


def _hands_on(call: ast.Call, function: syntax.Function) -> bool:
    """Whether all that a call spreads out is what its function takes by name: ``**options``."""
    rest = function.args.kwarg
    spread = [ast.unparse(one.value) for one in call.keywords if one.arg is None]
    return rest is not None and spread == [rest.arg] and not any(isinstance(one, ast.Starred) for one in call.args)


def _keyword(call: ast.Call, name: str) -> bool:
    return any(one.arg == name for one in call.keywords)


def _is_of_fields(node: ast.ClassDef) -> bool:
    """Whether what a class lists are the arguments of its constructor."""
    marks = [ast.unparse(one) for one in (*node.decorator_list, *node.bases)]
    return any(word in one for one in marks for word in ("dataclass", "NamedTuple", "BaseModel", "attr", "define"))


def _default_of_field(value: ast.expr) -> ast.expr:
    """``False`` of ``field(default=False)``."""
    if isinstance(value, ast.Call) and syntax.call_name(value) in ("field", "Field", "ib"):
        return next((one.value for one in value.keywords if one.arg == "default"), value)
    return value


def _owner(node: ast.AST, around: Sequence[Any]) -> str:
    """The class whose own attribute a statement sets; ``""`` if it sets that of some other object."""
    inside = next((one.name for one in reversed(around) if isinstance(one, ast.ClassDef)), "")
    targets = [one for one, _ in syntax.pairs(node)]
    own = isinstance(node, (ast.Assign, ast.AnnAssign)) and all(_is_own(one, around) for one in targets)
    return inside if own else ""


def _is_own(target: ast.expr, around: Sequence[Any]) -> bool:
    in_class = bool(around) and isinstance(around[-1], ast.ClassDef)
    return in_class or (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self")


def _given_to(node: ast.AST, around: Sequence[Any], held: Held, related: frozenset[str] | None) -> Iterator[ast.expr]:
    """What a statement, a dictionary or a call gives to a flag of this name."""
    in_class = bool(around) and isinstance(around[-1], ast.ClassDef)
    for target, value in syntax.pairs(node):
        if isinstance(target, ast.Subscript):
            if syntax.looked_up(target)[1] == held.name and not held.owner:
                yield value
        elif not held.key and (
            (isinstance(target, ast.Attribute) and target.attr == held.name)
            or (in_class and isinstance(target, ast.Name) and target.id == held.name)
        ):
            yield value
    if isinstance(node, ast.Dict) and not held.owner:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == held.name:
                yield value
    if isinstance(node, ast.Call):
        yield from _given_by(node, held, related)


def _given_by(call: ast.Call, held: Held, related: frozenset[str] | None) -> Iterator[ast.expr]:
    name, words = syntax.call_name(call), [ast.unparse(one) for one in call.args[:2]]
    if name in ("setattr", "setdefault", "add_argument") and any(_is_word(one, held.name) for one in words):
        yield call.args[2] if name == "setattr" and len(call.args) > 2 else call  # of the others, it cannot be read
        return
    is_maker = name in _TABLES or (name[:1].isupper() and not held.key)
    if name in _UPDATES or (is_maker if related is None else name in related):
        yield from (one.value for one in call.keywords if one.arg == held.name)


def _is_word(text: str, name: str) -> bool:
    return text.strip("'\"").lstrip("-").replace("-", "_") == name
