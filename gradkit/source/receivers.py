"""Whose method a call runs, by the source, where several classes have one of that name.

``self.bank.push(z)`` is read off what ``.bank`` is given anywhere, ``self.bank = Bank()``, or is said to be, ``bank:
Bank``; ``self.push(z)`` off the class around it. Where that tells nothing, all of them stay.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import syntax

Method = tuple[str, syntax.Function]
"""A function, with its file."""


def of_call(call: ast.Call, here: Location, known: Sequence[Method], files: Collection[str]) -> list[Method]:
    """Of the functions that have the name of a call, those that it may run.

    Args:
        here: the statement that it stands in.
        known: the functions.
        files: the user's.
    """
    if len(known) < 2:
        return list(known)
    owners = [(one, _owner(*one)) for one in known]
    if not isinstance(call.func, ast.Attribute):
        return [one for one, owner in owners if not owner] or list(known)
    named = _classes(call.func.value, here, files)
    wanted = _with_bases(named, files)
    nearest = [one for one, owner in owners if owner in named]
    return nearest or [one for one, owner in owners if owner in wanted] or list(known)


def _owner(file: str, function: syntax.Function) -> str:
    """The name of the class that a function is a method of; ``""`` for any other."""
    classes = (one for one in syntax.nodes(file) if isinstance(one, ast.ClassDef))
    return next((one.name for one in classes if any(syntax.same(function, inner) for inner in one.body)), "")


def _classes(receiver: ast.expr, here: Location, files: Collection[str]) -> set[str]:
    """The names of the classes that an expression may be an object of."""
    text = ast.unparse(receiver)
    if text in ("self", "cls", "super()"):
        around = here.function.split(".")
        return set(around[-2:-1])
    if isinstance(receiver, ast.Call):
        return {syntax.call_name(receiver)}
    name = syntax.stored_name(receiver)
    return {one for file in files for node in syntax.nodes(file) for one in _said(node, name)} if name else set()


def _said(node: ast.AST, name: str) -> Iterator[str]:
    """The classes that a node says a variable or an attribute (``".bank"``) is of."""
    plain = name.lstrip(".")
    for target, value in syntax.pairs(node):
        if syntax.stored_name(target) == name:
            yield from (syntax.call_name(one) for one in ast.walk(value) if isinstance(one, ast.Call))
    if isinstance(node, ast.arg) and node.arg == plain and node.annotation is not None:
        yield from syntax.names_in(node.annotation)
    if isinstance(node, ast.AnnAssign) and syntax.stored_name(node.target) in (name, plain):
        yield from syntax.names_in(node.annotation)


def _with_bases(names: set[str], files: Collection[str]) -> set[str]:
    """Some classes by name, and those they derive from."""
    classes = [one for file in files for one in syntax.nodes(file) if isinstance(one, ast.ClassDef)]
    found, todo = set[str](), set(names)
    while todo:
        found |= todo
        todo = {base for one in classes if one.name in todo for base in syntax.bases(one)} - found
    return found
