"""Lines of the user's source that take ``requires_grad`` away.

Every answer is a guess with evidence, and is reported as likely or observed, never as proven.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.source import locations
from gradkit.source.syntax import call_name, function_of, statements

_FREEZERS = re.compile(r"(^|_)freeze|prepare_model_for_kbit_training", re.I)


@dataclass(frozen=True)
class Match:
    """A line of the user's source that may be the one, and how well it fits (higher is better)."""

    location: Location
    score: float


def freezing(
    files: Iterable[str], names: Sequence[str], classes: Iterable[type], *, wrapped: bool = False
) -> Location | None:
    """The line that most likely took ``requires_grad`` away from the parameters ``names``.

    Looks for ``requires_grad_(False)``, ``.requires_grad = False`` and calls of functions named after freezing;
    a line fits better the more its own words (``self.patch``, ``"lora_" in name``) occur in the parameters' names.

    Args:
        wrapped: count ``get_peft_model`` too, which freezes the model that it wraps.
    """
    ran = {base.__name__ for cls in classes for base in cls.__mro__}
    matches = [match for file in files for match in _freezing_in(file, names, ran, wrapped)]
    return max(matches, key=lambda m: m.score).location if matches else None


def _freezing_in(file: str, names: Sequence[str], ran: set[str], wrapped: bool) -> Iterator[Match]:
    parts = {part for name in names for part in name.split(".")}
    by_table = _speaks_of_freezing(file)
    for node, around in statements(file):
        weight = _freezes(node, wrapped, by_table)
        if not weight or _excluded(around, names):
            continue
        words, strings = _words_of(node, around)
        hit = len(words & parts) + sum(1 for text in strings if any(text in name for name in names))
        inside = [a for a in around if isinstance(a, ast.ClassDef)]
        fits = 0.5 if not inside or inside[-1].name in ran else -2.0 if _is_model(inside[-1]) else 0.0
        score = weight + hit + fits
        yield Match(locations.place(file, node, function_of(around)), score)


def _is_model(node: ast.ClassDef) -> bool:
    """Whether a class is a model rather than what works on models: a trainer, a policy, a callback."""
    bases = [ast.unparse(base) for base in node.bases]
    methods = {one.name for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return "forward" in methods or any(base.endswith(("Module", "Model")) for base in bases)


def _speaks_of_freezing(file: str) -> bool:
    """Whether a table in a file says ``"requires_grad": False``, for a loop to obey."""
    tables = (node for node, _ in statements(file) if isinstance(node, ast.Dict))
    return any(
        isinstance(key, ast.Constant) and key.value == "requires_grad" and ast.unparse(value) == "False"
        for table in tables
        for key, value in zip(table.keys, table.values, strict=True)
    )


def _freezes(node: ast.AST, wrapped: bool, by_table: bool) -> float:
    weight = flag_off(node)
    if weight or not isinstance(node, ast.Call):
        return weight
    name = call_name(node)
    if name == "setattr" and len(node.args) == 3 and not _sets_flag(node):
        return 1.5 if by_table and not isinstance(node.args[1], ast.Constant) else 0.0
    freezer = _FREEZERS.search(name) and not name[:1].isupper()
    return 1.5 if freezer or (wrapped and name == "get_peft_model") else 0.0


def flag_off(node: ast.AST) -> float:
    """How plainly a node takes ``requires_grad`` away: 2 for False written out, 1 for a value that may be, else 0.

    Example:
        >>> [flag_off(ast.parse(text).body[0]) for text in ("p.requires_grad = False", "p.requires_grad = flag")]
        [2.0, 1.0]
        >>> flag_off(ast.parse("net.requires_grad_(False)").body[0].value)
        2.0
    """
    if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets
    ):
        given = node.value.value if isinstance(node.value, ast.Constant) else None
        return 2.0 if given is False else 1.0 if given is None else 0.0
    if isinstance(node, ast.Call) and call_name(node) == "requires_grad_":
        told = [*node.args, *(k.value for k in node.keywords)]
        return 2.0 if told and isinstance(told[0], ast.Constant) and told[0].value is False else 0.0
    if isinstance(node, ast.Call) and _sets_flag(node):
        return 2.0 if ast.unparse(node.args[2]) == "False" else 0.0
    return 0.0


def _sets_flag(node: ast.Call) -> bool:
    named = call_name(node) == "setattr" and len(node.args) == 3
    return named and ast.unparse(node.args[1]) == "'requires_grad'"


def _excluded(around: Sequence[ast.AST], names: Sequence[str]) -> bool:
    """Whether a condition around a statement (``if "lora_" not in name``) rules all the named parameters out."""
    for outer in around:
        test = outer.test if isinstance(outer, ast.If) else None
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Constant) and isinstance(test.left.value, str):
            hits = [test.left.value in name for name in names]
            if (isinstance(test.ops[0], ast.NotIn) and all(hits)) or (
                isinstance(test.ops[0], ast.In) and not any(hits)
            ):
                return True
    return False


def _words_of(node: ast.AST, around: Sequence[ast.AST]) -> tuple[set[str], set[str]]:
    """Names, and strings, of a statement, of the loop it sits in and of the conditions on the way."""
    told: list[ast.AST] = [node]
    for outer in around:
        told += [outer.iter] if isinstance(outer, ast.For) else [outer.test] if isinstance(outer, ast.If) else []
    words: set[str] = set()
    strings: set[str] = set()
    for child in (child for tree in told for child in ast.walk(tree)):
        if isinstance(child, ast.Attribute):
            words.add(child.attr)
        elif isinstance(child, ast.Name):
            words.add(child.id)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value.strip("._"):
            strings.add(child.value.strip("._"))
    return words, strings


def freezing_after(loaded: Location) -> Location | None:
    """What freezes the whole model further down in the function that loaded it: ``prepare_model_for_kbit_training``."""
    for node, around in statements(loaded.file):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if _FREEZERS.search(name) and node.lineno > loaded.line and function_of(around) == loaded.function:  # type: ignore[attr-defined]
            return locations.place(loaded.file, node, loaded.function)
    return None


def flag_on_module(files: Iterable[str]) -> Location | None:
    """The first ``something.requires_grad = True``: on a module it sets an attribute that nobody reads."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is True:
                if any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets):
                    return locations.place(file, node, function_of(around))
    return None
