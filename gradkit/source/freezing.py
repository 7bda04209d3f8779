"""Lines of the user's source that take ``requires_grad`` away.

Every answer is a guess with evidence, and is reported as likely or observed, never as proven.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gradkit.core.records import Location
from gradkit.source import instances, locations
from gradkit.source.conditions import conditions_around
from gradkit.source.covering import covered
from gradkit.source.syntax import arguments, call_name, function_of, names_in, statements

_PLAINLY = 2.0
_FREEZERS = re.compile(r"(^|_)freeze|prepare_model_for_kbit_training", re.I)


@dataclass(frozen=True)
class Match:
    """A line of the user's source that may have frozen some parameters.

    Attributes:
        names: of those that it is about.
        score: how well it fits (higher is better).
        particular: it says itself which it is about.
        calls: the function named after freezing that it calls; ``""`` if it freezes itself.
    """

    location: Location
    names: frozenset[str]
    score: float = 0.0
    particular: bool = False
    calls: str = ""


@dataclass(frozen=True)
class Flags:
    """What a line that freezes is to explain.

    Attributes:
        names: of parameters that were to learn and are frozen.
        flags: whether each parameter of the model requires grad, by name.
        classes: the class of every module, by its path.
        tied: of a tensor that has several names, the first one, by each other.
    """

    names: Sequence[str]
    flags: Mapping[str, bool]
    classes: Mapping[str, type] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)

    def also(self, names: set[str]) -> set[str]:
        """The same names, and all others of these very tensors."""
        first = {self.tied.get(name, name) for name in names}
        return {name for name in self.flags if self.tied.get(name, name) in first}


def freezing(files: Iterable[str], told: Flags, *, wrapped: bool = False) -> list[Match]:
    """The lines that most likely took ``requires_grad`` away from parameters, each with those that it explains.

    Looks for ``requires_grad_(False)``, ``.requires_grad = False``, ``Embedding.from_pretrained`` and calls of
    functions named after freezing; a line fits better the more what it is about (``self.patch``, ``"lora_" in name``)
    is what is frozen. A second line is one that says itself that it is about what the first one leaves.

    Args:
        wrapped: count ``get_peft_model`` too, which freezes the model that it wraps.
    """
    ran = {base.__name__ for cls in told.classes.values() for base in cls.__mro__}
    left, found, files = told.names, list[Match](), list(files)
    while left:
        matches = [match for file in files for match in _freezing_in(file, replace(told, names=left), ran, wrapped)]
        matches = _innermost(matches)
        used = instances.of_living((match, match.location) for match in matches if match.names)
        matches = [match for match in matches if not match.names or match in used]
        best = max((m for m in matches if not found or (m.particular and m.names)), key=lambda m: m.score, default=None)
        if best is None:
            break
        found.append(best)
        left = [name for name in left if name not in best.names] if best.particular and best.names else []
    return [replace(found[0], names=found[0].names.union(left)), *found[1:]] if found else []


def _innermost(matches: list[Match]) -> list[Match]:
    """The lines but for those that call a function in which another of them stands."""
    within = {match.location.function.rpartition(".")[2] for match in matches if match.names}
    return [match for match in matches if match.calls not in within or match.calls == ""]


def _freezing_in(file: str, told: Flags, ran: set[str], wrapped: bool) -> Iterator[Match]:
    for node, around in statements(file):
        weight = _freezes(node, wrapped)
        if not weight or _excluded(node, around, told.names):
            continue
        inside = [a for a in around if isinstance(a, ast.ClassDef)]
        fits = 0.5 if not inside or inside[-1].name in ran else -2.0 if _is_model(inside[-1]) else 0.0
        whole = covered(node, around, told.flags, told.classes)
        about = told.also({name for name in whole if not _excluded(node, around, [name])})
        place = locations.place(file, node, function_of(around))
        score = weight + fits + _explains(about, told)
        calls = call_name(node) if isinstance(node, ast.Call) and _FREEZERS.search(call_name(node)) else ""
        yield Match(place, frozenset(about.intersection(told.names)), score, len(whole) < len(told.flags), calls)


def _explains(about: set[str], told: Flags) -> float:
    """How well what a statement is about agrees with what is frozen: 3 is all of it and nothing that learns."""
    mine = sum(name in told.names for name in about)
    frozen = sum(not told.flags[name] for name in about)
    return 2.0 * mine / len(told.names) + frozen / len(about) if mine else -3.0


def _is_model(node: ast.ClassDef) -> bool:
    """Whether a class is a model rather than what works on models: a trainer, a policy, a callback."""
    bases = [ast.unparse(base) for base in node.bases]
    methods = {one.name for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return "forward" in methods or any(base.endswith(("Module", "Model")) for base in bases)


def _freezes(node: ast.AST, wrapped: bool) -> float:
    weight = flag_off(node)
    if weight or not isinstance(node, ast.Call):
        return weight
    if _loads_frozen(node):
        return 2.0
    name = call_name(node)
    freezer = _FREEZERS.search(name) and not name[:1].isupper()
    return 1.5 if freezer or (wrapped and name == "get_peft_model") else 0.0


def _loads_frozen(node: ast.Call) -> bool:
    """``nn.Embedding.from_pretrained(table)``, which freezes unless it is told not to.

    See https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html.
    """
    loads = call_name(node) == "from_pretrained" and isinstance(node.func, ast.Attribute)
    told = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "freeze")]
    free = any(isinstance(one, ast.Constant) and not one.value for one in told)
    return loads and ast.unparse(node.func.value).endswith(("Embedding", "EmbeddingBag")) and not free  # type: ignore[attr-defined]


def flag_off(node: ast.AST) -> float:
    """How plainly a node takes ``requires_grad`` away: 2 for False written out, 1 for a value that may be, else 0.

    Example:
        >>> [flag_off(ast.parse(text).body[0]) for text in ("p.requires_grad = False", "p.requires_grad = flag")]
        [2.0, 1.0]
        >>> flag_off(ast.parse("net.requires_grad_(False)").body[0].value)
        2.0
        >>> flag_off(ast.parse("p.requires_grad_('head' in name)").body[0].value)
        1.0
    """
    value = flag_given(node)
    if value is not None:
        given = value.value if isinstance(value, ast.Constant) else None
        return 2.0 if given is False else 1.0 if given is None else 0.0
    if isinstance(node, ast.Call) and _sets_flag(node):
        return 2.0 if ast.unparse(node.args[2]) == "False" else 0.0
    return 0.0


def flag_given(node: ast.AST) -> ast.expr | None:
    """What ``requires_grad`` is set to by ``p.requires_grad = ...`` or ``p.requires_grad_(...)``; None if it is not.

    Example:
        >>> nodes = [ast.parse("p.requires_grad = flag").body[0], ast.parse("p.requires_grad_()").body[0].value]
        >>> [ast.unparse(flag_given(node)) for node in nodes]
        ['flag', 'True']
    """
    if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets
    ):
        return node.value
    if isinstance(node, ast.Call) and call_name(node) == "requires_grad_":
        return next(iter(arguments(node)), ast.Constant(True))
    return None


def _sets_flag(node: ast.Call) -> bool:
    named = call_name(node) == "setattr" and len(node.args) == 3
    return named and ast.unparse(node.args[1]) == "'requires_grad'"


def _excluded(node: ast.AST, around: Sequence[ast.AST], names: Sequence[str]) -> bool:
    """Whether a condition around a statement (``if "lora_" not in name``) rules all the named parameters out."""
    return any(
        all(holds_for(test, name) is (not wanted) for name in names) for test, wanted in _conditions(node, around)
    )


def _conditions(node: ast.AST, around: Sequence[ast.AST]) -> list[tuple[ast.expr, bool]]:
    """What must hold, or not, for a statement to run where the loop over names around it does."""
    loops = [at for at, outer in enumerate(around) if isinstance(outer, ast.For) and _NAMED in ast.unparse(outer.iter)]
    inside = [*around[loops[-1] :], node] if loops else []
    value = flag_given(node) if inside else None
    return [
        *(pair for outer, inner in itertools.pairwise(inside[1:]) for pair in conditions_around(outer, inner)),
        *(pair for pair in (conditions_around(*inside[:2]) if inside else ()) if not pair[1]),
        *([(value, False)] if value is not None and not isinstance(value, ast.Constant) else []),
    ]


_NAMED = "named_parameters("


def holds_for(test: ast.expr, name: str) -> bool | None:
    """Whether a condition on a name holds for this one; None if that cannot be told."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = holds_for(test.operand, name)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        deciding = isinstance(test.op, ast.Or)
        parts = [holds_for(value, name) for value in test.values]
        return deciding if deciding in parts else None if None in parts else not deciding
    texts = _asked_of_name(test)
    if isinstance(test, ast.Call) and texts:
        if call_name(test) == "endswith":
            return name.endswith(texts)
        within = any(f".{text}" in name for text in texts)  # a part of the model may call it so
        return name.startswith(texts) or (None if within else False)
    if isinstance(test, ast.Compare) and texts:
        return (texts[0] in name) is isinstance(test.ops[0], ast.In)
    return _worked_out(test, name)


_TEXTUAL = frozenset(
    "split rsplit partition rpartition startswith endswith lower upper strip removeprefix find count".split()
)
_PLAIN = (
    ast.Compare, ast.Call, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.List, ast.Tuple, ast.Set,
    ast.Name, ast.UnaryOp, ast.expr_context, ast.cmpop, ast.unaryop,
)  # fmt: skip


def _worked_out(test: ast.expr, name: str) -> bool | None:
    """What a condition says that is made of a name and of texts alone, as ``name.split(".")[0] in ("encoder",)``.

    None if it is made of more, or if it says one thing of the name and another of what is left of it where the model
    is a part of another one.
    """
    asked = set(filter(None, map(_asked_textually, ast.walk(test))))
    names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
    calls = [one for one in ast.walk(test) if isinstance(one, ast.Call)]
    if len(asked) != 1 or names != asked or not all(isinstance(one, _PLAIN) for one in ast.walk(test)):
        return None
    if any(not isinstance(one.func, ast.Attribute) or one.func.attr not in _TEXTUAL for one in calls):
        return None
    code, parts = compile(ast.Expression(test), "<condition>", "eval"), name.split(".")
    worlds = (dict.fromkeys(asked, ".".join(parts[at:])) for at in range(len(parts)))
    try:
        told = {bool(eval(code, {"__builtins__": {}, **world})) for world in worlds}  # noqa: S307  texts alone, no calls but theirs
    except Exception:  # noqa: BLE001  an index that a short name does not have
        return None
    return told.pop() if len(told) == 1 else None


def _asked_textually(node: ast.AST) -> str:
    """The variable of which something is asked that a text alone answers; ``""`` if there is none."""
    function = node.func if isinstance(node, ast.Call) else None
    textual = isinstance(function, ast.Attribute) and function.attr in _TEXTUAL
    return getattr(function.value, "id", "") if textual and isinstance(function, ast.Attribute) else ""


def _asked_of_name(test: ast.expr) -> tuple[str, ...]:
    """The texts of ``"a" in name`` or ``name.startswith(("a", "b"))``; ``()`` for anything else."""
    told: list[ast.expr] = []
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.In, ast.NotIn)):
        told = [test.left] if isinstance(test.comparators[0], ast.Name) and len(test.ops) == 1 else []
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and isinstance(test.func.value, ast.Name):
        given = test.args if test.func.attr in ("startswith", "endswith") and len(test.args) == 1 else []
        told = list(given[0].elts) if given and isinstance(given[0], ast.Tuple) else given
    texts = [one.value for one in told if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return tuple(texts) if len(texts) == len(told) else ()


def _chosen(spot: Location) -> Iterator[tuple[ast.expr, bool]]:
    """The single conditions on a name by which a loop comes to a line that freezes, and whether each has to hold."""
    for node, around in statements(spot.file):
        if getattr(node, "lineno", 0) == spot.line and _freezes(node, wrapped=False):
            yield from _single(_conditions(node, around))
            return


def _single(conditions: list[tuple[ast.expr, bool]]) -> Iterator[tuple[ast.expr, bool]]:
    """Conditions with what is joined in them taken apart, as far as each part has to hold, or not, by itself."""
    todo = list(conditions)
    while todo:
        test, wanted = todo.pop(0)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            todo.insert(0, (test.operand, not wanted))
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is wanted:
            todo[:0] = [(value, wanted) for value in test.values]
        else:
            yield test, wanted


def sparing_nothing(files: Iterable[str], names: Iterable[str]) -> list[tuple[Location, str]]:
    """The lines that were to let some parameters learn by a text in their names, where no name holds it; and the text.

    ``p.requires_grad = "soft_prompts" in name``, a freezing under ``if "head" not in name``, and a line that thaws
    under ``if "lora" in name``, each in a loop over ``named_parameters()``.

    Args:
        names: of all parameters of the model.
    """
    told, found = " ".join(names), dict[Location, str]()
    for file in files:
        for node, around in statements(file):
            value = flag_given(node)
            if value is None:
                continue
            thaws = isinstance(value, ast.Constant) and value.value is True
            parts = [part for test, wanted in _conditions(node, around) for part in _sparing(test, wanted is thaws)]
            texts = [text for part in parts for text in _asked_of_name(part)]
            if texts and not any(text in told for text in texts):
                found.setdefault(locations.place(file, node, function_of(around)), texts[0])
    return list(found.items())


def _sparing(test: ast.expr, learns: bool) -> Iterator[ast.expr]:
    """The parts of a condition that ask for a text in a name in order to let it learn.

    Args:
        learns: what it holds for is to learn; otherwise what it does not hold for.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _sparing(test.operand, not learns)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _sparing(part, learns)
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In if learns else ast.NotIn):
        yield test


def by_text(files: Iterable[str], word: str) -> list[Location]:
    """The lines that take ``requires_grad`` away in functions that name the entries of a list by a text or pattern.

    Args:
        word: what the list is called: ``"layers"`` of ``"layers.1"``.

    Example:
        >>> import linecache
        >>> text = ["if name.startswith('layers.1'):\\n", "    p.requires_grad = False\\n"]
        >>> linecache.cache["freeze_by_text.py"] = (1, None, text, "freeze_by_text.py")
        >>> [spot.line for spot in by_text(["freeze_by_text.py"], "layers")]
        [2]
    """
    found = []
    for file in files:
        nodes = [(node, function_of(around)) for node, around in statements(file)]
        told = {function for node, function in nodes if is_text_of(node, word)}
        found += [locations.place(file, node, where) for node, where in nodes if where in told and flag_off(node)]
    return found


def is_text_of(node: ast.AST, word: str) -> bool:
    """Whether a node is a text, or a part of one, that names an entry of a list by the list's name.

    Example:
        >>> is_text_of(ast.Constant("encoder.layers.1"), "layers"), is_text_of(ast.Constant("layers"), "layers")
        (True, False)
    """
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return f"{word}." in text or f"{word}\\." in text


def lines(files: Iterable[str]) -> list[Location]:
    """All lines that plainly take ``requires_grad`` away, or call a function that is named after it.

    Where such a function is the user's own and holds one of these lines, it is that line, and not the call.

    Example:
        >>> import linecache
        >>> text = ["def freeze(part):\\n", "    part.requires_grad_(False)\\n", "freeze(net.body)\\n"]
        >>> linecache.cache["freeze_by_helper.py"] = (1, None, text, "freeze_by_helper.py")
        >>> [spot.line for spot in lines(["freeze_by_helper.py"])]
        [2]
    """
    found = [(f, node, function_of(a)) for f in files for node, a in statements(f) if _freezes(node, wrapped=True)]
    own = {function.rpartition(".")[2] for _, node, function in found if flag_off(node)}
    told = ((f, node, fn) for f, node, fn in found if flag_off(node) or not _calls_one_of(node, own))
    return [locations.place(*one) for one in told]


def _calls_one_of(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and call_name(node) in names


def condition_at(spot: Location) -> str:
    """The condition on a name by which a loop over names comes to a line that freezes, as it is written; else ``""``.

    Example:
        >>> import linecache
        >>> text = ["for name, p in net.named_parameters():\\n", "    if 'norm' not in name:\\n"]
        >>> text += ["        p.requires_grad = False\\n"]
        >>> linecache.cache["freeze_if.py"] = (1, None, text, "freeze_if.py")
        >>> condition_at(Location("freeze_if.py", 3))
        "'norm' not in name"
    """
    told = (ast.unparse(test) if wanted else f"not {ast.unparse(test)}" for test, wanted in _chosen(spot))
    return " and ".join(told)


def exception_missing(spot: Location, names: Sequence[str]) -> Location | None:
    """The condition at a line that freezes which was to spare these parameters, and does not fit their names.

    ``if not name.startswith("merger")`` does not spare ``"visual.merger.weight"``.

    Args:
        names: parameters that the line was seen to freeze.
    """
    for test, wanted in _chosen(spot):
        texts = {text.strip(".") for text in _asked_of_name(test)} if isinstance(test, ast.Call) and not wanted else ()
        if texts and all(texts & set(name.split(".")[:-1]) for name in names):
            return locations.place(spot.file, test, spot.function)
    return None


def letting_in(spot: Location, names: Sequence[str]) -> tuple[Location, str] | None:
    """The condition at a line that freezes which lets these parameters in by a text in their names, and that text."""
    for test, wanted in _chosen(spot):
        is_in = isinstance(test, ast.Call) or (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In))
        for text in _asked_of_name(test) if wanted and is_in else ():
            if all(text in name for name in names):
                return locations.place(spot.file, test, spot.function), text
    return None


def freezing_after(loaded: Location) -> Location | None:
    """What freezes the whole model further down in the function that loaded it: ``prepare_model_for_kbit_training``,
    ``model.requires_grad_(False)``, or a loop over all its parameters."""
    holds: set[str] = set()
    for node, around in statements(loaded.file):
        line = getattr(node, "lineno", 0)
        if function_of(around) != loaded.function or line < loaded.line:
            continue
        if isinstance(node, ast.Assign) and line == loaded.line:
            holds = {ast.unparse(target) for target in node.targets}
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if line > loaded.line and (_FREEZERS.search(name) or _all_of(node, around) in holds):
            return locations.place(loaded.file, node, loaded.function)
    return None


def _all_of(node: ast.AST, around: Sequence[ast.AST]) -> str:
    """The model of which a statement freezes every parameter, whatever its name is; ``""`` of any other statement."""
    if flag_off(node) < _PLAINLY or any(isinstance(one, (ast.If, ast.Try, ast.While)) for one in around):
        return ""
    loop = next((one for one in reversed(around) if isinstance(one, ast.For)), None)
    if loop is None:
        called = node.func if isinstance(node, ast.Call) else None
        return ast.unparse(called.value) if isinstance(called, ast.Attribute) else ""
    over, taken = loop.iter, names_in(loop.target)
    leaves = any(isinstance(one, (ast.Continue, ast.Break)) for one in ast.walk(loop))
    whole = re.fullmatch(r"(.+)\.(?:named_)?parameters\(\)", ast.unparse(over))
    frozen = ast.unparse(node.targets[0]).partition(".")[0] if isinstance(node, ast.Assign) else ""
    return whole[1] if whole is not None and frozen in taken and not leaves else ""


def flag_on_module(files: Iterable[str]) -> Location | None:
    """The first ``something.requires_grad = True``: on a module it sets an attribute that nobody reads."""
    for file in files:
        for node, around in statements(file):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is True:
                if any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets):
                    return locations.place(file, node, function_of(around))
    return None
