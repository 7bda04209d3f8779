"""Look through the user's own source for the line that set a state up: nothing that ran during the step tells it.

Every answer is a guess with evidence, and is reported as likely or observed, never as proven.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradkit import frames
from gradkit.records import Location

_FREEZERS = re.compile(r"(^|_)freeze|prepare_model_for_kbit_training|mark_only_lora|get_peft_model", re.I)


@dataclass(frozen=True)
class Match:
    """A line of the user's source that may be the one, and how well it fits (higher is better)."""

    location: Location
    score: float


def class_files(classes: Iterable[type]) -> tuple[str, ...]:
    """The user's files in which the given classes, and those they derive from, are written."""
    found: dict[str, None] = {}
    for cls in classes:
        for base in cls.__mro__:
            file = _file_of(base)
            if file and frames.is_user_file(file):
                found[file] = None
    return tuple(found)


def _file_of(cls: type) -> str:
    for member in vars(cls).values():
        code = getattr(getattr(member, "__wrapped__", member), "__code__", None)
        if code is not None and code.co_name != "<lambda>":
            return str(code.co_filename)
    return ""


def _class_node(cls: type) -> tuple[str, ast.ClassDef | None]:
    file = _file_of(cls)
    tree = frames.tree_of(file) if file else None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return file, node
    return file, None


def definition(chain: Sequence[tuple[type, str]]) -> tuple[Location | None, str]:
    """Where a parameter is defined: the line of the user's class that sets the attribute on the way to it.

    Args:
        chain: for ``"mid.proj.weight"``: the class of each module on the way and the attribute taken from it,
            outermost first: ``[(UNet, "mid"), (Block, "proj"), (Linear, "weight")]``.

    Returns:
        The innermost such line in the user's code, and the attribute it sets; ``(None, "")`` if there is none.
    """
    for cls, attribute in reversed(chain):
        for base in cls.__mro__:
            file, node = _class_node(base)
            if node is None or not frames.is_user_file(file):
                continue
            for child in ast.walk(node):
                if _sets(child, attribute):
                    function = f"{base.__name__}.{_function_around(node, child)}"
                    return frames.place(file, _target(child, attribute), function), attribute
    return None, ""


def _sets(node: ast.AST, attribute: str) -> bool:
    return _target(node, attribute) is not node or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("register_parameter", "add_module", "register_module", "setattr")
        and any(isinstance(a, ast.Constant) and a.value == attribute for a in node.args)
    )


def _target(node: ast.AST, attribute: str) -> ast.AST:
    """Of ``self.a, self.b = A(), B()``, the part ``B()`` for ``b``; the node itself if it sets no such attribute."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        value: ast.AST = node.value or node  # type: ignore[attr-defined]
        if isinstance(target, ast.Attribute) and target.attr == attribute:
            return value
        if isinstance(target, ast.Tuple):
            for i, part in enumerate(target.elts):
                if isinstance(part, ast.Attribute) and part.attr == attribute:
                    return value.elts[i] if isinstance(value, ast.Tuple) and len(value.elts) > i else value
    return node


def _function_around(cls: ast.ClassDef, node: ast.AST) -> str:
    line = node.lineno  # type: ignore[attr-defined]
    for child in cls.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and child.lineno <= line <= (child.end_lineno or line):
            return child.name
    return ""


def uses(classes: Iterable[type], attribute: str) -> tuple[Location, ...]:
    """Where the user's classes read ``self.<attribute>`` outside of ``__init__``."""
    found: dict[tuple[str, int], Location] = {}
    for base in dict.fromkeys(base for cls in classes for base in cls.__mro__):
        file, node = _class_node(base)
        if node is None or not frames.is_user_file(file):
            continue
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and child.attr == attribute and isinstance(child.ctx, ast.Load):
                function = _function_around(node, child)
                if function != "__init__":
                    spot = frames.place(file, child, f"{base.__name__}.{function}")
                    found.setdefault((file, spot.line), spot)
    return tuple(found.values())


def freezing(files: Iterable[str], names: Sequence[str], classes: Iterable[type]) -> Location | None:
    """The line that most likely took ``requires_grad`` away from the parameters ``names``.

    Looks for ``requires_grad_(False)``, ``.requires_grad = False`` and calls of functions that are named after freezing;
    a line fits better the more its own words (``self.patch``, ``"lora_" in name``) occur in the parameters' names.
    """
    ran = {base.__name__ for cls in classes for base in cls.__mro__}
    matches = [match for file in files for match in _freezing_in(file, names, ran)]
    return max(matches, key=lambda m: m.score).location if matches else None


def _freezing_in(file: str, names: Sequence[str], ran: set[str]) -> Iterator[Match]:
    parts = {part for name in names for part in name.split(".")}
    for node, around in _statements(file):
        weight = _freezes(node)
        if not weight:
            continue
        words = _words_of(node, around)
        hit = sum(1 for word in words if word in parts or any(len(word) > 3 and word in name for name in names))
        inside = [a.name for a in around if isinstance(a, ast.ClassDef)]
        score = weight + hit + (0.5 if not inside or inside[-1] in ran else -2.0)
        function = ".".join(a.name for a in around if isinstance(a, (ast.ClassDef, ast.FunctionDef)))
        yield Match(frames.place(file, node, function), score)


def _freezes(node: ast.AST) -> float:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
        return 2.0 if any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets) else 0.0
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "requires_grad_":
            given = [*node.args, *(k.value for k in node.keywords)]
            return 2.0 if given and isinstance(given[0], ast.Constant) and given[0].value is False else 0.0
        if name == "setattr" and len(node.args) == 3 and ast.unparse(node.args[1]) == "'requires_grad'":
            return 2.0 if ast.unparse(node.args[2]) == "False" else 0.0
        return 1.5 if _FREEZERS.search(name) else 0.0
    return 0.0


def _words_of(node: ast.AST, around: Sequence[ast.AST]) -> set[str]:
    """Names and strings of a statement, of the loop it sits in and of the conditions on the way."""
    told: list[ast.AST] = [node]
    for outer in around:
        if isinstance(outer, (ast.For, ast.If)):
            told.append(outer.iter if isinstance(outer, ast.For) else outer.test)
    words: set[str] = set()
    for tree in told:
        for child in ast.walk(tree):
            if isinstance(child, ast.Attribute):
                words.add(child.attr)
            elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                words.add(child.value.strip("._"))
            elif isinstance(child, ast.Name):
                words.add(child.id)
    return words - {"self", "model", "requires_grad", "requires_grad_", "parameters", "named_parameters", "name", "p", "param"}


def loading(files: Iterable[str]) -> Location | None:
    """The first ``PeftModel.from_pretrained(...)`` or ``load_adapter(...)`` that does not ask for ``is_trainable=True``."""
    for file in files:
        for node, around in _statements(file):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = ast.unparse(node.func.value)
            if node.func.attr == "load_adapter" or (node.func.attr == "from_pretrained" and "Peft" in owner):
                asked = [k.value for k in node.keywords if k.arg == "is_trainable"]
                if not asked or (isinstance(asked[0], ast.Constant) and asked[0].value is False):
                    function = ".".join(a.name for a in around if isinstance(a, (ast.ClassDef, ast.FunctionDef)))
                    return frames.place(file, node, function)
    return None


def switching_off(files: Iterable[str]) -> Location | None:
    """The first ``torch.set_grad_enabled(False)`` that stands as a statement of its own."""
    for file in files:
        for node, around in _statements(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("set_grad_enabled"):
                if node.args and ast.unparse(node.args[0]) == "False" and not any(_is_with(a, node) for a in around):
                    function = ".".join(a.name for a in around if isinstance(a, (ast.ClassDef, ast.FunctionDef)))
                    return frames.place(file, node, function)
    return None


def _is_with(outer: ast.AST, node: ast.AST) -> bool:
    return isinstance(outer, ast.With) and any(item.context_expr is node for item in outer.items)


def _statements(file: str) -> Iterator[tuple[ast.AST, list[Any]]]:
    """Every node of a file with the statements around it, outermost first."""
    tree = frames.tree_of(file)
    todo: list[tuple[ast.AST, list[Any]]] = [(tree, [])] if tree is not None else []
    while todo:
        node, around = todo.pop()
        yield node, around
        inner = [*around, node] if isinstance(node, ast.stmt) else around
        todo.extend((child, inner) for child in reversed(list(ast.iter_child_nodes(node))))
