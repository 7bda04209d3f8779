"""Functions that hand on what they are given: as it is, in another shape, packed anew, or without its history.

``def carry(state): return tuple(s.clone() for s in state)`` computes nothing: whoever keeps what it returns keeps the
history of what it was given, and the line in it is the one that lets go, or ought to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from gradkit.core.records import Location
from gradkit.source import helpers, instances, locations, returns, syntax
from gradkit.source.helpers import Part
from gradkit.source.syntax import FUNCTIONS

SHAPING = frozenset("to clone cuda cpu float double half view reshape expand repeat unsqueeze squeeze copy".split())
ENDS = frozenset("detach item tolist numpy requires_grad_ no_grad".split())
_MOVING = SHAPING | frozenset(
    "contiguous view_as expand_as type type_as permute transpose t flatten narrow split chunk unbind items values keys "
    "get copy deepcopy".split()
)
_PACKING = frozenset("tuple list dict reversed sorted zip enumerate iter next copy deepcopy replace _replace".split())

HANDS_ON, LETS_GO, NEITHER = "hands_on", "lets_go", ""


class Carriers:
    """The functions of some files, by what they do with the history of what they are given.

    Args:
        files: the user's.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._files = tuple(files)
        self._asked: dict[int, str] = {}
        self._named: dict[str, list[Part]] = {}

    def of_call(self, call: ast.AST) -> str:
        """Whether what is called hands on what it is given, or lets go of its history; ``""`` for anything else."""
        found = self._called(call)
        return self._of(found.node) if found is not None else NEITHER

    def hands_on(self, value: ast.expr, names: set[str]) -> bool:
        """Whether some of what stands under these names is part of what an expression gives, with its history."""
        return self._is_handed_on(value, names)

    def place(self, call: ast.AST) -> Location | None:
        """The line of a function which hands on what it is given, if it is called on one line only; else None."""
        found = self._called(call)
        if found is None or self._of(found.node) != HANDS_ON or len(self._lines(call)) != 1:
            return None
        file, function = found.file, found.node
        given = self._given(function)
        made = [(value, one) for value, one in returns.returned(function) if self._is_handed_on(value, given)]
        inner = (self.place(value) for value, _ in made if not _is_within(value, file, function.name))
        return next(filter(None, inner), None) or (locations.place(file, made[-1][1], found.name) if made else None)

    def _called(self, call: ast.AST) -> Part | None:
        """What of the user's answers to a call, if it is only one function."""
        name = syntax.call_name(call) if isinstance(call, ast.Call) else ""
        if name not in self._named:
            found = helpers.named(name, self._files) if name else []
            self._named[name] = instances.of_living(
                (one, locations.head(one.file, one.node, one.name)) for one in found
            )
        return self._named[name][0] if len(self._named[name]) == 1 else None

    def _lines(self, call: ast.AST) -> set[tuple[str, int]]:
        """The lines of all calls like this one: of a method of that name, or of a function."""
        name = syntax.call_name(call) if isinstance(call, ast.Call) else ""
        return {
            (file, node.lineno)
            for file in self._files
            for node in ast.walk(locations.tree_of(file) or ast.Module([], []))
            if isinstance(node, ast.Call) and syntax.call_name(node) == name and not _is_within(node, file, name)
            if isinstance(call, ast.Call) and type(node.func) is type(call.func)
        }

    def _of(self, function: syntax.Function) -> str:
        if id(function) not in self._asked:
            self._asked[id(function)] = LETS_GO  # as long as it is being asked: of one that calls itself
            self._asked[id(function)] = self._asked_of(function)
        return self._asked[id(function)]

    def _asked_of(self, function: syntax.Function) -> str:
        values = [value for value, _ in returns.returned(function)]
        if not values:
            return NEITHER
        given = self._given(function)
        if all(self._is_let_go(value, given) for value in values):
            return LETS_GO
        plain = all(self._is_handed_on(one, given) or self._is_let_go(one, given) for one in values)
        return HANDS_ON if plain else NEITHER

    def _given(self, function: syntax.Function) -> set[str]:
        """The names of what a function is given, and of what it takes out of that."""
        given = {*syntax.parameters(function)}
        given |= {one.arg for one in (function.args.vararg, function.args.kwarg) if one is not None}
        nodes = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
        for node in sorted(nodes, key=lambda one: one.lineno):
            if isinstance(node, (ast.For, ast.AsyncFor)) and self._is_handed_on(node.iter, given):
                given |= syntax.names_in(node.target)
            for target, value in syntax.pairs(node):
                given |= syntax.names_in(target) if self._is_handed_on(value, given) else set()
        return given

    def _is_let_go(self, value: ast.expr, given: set[str]) -> bool:
        """Whether nothing that has a history can be part of what an expression gives."""
        if isinstance(value, ast.Constant):
            return True
        if isinstance(value, (ast.Tuple, ast.List, ast.Dict)):
            return all(self._is_let_go(one, given) for one in _parts(value))
        if isinstance(value, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return self._is_let_go(value.value if isinstance(value, ast.DictComp) else value.elt, given)
        if isinstance(value, ast.IfExp):
            return self._is_let_go(value.body, given) and self._is_let_go(value.orelse, given)
        if isinstance(value, ast.Attribute):
            return value.attr == "data"
        if not isinstance(value, ast.Call):
            return False
        name = syntax.call_name(value)
        if name in ENDS or self.of_call(value) == LETS_GO:
            return True
        if name in SHAPING and isinstance(value.func, ast.Attribute):
            return self._is_let_go(value.func.value, given)
        return name in _PACKING and bool(value.args) and all(self._is_let_go(one, given) for one in value.args)

    def _is_handed_on(self, value: ast.expr, given: set[str]) -> bool:
        """Whether some of what is given is part of what an expression gives, which computes nothing of it."""
        if isinstance(value, ast.Name):
            return value.id in given
        if isinstance(value, (ast.Attribute, ast.Subscript, ast.Starred)):
            return not (isinstance(value, ast.Attribute) and value.attr == "data") and self._is_handed_on(
                value.value, given
            )
        if isinstance(value, (ast.Tuple, ast.List, ast.Dict)):
            return any(self._is_handed_on(one, given) for one in _parts(value))
        if isinstance(value, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            inner = set(given)
            for loop in value.generators:
                inner |= syntax.names_in(loop.target) if self._is_handed_on(loop.iter, inner) else set()
            return self._is_handed_on(value.value if isinstance(value, ast.DictComp) else value.elt, inner)
        if isinstance(value, ast.IfExp):
            return self._is_handed_on(value.body, given) or self._is_handed_on(value.orelse, given)
        return isinstance(value, ast.Call) and self._is_moved(value, given)

    def _is_moved(self, call: ast.Call, given: set[str]) -> bool:
        """Whether a call moves, copies, reshapes or packs some of what is given."""
        name, own = syntax.call_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
        if name in ENDS:
            return False
        if name in _MOVING and own is not None and self._is_handed_on(own, given):
            return True
        packs = name in _PACKING or self._is_class(name) or self.of_call(call) == HANDS_ON
        return packs and any(self._is_handed_on(one, given) for one in _arguments(call))

    def _is_class(self, name: str) -> bool:
        trees = (locations.tree_of(file) for file in self._files)
        return any(
            isinstance(node, ast.ClassDef) and node.name == name and not _computes(node)
            for tree in trees
            for node in ast.walk(tree or ast.Module([], []))
        )


def _computes(made: ast.ClassDef) -> bool:
    """Whether a class is more than a record: what is called of it may be a module's ``forward``."""
    return any(isinstance(node, FUNCTIONS) and node.name in ("forward", "__init__", "__new__") for node in made.body)


def _is_within(call: ast.expr, file: str, name: str) -> bool:
    """Whether a function calls itself there."""
    own = syntax.named(locations.tree_of(file) or ast.Module([], [])).get(name, ())
    return any(one.lineno <= call.lineno <= (one.end_lineno or one.lineno) for one in own)


def _parts(value: ast.Tuple | ast.List | ast.Dict) -> Iterator[ast.expr]:
    yield from value.values if isinstance(value, ast.Dict) else value.elts


def _arguments(call: ast.Call) -> list[ast.expr]:
    own = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*own, *syntax.arguments(call)]
