"""Look through the user's own source for the line that set a state up: nothing that ran during the step tells it.

Every answer is a guess with evidence, and is reported as likely or observed, never as proven.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from gradkit import frames, leading
from gradkit.records import Location

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
        yield Match(frames.place(file, node, function_of(around)), score)


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
    name = _name_of(node)
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
    if isinstance(node, ast.Call) and _name_of(node) == "requires_grad_":
        told = [*node.args, *(k.value for k in node.keywords)]
        return 2.0 if told and isinstance(told[0], ast.Constant) and told[0].value is False else 0.0
    if isinstance(node, ast.Call) and _sets_flag(node):
        return 2.0 if ast.unparse(node.args[2]) == "False" else 0.0
    return 0.0


def _name_of(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _sets_flag(node: ast.Call) -> bool:
    named = _name_of(node) == "setattr" and len(node.args) == 3
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


def loading(files: Iterable[str], near: Iterable[str] = ()) -> list[Location]:
    """Each ``PeftModel.from_pretrained(...)`` or ``load_adapter(...)`` without ``is_trainable=True`` that can have run.

    Args:
        near: qualified names of functions that did run.
    """

    def frozen(node: ast.Call, name: str, owner: str) -> bool:
        asked = [k.value for k in node.keywords if k.arg == "is_trainable"]
        loads = name == "load_adapter" or (name == "from_pretrained" and "Peft" in owner)
        return loads and (not asked or (isinstance(asked[0], ast.Constant) and asked[0].value is False))

    return _calls(files, frozen, near)


def freezing_after(loaded: Location) -> Location | None:
    """What freezes the whole model further down in the function that loaded it: ``prepare_model_for_kbit_training``."""
    for node, around in statements(loaded.file):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if _FREEZERS.search(name) and node.lineno > loaded.line and function_of(around) == loaded.function:  # type: ignore[attr-defined]
            return frames.place(loaded.file, node, loaded.function)
    return None


def checkpointing(files: Iterable[str], near: Iterable[str] = ()) -> Location | None:
    """The first ``gradient_checkpointing_enable(...)``, or the first ``gradient_checkpointing=True`` in a call."""

    def enables(node: ast.Call, name: str, _owner: str) -> bool:
        asked = [k.value for k in node.keywords if k.arg == "gradient_checkpointing"]
        return name == "gradient_checkpointing_enable" or any(
            isinstance(value, ast.Constant) and value.value is True for value in asked
        )

    return _first_call(files, enables, near)


def disabling(files: Iterable[str], near: Iterable[str] = ()) -> Location | None:
    """The first call that switches peft adapters off for good."""

    def disables(node: ast.Call, name: str, _owner: str) -> bool:
        off = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
        return name in ("disable_adapter_layers", "disable_adapters") or (name == "enable_adapters" and off)

    return _first_call(files, disables, near)


def adding(files: Iterable[str], adapter: str) -> Location | None:
    """The call that added or loaded the adapter of this name."""

    def adds(node: ast.Call, name: str, _owner: str) -> bool:
        return name in _ADDING and any(
            isinstance(value, ast.Constant) and value.value == adapter
            for value in [*node.args, *(k.value for k in node.keywords)]
        )

    files = tuple(files)
    return _first_call(files, adds) or _only_call(files, _ADDING)


_ADDING = frozenset(("add_adapter", "load_adapter"))


def _only_call(files: Iterable[str], names: frozenset[str]) -> Location | None:
    """The call of a function of these names, if there is just one, and it names nothing by a text written out."""
    found = [
        (file, node, around)
        for file in files
        for node, around in statements(file)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names
    ]
    if len(found) != 1:
        return None
    file, node, around = found[0]
    told = [*node.args, *(k.value for k in node.keywords if k.arg == "adapter_name")]
    texts = [value for value in told if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return frames.place(file, node, function_of(around)) if not texts else None


def switching_off(files: Iterable[str], near: Iterable[str] = ()) -> Location | None:
    """The first ``torch.set_grad_enabled(False)`` that is no ``with``."""
    return _first_call(
        files,
        lambda node, name, _owner: (
            name == "set_grad_enabled" and bool(node.args) and ast.unparse(node.args[0]) == "False"
        ),
        near,
    )


def halving(files: Iterable[str], near: Iterable[str] = ()) -> Location | None:
    """The first ``.half()``, ``.to(torch.float16)`` or ``(torch_)dtype=torch.float16``: the weights become fp16."""

    def halves(node: ast.Call, name: str, owner: str) -> bool:
        given = node.args if name == "to" else []
        told = [*given, *(k.value for k in node.keywords if k.arg in ("dtype", "torch_dtype"))]
        fp16 = any(ast.unparse(value) in ("torch.float16", "torch.half", "'float16'") for value in told)
        return (name == "half" and bool(owner) and not node.args) or (fp16 and name not in ("autocast", "tensor"))

    return _first_call(files, halves, near)


def inferring(files: Iterable[str], function: str) -> Location | None:
    """The use of ``torch.inference_mode``, as a block or as a decorator, that stands nearest to ``function``.

    None if there is none, or if several stand equally near.
    """
    found = [spot for file in files for node, around in statements(file) for spot in _inferring(file, node, around)]
    near = [_shared(spot.function, function) for spot in found]
    best = [spot for spot, shared in zip(found, near, strict=True) if shared == max(near)]
    return best[0] if len(best) == 1 else None


def _inferring(file: str, node: ast.AST, around: Sequence[ast.AST]) -> list[Location]:
    heads = [item.context_expr for item in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []
    marks = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    function = function_of([*around, *([node] if marks else [])])
    return [frames.place(file, one, function) for one in [*heads, *marks] if "inference_mode" in _words_in(one)]


def _words_in(node: ast.AST) -> set[str]:
    parts = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    return {part.id if isinstance(part, ast.Name) else part.attr for part in parts}


def _shared(one: str, other: str) -> int:
    """How many outer names two qualified names have in common."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one.split("."), other.split("."), strict=False))
    return len(list(same))


def returning(files: Iterable[str], owner: str, method: str) -> Location | None:
    """The first ``return`` in a method of a class."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, ast.Return) and function_of(around).endswith(f"{owner}.{method}"):
                return frames.place(file, node, function_of(around))
    return None


def returned(code: CodeType, position: int, *, zeros: bool = False) -> Location | None:
    """The ``return`` of a function that gives None at a position of its tuple; if none plainly does, its last one.

    With ``zeros``, the last one that plainly gives zeros there (``torch.zeros_like(grad)``, ``0 * grad``), or None.
    """
    lines = {line for *_, line in code.co_lines() if line}
    nodes = [n for n, _ in statements(code.co_filename) if isinstance(n, ast.Return) and n.lineno in lines]
    plain = [n for n in nodes if _gives(n.value, position, zeros=zeros)]
    best = (plain or ([] if zeros else nodes))[-1:]
    return frames.place(code.co_filename, best[0], frames.qualified_name(code)) if best else None


_ZEROS = re.compile(r"\bzeros(_like)?\(|\bzero_\(|(^|[^\w.])0(\.0*)? \* |\* 0(\.0*)?$")


def _gives(value: ast.expr | None, position: int, *, zeros: bool) -> bool:
    at = value.elts[position] if isinstance(value, ast.Tuple) and position < len(value.elts) else value
    if zeros:
        return at is not None and bool(_ZEROS.search(ast.unparse(at)))
    return at is None or (isinstance(at, ast.Constant) and at.value is None)


def flag_on_module(files: Iterable[str]) -> Location | None:
    """The first ``something.requires_grad = True``: on a module it sets an attribute that nobody reads."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is True:
                if any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets):
                    return frames.place(file, node, function_of(around))
    return None


def _first_call(
    files: Iterable[str], wanted: Callable[[ast.Call, str, str], bool], near: Iterable[str] = ()
) -> Location | None:
    return next(iter(_calls(files, wanted, near)), None)


def _calls(
    files: Iterable[str], wanted: Callable[[ast.Call, str, str], bool], near: Iterable[str] = ()
) -> list[Location]:
    """The calls that can have run and for which ``wanted(node, name, owner)`` holds; none that opens a ``with``."""
    files, found = tuple(files), list[Location]()
    for file in files:
        for node, around in statements(file):
            if not isinstance(node, ast.Call) or any(_is_with(a, node) for a in around):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if wanted(node, name, owner):
                found.append(frames.place(file, node, function_of(around)))
    return [found[i] for i in leading.likely([(spot.file, spot.function) for spot in found], files, near)]


def pairs(statement: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with what it is given; ``a, b = x, y`` is taken apart.

    Example:
        >>> [(ast.unparse(a), ast.unparse(b)) for a, b in pairs(ast.parse("a, b = c = x, y").body[0])]
        [('a', 'x'), ('b', 'y'), ('c', '(x, y)')]
    """
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [(statement.target, statement.value)]
    found: list[tuple[ast.expr, ast.expr]] = []
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        value = statement.value  # type: ignore[attr-defined]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            found += zip(target.elts, value.elts, strict=True)
        else:
            found.append((target, value))
    return found


def function_of(around: Sequence[ast.AST]) -> str:
    """The qualified name of the function that the innermost of some statements stand in."""
    return ".".join(a.name for a in around if isinstance(a, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))


def _is_with(outer: ast.AST, node: ast.AST) -> bool:
    return isinstance(outer, ast.With) and any(item.context_expr is node for item in outer.items)


def statements(file: str) -> Iterator[tuple[ast.AST, list[Any]]]:
    """Every node of a file with the statements around it, outermost first."""
    tree = frames.tree_of(file)
    todo: list[tuple[ast.AST, list[Any]]] = [(tree, [])] if tree is not None else []
    while todo:
        node, around = todo.pop()
        yield node, around
        inner = [*around, node] if isinstance(node, ast.stmt) else around
        todo.extend((child, inner) for child in reversed(list(ast.iter_child_nodes(node))))
