"""What an optimizer is handed: the call that builds it, and what the names in that call stand for.

Read off the source, where nothing was seen: a name is followed to what it is given in its function, by its callers or,
for an attribute, anywhere in the user's files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradkit.core.records import Location
from gradkit.source import syntax
from gradkit.source.helpers import Helpers, Part


def built_at(built: Location, kind: str) -> list[Part]:
    """The call that makes an optimizer, in the function that a line stands in, or outside of all functions.

    Args:
        built: the line, or a part of what is handed over there.
        kind: class name of the optimizer.
    """
    function = built.function.replace("<module>", "")
    calls = [
        node
        for node, around in syntax.statements(built.file)
        if isinstance(node, ast.Call) and syntax.function_of(around) == function
    ]
    named = [one for one in calls if syntax.call_name(one) == kind]
    at = [one for one in named or calls if one.lineno <= built.line <= (one.end_lineno or 0)]
    return [Part(built.file, one) for one in (at or named)[:1]]


def given(value: Part, helpers: Helpers) -> list[Part]:
    """What a name, or an attribute of anything, is given."""
    if isinstance(value.node, ast.Name):
        return helpers.given(value, adding=True)
    return helpers.set_to(value.node.attr)


def words(owner: Part, helpers: Helpers) -> Iterator[tuple[str, str]]:
    """The names, attributes and keys by which a module is named, there or where a variable is given it.

    Returns:
        Each with the qualified name of the function whose variable it is; ``"."`` for attributes and keys.
    """
    function = next(iter(owner.functions()), None)
    for one in ast.walk(owner.node):
        if isinstance(one, ast.Attribute):
            yield ".", one.attr
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield from ((".", word) for word in one.value.split("."))
        elif isinstance(one, ast.Name):
            told = given(Part(owner.file, one), helpers)
            if not told or function is None or one.id not in syntax.parameters(function):
                yield syntax.function_of(owner.around()), one.id
            if not told:  # of the whole file, or taken apart from what is returned
                yield "", one.id
            for value in told:
                yield from _named(value)


def _named(value: Part) -> Iterator[tuple[str, str]]:
    if isinstance(value.node, (ast.Name, ast.Attribute, ast.Subscript)):
        for one in ast.walk(value.node):
            if isinstance(one, ast.Attribute):
                yield ".", one.attr
            elif isinstance(one, ast.Name):
                yield syntax.function_of(value.around()), one.id
