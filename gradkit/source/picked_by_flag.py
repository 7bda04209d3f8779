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
from gradkit.source import attributes, freezing
from gradkit.source.conditions import conditions_around
from gradkit.source.handed_over import Scope, built_at, given, words
from gradkit.source.syntax import FUNCTIONS, call_name, paths, statements

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
    ways = [
        way
        for call, scope in built_at(built, kind)
        for one in [*call.args[:1], *(k.value for k in call.keywords if k.arg == "params")]
        for way in _ways(one, scope, files, 0)
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


def _ways(value: ast.AST, scope: Scope, files: Sequence[str], depth: int) -> Iterator[_Way]:
    """The ways by which what an expression stands for is filled with parameters."""
    if depth > _DEEPEST:
        return
    if isinstance(value, (ast.Name, ast.Attribute)):
        for told, where in given(value, scope, files):
            yield from _ways(told, where, files, depth + 1)
        yield from _filled(value, scope, files, depth)
    elif isinstance(value, _COMPREHENSIONS):
        tests = tuple((test, True) for one in value.generators for test in one.ifs)
        yield from _narrowed(_together([one.iter for one in value.generators], scope, files, depth), tests)
    elif isinstance(value, ast.Call):
        yield from _of_call(value, scope, files, depth)
    elif isinstance(value, (ast.List, ast.Tuple, ast.Dict, ast.Starred, ast.BinOp, ast.Subscript)):
        for child in ast.iter_child_nodes(value):
            yield from _ways(child, scope, files, depth)


def _narrowed(ways: Iterator[_Way], tests: tuple[Test, ...]) -> Iterator[_Way]:
    return (replace(way, tests=(*way.tests, *tests)) for way in ways)


def _together(values: Sequence[ast.expr], scope: Scope, files: Sequence[str], depth: int) -> Iterator[_Way]:
    """What loops inside of each other go through: the innermost gives the parameters, those around it name modules."""
    words = frozenset(word for one in values[:-1] for word in _words(one, scope, files))
    yield from (replace(way, owners=way.owners | words) for way in _ways(values[-1], scope, files, depth))


def _of_call(call: ast.Call, scope: Scope, files: Sequence[str], depth: int) -> Iterator[_Way]:
    name, owner = call_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in _OF_MODULES and owner is not None:
        yield _Way(frozenset(_words(owner, scope, files)))
    elif name in ("values", "items") and owner is not None:
        yield from _ways(owner, scope, files, depth)
    elif name == "filter" and len(call.args) == len(("function", "iterable")):
        asked = call.args[0].body if isinstance(call.args[0], ast.Lambda) else call.args[0]
        yield from _narrowed(_ways(call.args[1], scope, files, depth), ((asked, True),))
    else:
        returned = list(_returned(name, files, depth))
        parts = [] if returned else [*call.args, *(one.value for one in call.keywords)]
        yield from returned
        yield from (way for part in parts for way in _ways(part, scope, files, depth))


def _words(owner: ast.expr, scope: Scope, files: Sequence[str]) -> Iterator[str]:
    """What a module is named by, without the words for the whole of a model."""
    return (word for _, word in words(owner, scope, files) if word not in _PLAIN)


def _returned(name: str, files: Sequence[str], depth: int) -> Iterator[_Way]:
    """The ways to what the user's functions of a name return or yield."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, FUNCTIONS) and node.name == name:
                scope = Scope(file, (*around, node))
                for path in paths(node):
                    if isinstance(path[-1], (ast.Return, ast.Yield, ast.YieldFrom)) and path[-1].value is not None:
                        yield from _put_in(path[-1].value, path, scope, files, depth + 1)


def _filled(value: ast.Name | ast.Attribute, scope: Scope, files: Sequence[str], depth: int) -> Iterator[_Way]:
    """The ways to what is added to a list that a name holds: ``decay.append(p)``."""
    for path in paths(scope.body()) if isinstance(value, ast.Name) else ():
        node = path[-1]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in attributes.ADDING and _root(node.func.value) == _root(value):
                yield from _put_in(node.args[-1], path, scope, files, depth + 1)


def _root(node: ast.AST) -> str:
    """``"groups"`` of ``groups["decay"]`` and of ``groups.setdefault(key, [])``."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _put_in(value: ast.expr, path: Sequence[ast.AST], scope: Scope, files: Sequence[str], depth: int) -> Iterator[_Way]:
    """The ways to a value at the end of a path: through the loops around it, or by itself."""
    loops = [one for one in path if isinstance(one, ast.For)]
    given_by = {id(part) for loop in loops for part in (loop.iter, loop.target)}
    tests = tuple(
        (test, wanted)
        for outer, inner in itertools.pairwise(path)
        for test, wanted in conditions_around(outer, inner)
        if id(test) not in given_by
    )
    taken = {one.id for loop in loops for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    from_loop = any(isinstance(one, ast.Name) and one.id in taken for one in ast.walk(value))
    sources = [loop.iter for loop in loops] if from_loop else [value]
    yield from _narrowed(_together(sources, scope, files, depth), tests)
