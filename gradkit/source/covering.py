"""Which parameters, by their names, a line that freezes may be about.

Read from what the line alone says: ``self.encoder``, ``model[0].embeddings``, ``freeze_head(model)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

from gradkit.source.syntax import call_name, pairs

_GENERAL = {"self", "model", "net", "module", "network", "m"}  # what a whole is called, also where a part has that name
_LISTS = {"parameters", "named_parameters", "modules", "named_modules", "children", "named_children"}


def covered(
    node: ast.AST, around: Sequence[ast.AST], names: Iterable[str], classes: Mapping[str, type]
) -> frozenset[str]:
    """Of all parameters' names, those that a statement may be about by the path that it names.

    Args:
        node: what freezes: an assignment to ``requires_grad``, a call of ``requires_grad_`` or of what freezes.
        around: the statements around it, outermost first.
        names: of all parameters of the model.
        classes: the class of every module, by its path.

    Returns:
        All names where the line says nothing of which.

    Example:
        >>> node = ast.parse("model.encoder.requires_grad_(False)").body[0].value
        >>> sorted(covered(node, [], ["encoder.weight", "head.weight"], {}))
        ['encoder.weight']
        >>> node = ast.parse("model.requires_grad_(False)").body[0].value
        >>> sorted(covered(node, [], ["encoder.weight", "head.weight"], {}))
        ['encoder.weight', 'head.weight']
    """
    every = frozenset(names)
    known = {part for name in every for part in name.split(".")}
    for told in _receivers(node, around):
        base, way = _way(told)
        way = [part for part in way if part in known]
        if base not in _GENERAL and base in known:
            way = [base, *way]
        mine = _of_class(every, around, classes) if base == "self" else every
        if way:
            return frozenset(name for name in mine if _leads(way, name))
        if base == "self" and mine != every:
            return mine
    return _by_the_functions_name(node, every, known)


def _receivers(node: ast.AST, around: Sequence[ast.AST]) -> list[ast.expr]:
    """What the flags are taken from: what it is assigned to, the flag's owner, and what the loops around go through."""
    found = [target for target, value in (pairs(around[-1]) if around else ()) if node in ast.walk(value)]
    if isinstance(node, ast.Assign):
        found += [t.value for t in node.targets if isinstance(t, ast.Attribute)]
    elif isinstance(node, ast.Call) and call_name(node) in ("requires_grad_", "setattr"):
        found += [node.func.value] if isinstance(node.func, ast.Attribute) else node.args[:1]
    elif isinstance(node, ast.Call):
        found += [node.func.value] if isinstance(node.func, ast.Attribute) else []
        found += node.args[:1]
    for outer in reversed(around):
        if isinstance(outer, ast.For):
            found += _looped(outer.iter)
    return found


def _looped(told: ast.expr) -> list[ast.expr]:
    """What ``m.parameters()``, ``list(m.named_parameters())[:4]`` and ``chain(a.parameters(), …)`` go through."""
    calls = (one for one in ast.walk(told) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute))
    owners = [one.func.value for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr in _LISTS]
    return owners if len(owners) == 1 else [] if owners else [told]


def _way(told: ast.expr) -> tuple[str, list[str]]:
    """What a path begins with, and what it leads through: ``("model", ["0", "body"])`` of ``model[0].body``."""
    way: list[str] = []
    while True:
        if isinstance(told, ast.Attribute):
            way.append(told.attr)
            told = told.value
        elif isinstance(told, ast.Subscript):
            way += [str(told.slice.value)] if isinstance(told.slice, ast.Constant) else []
            told = told.value
        elif isinstance(told, ast.Call) and isinstance(told.func, ast.Attribute):
            told = told.func.value
        else:
            return getattr(told, "id", ""), way[::-1]


def _leads(way: Sequence[str], name: str) -> bool:
    """Whether the parts of a path occur in a name, in this order."""
    parts = iter(name.split("."))
    return all(part in parts for part in way)


def _of_class(names: frozenset[str], around: Sequence[ast.AST], classes: Mapping[str, type]) -> frozenset[str]:
    """The parameters below the modules that are of the class around a statement, where the model has any."""
    inside = [one.name for one in around if isinstance(one, ast.ClassDef)][-1:]
    below = [path for path, cls in classes.items() if inside and inside[0] in {base.__name__ for base in cls.__mro__}]
    if not below or "" in below:
        return names
    return frozenset(name for name in names if any(name.startswith(f"{path}.") for path in below))


def _by_the_functions_name(node: ast.AST, names: frozenset[str], known: set[str]) -> frozenset[str]:
    """``freeze_encoder(model)`` is about what is called so, where anything is."""
    if not isinstance(node, ast.Call) or call_name(node) in ("requires_grad_", "setattr"):
        return names
    said = [word for word in re.split(r"_+", call_name(node)) if word in known]
    return frozenset(name for name in names if _leads(said, name)) if said else names
