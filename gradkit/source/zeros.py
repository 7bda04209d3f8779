"""Where a number became 0: from the argument that it was handed as, back to the line that rounds it away or writes it.

Nothing is run. Of two ways that fit equally well none is taken.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from gradkit.core.records import Location
from gradkit.source import attributes, locations, syntax
from gradkit.source.syntax import FUNCTIONS

_DEEPEST = 8
_ROUNDING = frozenset("int round floor trunc".split())


def written_at(file: str, value: ast.expr) -> Location | None:
    """The line that makes a value 0, or writes it, if that is another than where the value stands itself.

    Args:
        file: where the value stands.
        value: an expression of the file's, also of a tree that was parsed apart.
    """
    tree = locations.tree_of(file)
    if tree is None:
        return None
    source = _Source(tree)
    node = next((one for one in source.tree.nodes if isinstance(one, ast.expr) and syntax.same(value, one)), None)
    found = source.follow(node) if node is not None else None
    if found is None or node is None or found.lineno == node.lineno:
        return None
    around = source.tree.inside(found)
    return locations.place(file, found, syntax.function_of(around))


def filling_line(chain: Sequence[tuple[type, str]]) -> Location | None:
    """The one line of the user's classes that fills a parameter with zeros; None if there is none, or several.

    Args:
        chain: the class of each module on the way to it, and the attribute taken from it, outermost first.
    """
    found = dict[tuple[str, int], Location]()
    for step, (cls, _) in enumerate(chain):
        name = ".".join(("self", *(part for _, part in chain[step:])))
        for file, body in attributes.bodies(cls):
            for method in body.body:
                for call in (one for one in ast.walk(method) if isinstance(one, ast.Call)):
                    if _fills(call) == name and isinstance(method, FUNCTIONS):
                        spot = locations.place(file, call, f"{body.name}.{method.name}")
                        found[(spot.file, spot.line)] = spot
    return next(iter(found.values())) if len(found) == 1 else None


def made_in_helper(spot: Location) -> Location | None:
    """The line of the user's helper that makes the zeros which are assigned at a line: ``self.a = init(2, 3)``.

    The helper may be a function, a lambda or a method, also one that was handed over as an argument; of several that
    may have been, the one that makes zeros is it. None if that is none or several, or if one of them is not seen.
    """
    tree = locations.tree_of(spot.file)
    if tree is None:
        return None
    source = _Source(tree)
    calls = [one for one in source.tree.nodes if isinstance(one, ast.Call) and one.lineno == spot.line]
    call = next((one for one in calls if one.col_offset + 1 == spot.column), None)
    if call is None:
        return None
    returned = any(isinstance(one, ast.Return) for one in source.tree.inside(call))
    found = source.maker(call) or (source.zeros_in(call) if returned else None)
    return locations.place(spot.file, found, syntax.function_of(source.tree.inside(found))) if found else None


def _fills(call: ast.Call) -> str:
    """What a call fills with zeros, as source code; ``""`` if it is no such call."""
    word, target = syntax.call_name(call), call.args[0] if call.args else None
    if word in ("zero_", "fill_") and isinstance(call.func, ast.Attribute):
        zero, target = word == "zero_" or (target is not None and _is_zero(target)), call.func.value
    else:
        value = syntax.argument(call, "val", 1)
        zero = word == "zeros_" or (word == "constant_" and value is not None and _is_zero(value))
    return ast.unparse(target).removesuffix(".data") if zero and target is not None else ""


class _Source:
    """A file's assignments, classes and calls, by the names that they give values to."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = syntax.Tree(tree)

    def follow(self, value: ast.expr, depth: int = 0) -> ast.expr | None:
        """The expression that makes a value 0: a number written out, or one that rounds; None if that is not plain."""
        if _is_zero(value) or _rounds(value):
            return value
        if depth > _DEEPEST:
            return None
        if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Call, ast.IfExp)):
            ways = [one for one in ast.iter_child_nodes(value) if isinstance(one, ast.expr)]
            ways = ways[1:] if isinstance(value, ast.Call) else ways
            ways = ways[:1] if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) else ways
        elif isinstance(value, (ast.ListComp, ast.GeneratorExp)):
            ways = [value.elt]
        else:
            ways = list(self._given(value))
            if len(ways) > 1:
                return None
        ends = [end for end in (self.follow(one, depth + 1) for one in ways) if end is not None]
        return ends[0] if len({end.lineno for end in ends}) == 1 else None

    def maker(self, call: ast.Call, depth: int = 0) -> ast.expr | None:
        """The expression that makes the zeros which a call of the user's own function returns."""
        helpers = self._helpers(call.func, depth)
        if depth > _DEEPEST or None in helpers:
            return None
        makers = [self._made_by(one, depth) for one in dict.fromkeys(helpers)]
        zeros = [one for one in makers if one is not None]
        return zeros[0] if len(zeros) == 1 else None

    def _helpers(self, called: ast.expr, depth: int) -> list[Any]:
        """The functions that an expression may stand for; a None among them for one that is not seen."""
        if isinstance(called, ast.Lambda):
            return [called]
        method = isinstance(called, ast.Attribute)
        if depth > _DEEPEST or (method and ast.unparse(called.value) not in ("self", "cls")):  # type: ignore[attr-defined]
            return [None]
        given, word = list(self._given(called)), getattr(called, "attr", getattr(called, "id", ""))
        if given or any(word in syntax.parameters(one) for one in self._around(called)):
            return [helper for one in given for helper in self._helpers(one, depth + 1)] or [None]
        defined = [one for one in self.tree.nodes if isinstance(one, FUNCTIONS) and one.name == word]
        defined = [one for one in defined if isinstance(self.tree.inside(one)[-1], ast.ClassDef) is method]
        return defined if len(defined) == 1 else [None]

    def _around(self, node: ast.AST) -> list[Any]:
        """The functions around a node, innermost first."""
        return [one for one in reversed(self.tree.inside(node)) if isinstance(one, FUNCTIONS)]

    def _made_by(self, function: Any, depth: int) -> ast.expr | None:
        """The expression of a function that makes the zeros which it returns."""
        if isinstance(function, ast.Lambda):
            return self.zeros_in(function.body, depth)
        own = [one for one in self.tree.nodes if self.tree.function(one) is function]
        ends = [one.value for one in own if isinstance(one, ast.Return) and one.value is not None]
        return self.zeros_in(ends[0], depth) if len(ends) == 1 else None

    def zeros_in(self, value: ast.expr, depth: int = 0) -> ast.expr | None:
        """The expression that makes the zeros of a value, as it stands in a function or by a name of its own."""
        if any(isinstance(one, ast.Call) and _is_of_zeros(one) for one in ast.walk(value)):
            return value
        if isinstance(value, ast.Call) and syntax.call_name(value) == "Parameter" and value.args:
            return self.zeros_in(value.args[0], depth)
        if not isinstance(value, ast.Name):
            return self.maker(value, depth + 1) if isinstance(value, ast.Call) else None
        function = self.tree.function(value)
        own = [one for one in self.tree.nodes if self.tree.function(one) is function]
        filled = [one for one in own if isinstance(one, ast.Call) and _fills(one) == value.id]
        given = list(self._of_name(value)) if not filled and depth <= _DEEPEST else []
        return filled[-1] if filled else self.zeros_in(given[-1], depth + 1) if given else None

    def _given(self, value: ast.expr) -> Iterator[ast.expr]:
        """All that a name, an attribute or an entry of a dictionary is given in this file."""
        if isinstance(value, ast.Name):
            yield from self._of_name(value)
        elif isinstance(value, ast.Attribute):
            yield from self._assigned(ast.Attribute, value.attr) or self._of_key(value.attr)
        elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            yield from self._assigned(ast.Subscript, value.slice.value) or self._of_key(value.slice.value)

    def _of_name(self, value: ast.Name) -> Iterator[ast.expr]:
        for scope in (*self._around(value), None):
            found = [
                given
                for node in self.tree.nodes
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and self.tree.function(node) is scope
                for target, given in syntax.pairs(node)
                if isinstance(target, ast.Name) and target.id == value.id
            ]
            if found:
                yield from found
                return
            if isinstance(scope, FUNCTIONS) and value.id in syntax.parameters(scope):
                yield from self._handed(scope, value.id)
                return

    def _handed(self, function: Any, name: str) -> Iterator[ast.expr]:
        """What the calls of a function hand to one of its parameters; its default, where they hand nothing."""
        names = [one for one in syntax.parameters(function) if one not in ("self", "cls")]
        owner = self.tree.inside(function)[-1]
        called = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
        calls = [one for one in self.tree.nodes if isinstance(one, ast.Call) and syntax.call_name(one) == called]
        given = [syntax.argument(one, name, names.index(name)) for one in calls]
        yield from (one for one in given if one is not None)
        if not given or None in given:
            arguments = function.args
            plain = [*arguments.posonlyargs, *arguments.args]
            defaults = dict(zip(reversed(plain), reversed(arguments.defaults), strict=False))
            defaults |= dict(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
            yield from (one for key, one in defaults.items() if key.arg == name and one is not None)

    def _assigned(self, kind: type[ast.Attribute | ast.Subscript], key: object) -> list[ast.expr]:
        """What is given to ``anything.key``, or to ``anything[key]``."""
        found = []
        for node in self.tree.nodes:
            for target, given in syntax.pairs(node):
                name = getattr(target, "attr", None) if kind is ast.Attribute else _key(target)
                if isinstance(target, kind) and name == key:
                    found.append(given)
        return found

    def _of_key(self, key: object) -> list[ast.expr]:
        """What a setting of this name is given: by a call, in a dictionary, as a default of a class or of an option."""
        handed, defaults = list[ast.expr](), list[ast.expr]()
        for node in self.tree.nodes:
            if isinstance(node, ast.Call) and syntax.call_name(node) == "add_argument":
                options = [one.value for one in node.args if isinstance(one, ast.Constant)]
                if key in [str(one).lstrip("-").replace("-", "_") for one in options]:
                    defaults += [one.value for one in node.keywords if one.arg == "default"]
            elif isinstance(node, ast.Call):
                handed += [one.value for one in node.keywords if one.arg == key and _last(one.value) != key]
            elif isinstance(node, ast.Dict):
                handed += [one for name, one in zip(node.keys, node.values, strict=True) if _constant(name) == key]
            elif isinstance(node, ast.ClassDef):
                pairs = (pair for one in node.body for pair in syntax.pairs(one))
                defaults += [given for target, given in pairs if isinstance(target, ast.Name) and target.id == key]
        return handed or defaults


def _is_of_zeros(call: ast.Call) -> bool:
    """Whether a call makes a tensor of zeros, or fills one."""
    word = syntax.call_name(call)
    if word in ("full", "full_like", "new_full"):
        fill = syntax.argument(call, "fill_value", 1)
        return fill is not None and _is_zero(fill)
    return word in ("zeros", "zeros_like", "new_zeros") or bool(_fills(call))


def _last(value: ast.expr) -> object:
    """The name that a value is handed on by: ``"lr"`` of ``args.lr``."""
    return getattr(value, "attr", getattr(value, "id", None)) or _key(value)


def _key(target: ast.expr) -> object:
    return _constant(target.slice) if isinstance(target, ast.Subscript) else None


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_zero(value: ast.expr) -> bool:
    given = _constant(value)
    return isinstance(given, (int, float)) and not isinstance(given, bool) and given == 0


def _rounds(value: ast.expr) -> bool:
    """Whether an expression loses what is behind the point."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return True
        if isinstance(node, ast.Call) and syntax.call_name(node) in _ROUNDING and _divides(node):
            return True
    return False


def _divides(call: ast.Call) -> bool:
    return any(isinstance(node, ast.BinOp) for one in call.args for node in ast.walk(one))
