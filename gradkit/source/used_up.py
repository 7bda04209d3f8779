"""Generators of parameters that an optimizer was handed once they had been used up: the line that makes one.

``filter(...)``, ``model.parameters()`` and ``(p for p in ...)`` can be gone through once. Who stores one and hands it
over twice gives the second taker an empty group, about which torch says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gradkit.core.records import Location
from gradkit.source import locations
from gradkit.source.handed_over import Scope, built_at, given, words
from gradkit.source.syntax import FUNCTIONS, call_name, function_of, statements

_MAKERS = {"filter", "map", "zip", "chain", "iter", "from_iterable", "islice"}
_OF_MODULES = {"parameters", "named_parameters", "children", "modules"}
_IN_PART = {"map", "zip", "islice"}
_DEEPEST = 5


@dataclass(frozen=True)
class Kept:
    """A generator that is kept before an optimizer is handed it.

    Attributes:
        location: the line that makes it.
        owners: the words by which the modules are named whose parameters it gives, each with the function that has such
            a variable; ``"."`` for attributes.
        sure: it gives all of them that require grad, and no condition decides whether the optimizer is handed it.
    """

    location: Location
    owners: frozenset[tuple[str, str]]
    sure: bool

    def is_of(self, names: Iterable[str], others: Iterable[str]) -> bool:
        """Whether it is sure to give the parameters of some names, and none of others."""
        return self.sure and all(self._gives(name) for name in names) and not any(map(self._gives, others))

    def _gives(self, name: str) -> bool:
        parts = name.split(".")
        return any(word in parts for _, word in self.owners)


def used_up(built: Location, kind: str, files: Sequence[str]) -> Location | None:
    """The line that makes a generator which is kept and handed to the optimizer that is built at a line.

    Args:
        built: the line, or a part of what is handed over there.
        kind: class name of the optimizer.
        files: the user's.

    Returns:
        None where there is no such line, or more than one.
    """
    found = kept(built, kind, files)
    return found[0].location if len(found) == 1 else None


def kept(built: Location, kind: str, files: Sequence[str]) -> list[Kept]:
    """The generators, one a line, that are kept and handed to the optimizer that is built at a line.

    Args:
        built, kind, files: as for ``used_up``.
    """
    files = tuple(dict.fromkeys([built.file, *files]))
    found: dict[tuple[str, int], Kept] = {}
    for call, scope in built_at(built, kind):
        for handed in [*call.args, *(k.value for k in call.keywords)]:
            found.update({(one.location.file, one.location.line): one for one in _kept(handed, scope, files, 0)})
    return list(found.values())


def _kept(value: ast.AST, scope: Scope, files: Sequence[str], depth: int) -> Iterator[Kept]:
    """The generators which the names in an expression stand for."""
    if depth >= _DEEPEST:
        return
    if isinstance(value, (ast.Name, ast.Attribute)):
        values = list(given(value, scope, files))
        for told, where in values:
            one_of_several = len(values) > 1 and (_is_generator(told) or isinstance(told, (ast.Name, ast.Attribute)))
            chosen = one_of_several or _is_chosen(told, value, where)
            yield from (_unsure_if(chosen, one) for one in _made(told, where, files, depth))
        return
    for child in ast.iter_child_nodes(value):
        chosen = isinstance(value, (ast.IfExp, ast.BoolOp))
        yield from (_unsure_if(chosen, one) for one in _kept(child, scope, files, depth))


def _unsure_if(chosen: bool, one: Kept) -> Kept:
    return replace(one, sure=False) if chosen else one


def _is_chosen(told: ast.expr, use: ast.expr, scope: Scope) -> bool:
    """Whether a condition decides that a name is given a value, and not whether it is used as well."""
    arms = [
        {id(x) for statement in arm for x in ast.walk(statement)}
        for node in ast.walk(scope.body())
        if isinstance(node, ast.If)
        for arm in (node.body, node.orelse)
    ]
    return any(id(told) in arm and id(use) not in arm for arm in arms)


def _made(value: ast.expr, scope: Scope, files: Sequence[str], depth: int) -> Iterator[Kept]:
    """The generator that a name is given, there or in the function that it calls."""
    if _is_generator(value):
        yield _of(value, scope, files)
    elif isinstance(value, ast.Call) and not isinstance(value.func, ast.Call):
        yield from _returned(value, scope, files)
    elif isinstance(value, (ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Dict)):
        yield from _kept(value, scope, files, depth + 1)


def _of(value: ast.expr, scope: Scope, files: Sequence[str]) -> Kept:
    """The generator that an expression makes."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    owners = [node.func.value for node in calls if node.func.attr in _OF_MODULES]  # type: ignore[attr-defined]
    named = frozenset(word for owner in owners for word in words(owner, scope, files))
    return Kept(locations.place(scope.file, value, function_of(scope.around)), named, _is_whole(value))


def _is_whole(value: ast.expr) -> bool:
    """Whether a generator leaves out nothing but what does not require grad."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    tests = [test for node in ast.walk(value) if isinstance(node, ast.comprehension) for test in node.ifs]
    tests += [node.args[0] for node in calls if call_name(node) == "filter" and node.args]
    asked = [one.body if isinstance(one, ast.Lambda) else one for one in tests]
    plain = all(isinstance(one, ast.Attribute) and one.attr == "requires_grad" for one in asked)
    return plain and not any(call_name(node) in _IN_PART for node in calls)


def _is_generator(value: ast.expr) -> bool:
    if isinstance(value, ast.GeneratorExp):
        return True
    name = call_name(value) if isinstance(value, ast.Call) else ""
    return name in _MAKERS or (name in _OF_MODULES and isinstance(value.func, ast.Attribute))  # type: ignore[attr-defined]


def _returned(call: ast.Call, scope: Scope, files: Sequence[str]) -> Iterator[Kept]:
    """The generator that the user's function of that name returns; the call itself where the function yields."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, FUNCTIONS) and node.name == call_name(call):
                inside = Scope(file, (*around, node))
                if any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(node)):
                    yield replace(_of(call, scope, files), sure=False)
                ends = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
                yield from (_of(one, inside, files) for one in ends if _is_generator(one))
