"""Generators of parameters that an optimizer was handed once they had been used up: the line that makes one.

``filter(...)``, ``model.parameters()`` and ``(p for p in ...)`` can be gone through once. Who stores one and hands it
over twice gives the second taker an empty group, about which torch says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gradkit.core.records import Location
from gradkit.source import handed_over, helpers, syntax
from gradkit.source.helpers import Helpers, Part

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
    search = _Search([built.file, *files])
    calls = handed_over.built_at(built, kind)
    given = [Part(one.file, x) for one in calls for x in syntax.arguments(one.node)]
    found = {(one.location.file, one.location.line): one for x in given for one in search.kept(x)}
    return list(found.values())


class _Search:
    """Follows the names in what an optimizer is handed to what they are given."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._helpers = Helpers(self._files)

    def kept(self, value: Part, depth: int = 0) -> Iterator[Kept]:
        """The generators which the names in an expression stand for."""
        if depth >= _DEEPEST:
            return
        if isinstance(value.node, (ast.Name, ast.Attribute)):
            values = handed_over.given(value, self._helpers)
            for told in values:
                plain = _is_generator(told.node) or isinstance(told.node, (ast.Name, ast.Attribute))
                chosen = (len(values) > 1 and plain) or _is_chosen(told, value.node)
                yield from (_unsure_if(chosen, one) for one in self._made(told, depth))
            return
        chosen = isinstance(value.node, (ast.IfExp, ast.BoolOp))
        for child in ast.iter_child_nodes(value.node):
            yield from (_unsure_if(chosen, one) for one in self.kept(Part(value.file, child), depth))

    def _made(self, value: Part, depth: int) -> Iterator[Kept]:
        """The generator that a name is given, there or in the function that it calls."""
        if _is_generator(value.node):
            yield self._of(value)
        elif isinstance(value.node, ast.Call) and not isinstance(value.node.func, ast.Call):
            yield from self._returned(value, depth)
        elif isinstance(value.node, (ast.Name, ast.Attribute, ast.List, ast.Tuple, ast.Dict)):
            yield from self.kept(value, depth + 1)

    def _returned(self, call: Part, depth: int) -> Iterator[Kept]:
        """The generator that a function returns; the call itself where the function yields."""
        name = syntax.call_name(call.node)
        called = self._helpers.callees(Part(call.file, call.node.func)) or helpers.named(name, self._files)
        for function in called if depth < _DEEPEST else []:
            if _yields(function.node):
                yield replace(self._of(call), sure=False)
            for end in helpers.ends(function):
                yield from self._made(end, depth + 1)

    def _of(self, value: Part) -> Kept:
        """The generator that an expression makes."""
        called = [one.func for one in _calls(value.node) if isinstance(one.func, ast.Attribute)]
        owners = [Part(value.file, one.value) for one in called if one.attr in _OF_MODULES]
        named = frozenset(word for owner in owners for word in handed_over.words(owner, self._helpers))
        return Kept(value.place(), named, _is_whole(value.node))


def _yields(function: ast.AST) -> bool:
    return any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(function))


def _calls(value: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(value) if isinstance(node, ast.Call)]


def _unsure_if(chosen: bool, one: Kept) -> Kept:
    return replace(one, sure=False) if chosen else one


def _is_chosen(told: Part, use: ast.expr) -> bool:
    """Whether a condition decides that a name is given a value, and not whether it is used as well."""
    arms = [
        {id(x) for statement in arm for x in ast.walk(statement)}
        for node in ast.walk(told.scope())
        if isinstance(node, ast.If)
        for arm in (node.body, node.orelse)
    ]
    return any(id(told.node) in arm and id(use) not in arm for arm in arms)


def _is_whole(value: ast.expr) -> bool:
    """Whether a generator leaves out nothing but what does not require grad."""
    calls = _calls(value)
    tests = [test for node in ast.walk(value) if isinstance(node, ast.comprehension) for test in node.ifs]
    tests += [node.args[0] for node in calls if syntax.call_name(node) == "filter" and node.args]
    asked = [one.body if isinstance(one, ast.Lambda) else one for one in tests]
    plain = all(isinstance(one, ast.Attribute) and one.attr == "requires_grad" for one in asked)
    return plain and not any(syntax.call_name(node) in _IN_PART for node in calls)


def _is_generator(value: ast.expr) -> bool:
    if isinstance(value, ast.GeneratorExp):
        return True
    name = syntax.call_name(value) if isinstance(value, ast.Call) else ""
    return name in _MAKERS or (name in _OF_MODULES and isinstance(value.func, ast.Attribute))  # type: ignore[attr-defined]
