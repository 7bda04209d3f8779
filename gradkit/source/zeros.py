"""Where a number became 0: from the argument that it was handed as, back to the line that rounds it away or writes it.

Nothing is run. Of two ways that fit equally well none is taken.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import attributes, locations, syntax
from gradkit.source.helpers import Helpers, Part
from gradkit.source.syntax import FUNCTIONS

_DEEPEST = 8
_ROUNDING = frozenset("int round floor trunc".split())


def written_at(file: str, value: ast.expr) -> Location | None:
    """The line that makes a value 0, or writes it, if that is another than where the value stands itself.

    Args:
        file: where the value stands.
        value: an expression of the file's, also of a tree that was parsed apart.
    """
    source = _Source(file)
    node = next((one for one in source.nodes if isinstance(one, ast.expr) and syntax.same(value, one)), None)
    found = source.follow(node) if node is not None else None
    if found is None or node is None or found.lineno == node.lineno:
        return None
    return Part(file, found).place()


def filling_line(chain: Sequence[tuple[type, str]], files: Iterable[str] = ()) -> Location | None:
    """The one line of the user's that fills a parameter with zeros; None if there is none, or several.

    First those of the classes on the way to it count, and of these what builds an object; then any line of the files
    that fills what has the last two names of that way, as ``nn.init.zeros_(layer.lora_A.weight)`` does.

    Args:
        chain: the class of each module on the way to it, and the attribute taken from it, outermost first.
        files: the user's.
    """
    own = _filled_by_classes(chain)
    built = [one for one in own if one.function.rpartition(".")[2] in ("__init__", "reset_parameters")]
    if own:
        return (built or own)[0] if len(built or own) == 1 else None
    name = ".".join(part for _, part in chain[-2:])
    found = {
        (file, node.lineno): locations.place(file, node, syntax.function_of(around))
        for file in (files if "." in name else ())
        for node, around in syntax.statements(file)
        if isinstance(node, ast.Call) and _fills(node).endswith(f".{name}")
    }
    return next(iter(found.values())) if len(found) == 1 else None


def only_filling(files: Iterable[str]) -> Location | None:
    """The one line of the user's that fills something with zeros, whatever it calls that; None if it is not one.

    ``for p in layers: p.data.zero_()`` and ``model.apply(init)`` fill what has another name there; no gradient counts.
    """
    found = {
        (file, node.lineno): locations.place(file, node, syntax.function_of(around))
        for file in dict.fromkeys(files)
        for node, around in syntax.statements(file)
        if isinstance(node, ast.Call) and (filled := _fills(node)) and not filled.endswith((".grad", "bias"))
    }
    return next(iter(found.values())) if len(found) == 1 else None


def _filled_by_classes(chain: Sequence[tuple[type, str]]) -> list[Location]:
    found = dict[tuple[str, int], Location]()
    for step, (cls, _) in enumerate(chain):
        name = ".".join(("self", *(part for _, part in chain[step:])))
        for file, body in attributes.bodies(cls):
            for method in body.body:
                for call in (one for one in ast.walk(method) if isinstance(one, ast.Call)):
                    if _fills(call) == name and isinstance(method, FUNCTIONS):
                        spot = locations.place(file, call, f"{body.name}.{method.name}")
                        found[(spot.file, spot.line)] = spot
    return list(found.values())


def made_in_helper(spot: Location, files: Iterable[str] = ()) -> Location | None:
    """The line of the user's helper that makes the zeros which are assigned at a line: ``self.a = init(2, 3)``.

    The helper may be a function, a lambda or a method, also one that was handed over as an argument; of several that
    may have been, the one that makes zeros is it. None if that is none or several, or if one of them is not seen.

    Args:
        files: the user's, to look for helpers.
    """
    maker = _Maker((spot.file, *files))
    calls = [one for one in syntax.nodes(spot.file) if isinstance(one, ast.Call) and one.lineno == spot.line]
    call = next((Part(spot.file, one) for one in calls if one.col_offset + 1 == spot.column), None)
    if call is None:
        return None
    outer = next((one for one in reversed(call.around()) if isinstance(one, ast.stmt)), None)
    given = syntax.pairs(outer) if outer is not None else []
    names = [Part(spot.file, target) for target, value in given if value is call.node]
    found = maker.of_call(call) or next((filled[-1] for one in names if (filled := maker.filled(one))), None)
    if found is None and isinstance(outer, ast.Return):
        found = maker.zeros_in(call)
    return found.place() if found is not None else None


def _fills(call: ast.Call) -> str:
    """What a call fills with zeros, as source code; ``""`` if it is no such call."""
    word, target = syntax.call_name(call), call.args[0] if call.args else None
    if word in ("zero_", "fill_") and isinstance(call.func, ast.Attribute):
        zero, target = word == "zero_" or (target is not None and _is_zero(target)), call.func.value
    else:
        value = syntax.argument(call, "val", 1)
        zero = word == "zeros_" or (word == "constant_" and value is not None and _is_zero(value))
    return ast.unparse(target).removesuffix(".data") if zero and target is not None else ""


class _Maker:
    """Follows the calls of helpers to the expression that makes zeros."""

    def __init__(self, files: Iterable[str]) -> None:
        self._helpers = Helpers(files)

    def of_call(self, call: Part, depth: int = 0) -> Part | None:
        """The expression that makes the zeros which a call of the user's own function returns."""
        ends = self._helpers.returned(call) if depth <= _DEEPEST else []
        found = {one: None for end in ends if (one := self.zeros_in(end, depth)) is not None}
        return next(iter(found)) if len(found) == 1 else None

    def zeros_in(self, value: Part, depth: int = 0) -> Part | None:
        """The expression that makes the zeros of a value, as it stands in a function or by a name of its own."""
        node = value.node
        if any(isinstance(one, ast.Call) and _is_of_zeros(one) for one in ast.walk(node)):
            return value
        if isinstance(node, ast.Call) and syntax.call_name(node) == "Parameter" and node.args:
            return self.zeros_in(Part(value.file, node.args[0]), depth)
        if not isinstance(node, ast.Name):
            return self.of_call(value, depth + 1) if isinstance(node, ast.Call) else None
        filled = self.filled(value)
        given = self._helpers.given(value) if not filled and depth <= _DEEPEST else []
        return filled[-1] if filled else self.zeros_in(given[-1], depth + 1) if given else None

    def filled(self, value: Part) -> list[Part]:
        """The calls that fill a variable with zeros, in the function that it stands in."""
        name = value.node.id if isinstance(value.node, ast.Name) else None
        function = next(iter(value.functions()), None)
        inside = ast.walk(function) if function is not None else syntax.nodes(value.file)
        return [Part(value.file, one) for one in inside if isinstance(one, ast.Call) and _fills(one) == name]


class _Source:
    """What the names in a file are given, where that may be a number."""

    def __init__(self, file: str) -> None:
        self._file, self._helpers = file, Helpers([file])
        self.nodes = syntax.nodes(file)

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

    def _given(self, value: ast.expr) -> Iterator[ast.expr]:
        """All that a name, an attribute or an entry of a dictionary is given in this file."""
        if isinstance(value, ast.Name):
            yield from (one.node for one in self._helpers.given(Part(self._file, value)))
        elif isinstance(value, ast.Attribute):
            yield from [one.node for one in self._helpers.set_to(value.attr)] or self._of_key(value.attr)
        elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            yield from self._entries(value.slice.value) or self._of_key(value.slice.value)

    def _entries(self, key: object) -> list[ast.expr]:
        """What is given to ``anything[key]``."""
        pairs = (pair for node in self.nodes for pair in syntax.pairs(node))
        return [given for target, given in pairs if isinstance(target, ast.Subscript) and _key(target) == key]

    def _of_key(self, key: object) -> list[ast.expr]:
        """What a setting of this name is given: by a call, in a dictionary, as a default of a class or of an option."""
        handed, defaults = list[ast.expr](), list[ast.expr]()
        for node in self.nodes:
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
