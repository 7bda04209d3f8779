"""Optimizers that are handed what requires grad: ``[p for p in model.parameters() if p.requires_grad]``.

What such a line leaves out because it is frozen, it takes in as soon as that is not frozen: then the line is right, and
only what froze it is to be mended. Whether it would take a parameter in is read off the conditions on the ways that
lead from a model's parameters to the optimizer.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gradkit.core.records import Location
from gradkit.source import freezing
from gradkit.source.attributes import ADDING
from gradkit.source.conditions import conditions_around
from gradkit.source.handed_over import built_at, given, words
from gradkit.source.helpers import Helpers, Part, named
from gradkit.source.syntax import arguments, call_name, names_in, paths

_DEEPEST = 6
_MOST_ATOMS = 8
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_OF_MODULES = {"parameters", "named_parameters"}
_PLAIN = {"self", "cls", "model", "net", "network", "module"}
Test = tuple[ast.expr, bool]


@dataclass(frozen=True)
class _Way:
    """How parameters come to an optimizer.

    Attributes:
        owners: the words by which the module is named that hands them out.
        tests: what must hold of each, or not.
    """

    owners: frozenset[str]
    tests: tuple[Test, ...] = ()

    def comes_from(self, name: str, known: Collection[str]) -> bool:
        """Whether a parameter is one of the module's, as far as its words are parts of names at all."""
        parts = self.owners.intersection(known)
        return not parts or bool(parts.intersection(name.split(".")))


def would_be_taken(
    built: Location, kind: str, names: Sequence[str], everything: Sequence[str], files: Sequence[str]
) -> tuple[str, ...]:
    """Of some frozen parameters, those that an optimizer would have been handed if they had required grad.

    Args:
        built: the line that builds it.
        kind: its class name.
        names: those parameters.
        everything: the names of all parameters of the model.
        files: the user's.
    """
    files = tuple(dict.fromkeys([built.file, *files]))
    search = _Search(files)
    ways = [
        way
        for call in built_at(built, kind)
        for one in [*call.node.args[:1], *(k.value for k in call.node.keywords if k.arg == "params")]
        for way in search.ways(Part(call.file, one))
    ]
    if not any("requires_grad" in ast.unparse(test) for way in ways for test, _ in way.tests):
        return ()
    known = {part for name in everything for part in name.split(".")}
    return tuple(name for name in names if _is_taken(name, [way for way in ways if way.comes_from(name, known)]))


def _is_taken(name: str, ways: Sequence[_Way]) -> bool:
    """Whether some way lets a parameter through that requires grad, whatever else the conditions ask for."""
    atoms = sorted({text for way in ways for test, _ in way.tests for text in _atoms(test, name)})
    if len(atoms) > _MOST_ATOMS:
        return False
    worlds = (dict(zip(atoms, held, strict=True)) for held in itertools.product((False, True), repeat=len(atoms)))
    return all(
        any(all(_value(test, name, world) is wanted for test, wanted in way.tests) for way in ways) for world in worlds
    )


def _atoms(test: ast.expr, name: str) -> Iterator[str]:
    """The texts of the conditions in a condition of which nothing is known."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _atoms(test.operand, name)
    elif isinstance(test, ast.BoolOp):
        yield from (text for value in test.values for text in _atoms(value, name))
    elif _of_flag(test) is None and freezing.holds_for(test, name) is None:
        yield ast.unparse(test)


def _value(test: ast.expr, name: str, world: Mapping[str, bool]) -> bool:
    """Whether a condition holds for a parameter of this name that requires grad."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return not _value(test.operand, name, world)
    if isinstance(test, ast.BoolOp):
        parts = [_value(value, name, world) for value in test.values]
        return all(parts) if isinstance(test.op, ast.And) else any(parts)
    told = _of_flag(test)
    told = freezing.holds_for(test, name) if told is None else told
    return world[ast.unparse(test)] if told is None else told


def _of_flag(test: ast.expr) -> bool | None:
    """Whether ``p.requires_grad``, or a comparison of it with True or False, holds of what requires grad."""
    if isinstance(test, ast.Attribute) and test.attr == "requires_grad":
        return True
    if not isinstance(test, ast.Compare) or not isinstance(test.comparators[0], ast.Constant):
        return None
    if not isinstance(test.left, ast.Attribute) or test.left.attr != "requires_grad":
        return None
    return bool(test.comparators[0].value) is isinstance(test.ops[0], (ast.Is, ast.Eq))


# -- the ways by which parameters come ------------------------------------------------------------------------------


class _Search:
    """Follows what an optimizer is handed to the parameters that fill it."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._helpers = Helpers(files)

    def ways(self, value: Part, depth: int = 0) -> Iterator[_Way]:
        """The ways by which what an expression stands for is filled with parameters."""
        node = value.node
        if depth > _DEEPEST:
            return
        if isinstance(node, (ast.Name, ast.Attribute)):
            for told in given(value, self._helpers):
                yield from self.ways(told, depth + 1)
            yield from self._filled(value, depth)
        elif isinstance(node, _COMPREHENSIONS):
            tests = tuple((test, True) for one in node.generators for test in one.ifs)
            yield from _narrowed(self._together([Part(value.file, one.iter) for one in node.generators], depth), tests)
        elif isinstance(node, ast.Call):
            yield from self._of_call(value, depth)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Dict, ast.Starred, ast.BinOp, ast.Subscript)):
            for child in ast.iter_child_nodes(node):
                yield from self.ways(Part(value.file, child), depth)

    def _together(self, values: Sequence[Part], depth: int) -> Iterator[_Way]:
        """What loops inside of each other go through: the innermost gives the parameters, those around name modules."""
        words = frozenset(word for one in values[:-1] for word in self._words(one))
        yield from (replace(way, owners=way.owners | words) for way in self.ways(values[-1], depth))

    def _of_call(self, value: Part, depth: int) -> Iterator[_Way]:
        call, file = value.node, value.file
        name, owner = call_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
        if name in _OF_MODULES and owner is not None:
            yield _Way(frozenset(self._words(Part(file, owner))))
        elif name in ("values", "items") and owner is not None:
            yield from self.ways(Part(file, owner), depth)
        elif name == "filter" and len(call.args) == len(("function", "iterable")):
            asked = call.args[0].body if isinstance(call.args[0], ast.Lambda) else call.args[0]
            yield from _narrowed(self.ways(Part(file, call.args[1]), depth), ((asked, True),))
        else:
            returned = list(self._returned(name, depth))
            yield from returned
            for part in [] if returned else arguments(call):
                yield from self.ways(Part(file, part), depth)

    def _words(self, owner: Part) -> Iterator[str]:
        """What a module is named by, without the words for the whole of a model."""
        return (word for _, word in words(owner, self._helpers) if word not in _PLAIN)

    def _returned(self, name: str, depth: int) -> Iterator[_Way]:
        """The ways to what the user's functions of a name return or yield."""
        for function in named(name, self._files):
            for path in paths(function.node):
                if isinstance(path[-1], (ast.Return, ast.Yield, ast.YieldFrom)) and path[-1].value is not None:
                    yield from self._put_in(Part(function.file, path[-1].value), path, depth + 1)

    def _filled(self, value: Part, depth: int) -> Iterator[_Way]:
        """The ways to what is added to a list that a name holds: ``decay.append(p)``."""
        for path in paths(value.scope()) if isinstance(value.node, ast.Name) else ():
            node = path[-1]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                if node.func.attr in ADDING and _root(node.func.value) == _root(value.node):
                    yield from self._put_in(Part(value.file, node.args[-1]), path, depth + 1)

    def _put_in(self, value: Part, path: Sequence[ast.AST], depth: int) -> Iterator[_Way]:
        """The ways to a value at the end of a path: through the loops around it, or by itself."""
        loops = [one for one in path if isinstance(one, ast.For)]
        given_by = {id(part) for loop in loops for part in (loop.iter, loop.target)}
        tests = tuple(
            (test, wanted)
            for outer, inner in itertools.pairwise(path)
            for test, wanted in conditions_around(outer, inner)
            if id(test) not in given_by
        )
        taken = {name for loop in loops for name in names_in(loop.target)}
        sources = [Part(value.file, loop.iter) for loop in loops] if taken & names_in(value.node) else [value]
        yield from _narrowed(self._together(sources, depth), tests)


def _narrowed(ways: Iterator[_Way], tests: tuple[Test, ...]) -> Iterator[_Way]:
    return (replace(way, tests=(*way.tests, *tests)) for way in ways)


def _root(node: ast.AST) -> str:
    """``"groups"`` of ``groups["decay"]`` and of ``groups.setdefault(key, [])``."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
