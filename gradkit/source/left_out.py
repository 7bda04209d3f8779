"""What a function that builds an optimizer leaves out on purpose: by a condition, or by naming it.

``if not self.locked: params += list(self.decoder.parameters())`` says that somebody has thought of the decoder, and
that a setting decides. So does ``params = model.parameters() if whole else model.head.parameters()``, and so does
``[p for n, p in model.named_parameters() if not n.startswith(locked)]``. Nothing is forgotten there.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.source import locations, syntax

_NAMED = "named_parameters"
_HANDING = ("parameters", _NAMED)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


@dataclass(frozen=True)
class _Handing:
    """A call of ``parameters()``.

    Attributes:
        base: the variable that the module is reached by.
        words: the attributes on the way from there.
        within: something is looked up on the way that has no name in the source.
        in_arm: a condition decides whether it runs.
    """

    base: str
    words: tuple[str, ...]
    within: bool
    in_arm: bool


def on_condition(built: Location, names: Iterable[str]) -> tuple[str, ...]:
    """Those of a model's parameters that a function takes in under a condition, and nowhere else.

    Args:
        built: the line that builds an optimizer.
        names: of the parameters, as the model knows them.
    """
    around = _function(built)
    handed = list(_handed(around)) if around is not None else []
    chosen = [one for one in handed if one.in_arm and not one.within]
    always = [one for one in handed if not one.in_arm and not one.within]
    return tuple(
        name for name in names
        if any(_is_of(name, one, handed) for one in chosen) and not any(_is_of(name, one, handed) for one in always)
    )  # fmt: skip


def by_name(built: Location) -> bool:
    """Whether a function goes through named parameters once, and says of some that it does not want them."""
    around = _function(built)
    tests = [_tests(one) for one in ast.walk(around) if _goes_through(one)] if around is not None else []
    return len(tests) == 1 and bool(tests[0]) and all(map(_is_refusal, tests[0]))


def _function(built: Location) -> ast.AST | None:
    return syntax.function_at(locations.tree_of(built.file), built.line)


def _handed(function: ast.AST) -> Iterator[_Handing]:
    """The modules whose parameters a function asks for."""
    for path in syntax.paths(function):
        node = path[-1]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _HANDING:
            in_arm = any(_is_arm(outer, inner) for outer, inner in itertools.pairwise(path))
            words, value, within = list[str](), node.func.value, False
            while isinstance(value, (ast.Attribute, ast.Subscript)):
                words = [value.attr, *words] if isinstance(value, ast.Attribute) else words
                value, within = value.value, within or isinstance(value, ast.Subscript)
            if isinstance(value, ast.Name):
                yield _Handing(value.id, tuple(words), within, in_arm)


def _is_arm(outer: ast.AST, inner: ast.AST) -> bool:
    return isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test


def _is_of(name: str, one: _Handing, others: Iterable[_Handing]) -> bool:
    """Whether a parameter may be one that is handed out: where all of a module is that others take parts of, it is."""
    if not one.words and any(other.base == one.base and (other.words or other.within) for other in others):
        return True
    words = one.words or (() if one.base in ("self", "cls") else (one.base,))
    return bool(words) and f".{'.'.join(words)}." in f".{name}."


def _goes_through(node: ast.AST) -> bool:
    iters = [node.iter] if isinstance(node, ast.For) else []
    iters += [one.iter for one in node.generators] if isinstance(node, _COMPREHENSIONS) else []
    return any(isinstance(one, ast.Call) and syntax.call_name(one) == _NAMED for one in iters)


def _tests(node: ast.AST) -> list[ast.expr]:
    """What must hold of a parameter in a loop or comprehension to be taken."""
    if isinstance(node, _COMPREHENSIONS):
        return [test for one in node.generators for test in one.ifs]
    passed = [one for one in ast.walk(node) if isinstance(one, ast.If) and isinstance(one.body[0], ast.Continue)]
    return [ast.UnaryOp(ast.Not(), one.test) for one in passed]


def _is_refusal(test: ast.expr) -> bool:
    """Whether a condition says which names are not wanted, and not which are."""
    if isinstance(test, ast.BoolOp):
        return all(map(_is_refusal, test.values))
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.NotIn)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
