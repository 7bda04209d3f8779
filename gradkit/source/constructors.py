"""Which call handed a class's ``__init__`` what it keeps: of several, one that what was built does not contradict."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from gradkit.core.records import Location
from gradkit.source import locations, syntax

_PLAIN = (bool, int, float, str)
_UNKNOWN: Any = object()


@dataclass(frozen=True)
class Built:
    """What came of a call of a class.

    Attributes:
        cls: the class.
        settings: the plain attributes of the object: numbers, texts and flags.
        trains: whether the parameter in question requires grad.
    """

    cls: type
    settings: Mapping[str, object] = field(default_factory=dict)
    trains: bool = False


def plain_settings(module: nn.Module) -> dict[str, object]:
    """The plain attributes of a module.

    Example:
        >>> plain_settings(nn.Dropout(0.5))
        {'training': True, 'p': 0.5, 'inplace': False}
    """
    return {name: value for name, value in vars(module).items() if type(value) in _PLAIN}


def argument_for(
    owner: ast.ClassDef, statement: ast.AST, value: ast.AST, name: str, files: Iterable[str], built: Iterable[Built]
) -> Location | None:
    """The expression that was handed over for ``value``, which ``statement`` keeps; None unless there is just one.

    Args:
        owner: the class in whose ``__init__`` the statement stands.
        name: of the class that is called: ``owner`` or one that derives from it.
        files: the user's.
        built: what came of the call, and what came of the thing handed over; either may be missing.
    """
    init = next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if init is None or not isinstance(value, ast.Name) or not any(node is statement for node in ast.walk(init)):
        return None
    parameters = [a.arg for a in init.args.args][1:]
    if value.id not in parameters:
        return None
    position, found = parameters.index(value.id), []
    for file, call, function in _calls_of(name, files):
        named = next((k.value for k in call.keywords if k.arg == value.id), None)
        given = named if named is not None else call.args[position] if position < len(call.args) else None
        if given is not None:
            found.append((locations.place(file, given, function), call, given))
    if len(found) > 1:
        whole, part = [*built, None, None][:2]
        found = [one for one in found if not _contradicted(init, value.id, one[1], one[2], whole, part)]
    return found[0][0] if len(found) == 1 else None


def _calls_of(name: str, files: Iterable[str]) -> Iterator[tuple[str, ast.Call, str]]:
    """Every call of a name in the user's files, with the function that it stands in."""
    for file in files:
        tree = locations.tree_of(file)
        todo: list[tuple[ast.AST, str]] = [(tree, "")] if tree is not None else []
        while todo:
            node, function = todo.pop()
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                yield file, node, function
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                function = f"{function}.{node.name}".lstrip(".")
            todo.extend((child, function) for child in ast.iter_child_nodes(node))


# -- what contradicts a call ------------------------------------------------------------------------------------------


def _contradicted(
    init: ast.FunctionDef, kept: str, call: ast.Call, given: ast.expr, whole: Built | None, part: Built | None
) -> bool:
    """Whether a call cannot have built what there is: by what it says, it would be different."""
    if part is not None and isinstance(given, ast.Call) and _another(given, part):
        return True
    if whole is None:
        return False
    bound = _bound(init, call)
    surely = list(_surely(init.body, bound))
    return (whole.trains and _frozen(surely, kept)) or _differs(init, surely, bound, whole)


def _another(given: ast.Call, part: Built) -> bool:
    """Whether ``nn.Linear(4, 2)`` is no call that made the part: a class of torch's by another name, other sizes."""
    name = ast.unparse(given.func).rpartition(".")[2]
    if name != part.cls.__name__:
        return name in vars(nn)
    if any(isinstance(one, ast.Starred) for one in given.args):
        return False
    names = list(inspect.signature(part.cls).parameters)
    told = [*zip(names, given.args, strict=False), *((k.arg, k.value) for k in given.keywords)]
    return any(_clash(part.settings.get(key or ""), _literal(value, {})) for key, value in told)


def _differs(init: ast.FunctionDef, surely: list[ast.stmt], bound: Mapping[str, Any], whole: Built) -> bool:
    """Whether the object has another value than a statement gave it that stands alone in setting this attribute."""
    every = [attribute for node in ast.walk(init) for attribute, _ in _settings_by(node)]
    told = [(attribute, _literal(value, bound)) for one in surely for attribute, value in _settings_by(one)]
    return any(every.count(one) == 1 and _clash(whole.settings.get(one), value) for one, value in told)


def _settings_by(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """The attributes of ``self`` that an assignment sets, each with what it is given."""
    told = syntax.pairs(node)
    return [(t.attr, v) for t, v in told if isinstance(t, ast.Attribute) and ast.unparse(t.value) == "self"]


def _clash(actual: object, told: object) -> bool:
    return type(actual) is type(told) and type(told) in _PLAIN and actual != told


def _frozen(surely: list[ast.stmt], kept: str) -> bool:
    """Whether one of some statements freezes the whole of what ``__init__`` was handed by the name ``kept``."""
    same = {kept}
    for statement in surely:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == kept:
            same.update(ast.unparse(t) for t in statement.targets)
    for statement in surely:
        text = ast.unparse(statement)
        if any(text == f"{one}.requires_grad_(False)" for one in same):
            return True
        if isinstance(statement, ast.For) and ast.unparse(statement.iter) in {f"{one}.parameters()" for one in same}:
            bodies = [ast.unparse(inner) for inner in statement.body]
            if any(b.endswith((".requires_grad = False", ".requires_grad_(False)")) and "\n" not in b for b in bodies):
                return True
    return False


# -- what runs in __init__ --------------------------------------------------------------------------------------------


def _bound(init: ast.FunctionDef, call: ast.Call) -> dict[str, Any]:
    """The parameters of ``__init__`` with what a call gives them, where that is written out."""
    names, given = [a.arg for a in init.args.args], init.args
    defaults = [*zip(reversed(names), reversed(given.defaults), strict=False)]
    defaults += [(a.arg, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d is not None]
    bound = {name: _literal(value, {}) for name, value in defaults}
    if any(isinstance(one, ast.Starred) for one in call.args) or any(k.arg is None for k in call.keywords):
        return {}
    told = [*zip(names[1:], call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    return bound | {name: _literal(value, {}) for name, value in told}


def _literal(value: ast.expr, bound: Mapping[str, Any]) -> Any:
    if isinstance(value, ast.Name):
        return bound.get(value.id, _UNKNOWN)
    try:
        return ast.literal_eval(value)
    except ValueError:
        return _UNKNOWN


def _surely(body: Iterable[ast.stmt], bound: Mapping[str, Any]) -> Iterator[ast.stmt]:
    """The statements that run for certain, as far as what is bound decides the conditions."""
    for statement in body:
        if not isinstance(statement, ast.If):
            yield statement
            continue
        holds = _holds(statement.test, bound)
        if holds is not None:
            yield from _surely(statement.body if holds else statement.orelse, bound)


def _holds(test: ast.expr, bound: Mapping[str, Any]) -> bool | None:
    """Whether a condition holds; None if that cannot be told."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand, bound)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = _literal(test.left, bound), _literal(test.comparators[0], bound)
        if left is _UNKNOWN or right is _UNKNOWN or not isinstance(test.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            return None
        same = bool(left == right)
        return same if isinstance(test.ops[0], (ast.Is, ast.Eq)) else not same
    value = _literal(test, bound)
    return None if value is _UNKNOWN else bool(value)
