"""Lines of the user's source that set training up: optimizers, adapters, checkpointing, grad mode.

Nothing that ran during the step tells them. Every answer is a guess with evidence, and is reported as likely or
observed, never as proven.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gradkit.core.records import Location
from gradkit.core.trace import Point
from gradkit.source import attributes, instances, locations, syntax
from gradkit.source.syntax import FUNCTIONS, function_of, opens_with, statements


def adapter_loading_lines(files: Iterable[str]) -> list[Location]:
    """Each ``PeftModel.from_pretrained(...)`` or ``load_adapter(...)`` without ``is_trainable=True``."""

    def frozen(node: ast.Call, name: str, owner: str) -> bool:
        asked = [k.value for k in node.keywords if k.arg == "is_trainable"]
        loads = name == "load_adapter" or (name == "from_pretrained" and "Peft" in owner)
        return loads and (not asked or (isinstance(asked[0], ast.Constant) and asked[0].value is False))

    return _calls(files, frozen)


def checkpointing_line(files: Iterable[str]) -> Location | None:
    """The first ``gradient_checkpointing_enable(...)``, or the first ``gradient_checkpointing=True`` in a call."""

    def enables(node: ast.Call, name: str, _owner: str) -> bool:
        asked = [k.value for k in node.keywords if k.arg == "gradient_checkpointing"]
        return name == "gradient_checkpointing_enable" or any(
            isinstance(value, ast.Constant) and value.value is True for value in asked
        )

    return _first_call(files, enables)


def adapters_off_line(files: Iterable[str]) -> Location | None:
    """The first call that switches peft adapters off for good."""

    def disables(node: ast.Call, name: str, _owner: str) -> bool:
        off = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
        return name in ("disable_adapter_layers", "disable_adapters") or (name == "enable_adapters" and off)

    return _first_call(files, disables)


def adapter_line(files: Iterable[str], adapter: str) -> Location | None:
    """The call that added or loaded the adapter of this name; else the only one that is given a name as a value.

    Example:
        >>> import linecache
        >>> text = ["model.add_adapter('a', config)\\n", "for i in range(2): model.add_adapter(str(i), config)\\n"]
        >>> linecache.cache["adapters.py"] = (1, None, text, "adapters.py")
        >>> [spot.line for name in "a1" if (spot := adapter_line(["adapters.py"], name)) is not None]
        [1, 2]
    """

    def adds(node: ast.Call, name: str, _owner: str) -> bool:
        return name in ("add_adapter", "load_adapter") and any(
            isinstance(value, ast.Constant) and value.value == adapter for value in syntax.arguments(node)
        )

    def may_add(node: ast.Call, name: str, _owner: str) -> bool:
        given = syntax.arguments(node)
        plain = any(isinstance(value, ast.Constant) and isinstance(value.value, str) for value in given)
        return name in ("add_adapter", "load_adapter") and len(given) > 1 and not plain

    files = list(files)
    found = _first_call(files, adds)
    others = _calls(files, may_add) if found is None else []
    return others[0] if len(others) == 1 else found


def grad_off_line(files: Iterable[str]) -> Location | None:
    """The first ``torch.set_grad_enabled(False)`` that is no ``with``."""
    return _first_call(
        files,
        lambda node, name, _owner: (
            name == "set_grad_enabled" and bool(node.args) and ast.unparse(node.args[0]) == "False"
        ),
    )


def half_precision_line(files: Iterable[str]) -> Location | None:
    """The first ``.half()``, ``.to(torch.float16)`` or ``(torch_)dtype=torch.float16``: the weights become fp16."""

    def halves(node: ast.Call, name: str, owner: str) -> bool:
        given = node.args if name == "to" else []
        told = [*given, *(k.value for k in node.keywords if k.arg in ("dtype", "torch_dtype"))]
        fp16 = any(ast.unparse(value) in ("torch.float16", "torch.half", "'float16'") for value in told)
        return (name == "half" and bool(owner) and not node.args) or (fp16 and name not in ("autocast", "tensor"))

    return _first_call(files, halves)


def _first_call(files: Iterable[str], wanted: Callable[[ast.Call, str, str], bool]) -> Location | None:
    return next(iter(_calls(files, wanted)), None)


def _calls(files: Iterable[str], wanted: Callable[[ast.Call, str, str], bool]) -> list[Location]:
    """The calls for which ``wanted(node, name, owner)`` holds; none that opens a ``with``."""
    found = list[Location]()
    for file in files:
        for node, around in statements(file):
            if not isinstance(node, ast.Call) or any(opens_with(a, node) for a in around):
                continue
            name = syntax.call_name(node)
            owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if wanted(node, name, owner):
                found.append(locations.place(file, node, function_of(around)))
    return found


def inference_mode_line(files: Iterable[str], function: str) -> Location | None:
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
    return [
        locations.place(file, one, function)
        for one in [*heads, *marks]
        if "inference_mode" in _words_in(one) and not _is_left(one)
    ]


def _is_left(mode: ast.expr) -> bool:
    """Whether inference mode is left there for a while: ``torch.inference_mode(False)``."""
    given = syntax.argument(mode, "mode", 0) if isinstance(mode, ast.Call) else None
    return isinstance(given, ast.Constant) and given.value is False


def _words_in(node: ast.AST) -> set[str]:
    parts = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    return {part.id if isinstance(part, ast.Name) else part.attr for part in parts}


def _shared(one: str, other: str) -> int:
    """How many outer names two qualified names have in common."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one.split("."), other.split("."), strict=False))
    return len(list(same))


def optimizer_line(
    files: Iterable[str], kind: str, settings: Mapping[str, str], near: Iterable[str] = (), *, filtered: bool = False
) -> Location | None:
    """The call that most likely built an optimizer.

    Args:
        kind: its class.
        settings: its defaults, as source code: a call that says otherwise is none.
        near: qualified names of the step's functions: a call in a function that one was written in is more likely.
        filtered: it lacks some parameters only: where those it was given are picked out on a line before
            (``params = [p for n, p in ... if ...]``), that line.
    """
    around_step = {name.rpartition(".")[0] for name in near} - {""}
    found = [
        (score + (3 if function_of(around) in around_step else 0), call, around, file)
        for file in files
        for score, call, around in _building(file, kind, settings)
    ]
    found = instances.of_living((one, locations.place(one[3], one[1], function_of(one[2]))) for one in found)
    if not found:
        return None
    _, call, around, file = max(found, key=lambda entry: (entry[0], _is_early(entry[1], entry[2])))
    picked = _picking(call, around) if filtered else None
    return locations.place(file, picked if picked is not None else call, function_of(around))


def _is_early(call: ast.Call, around: Sequence[ast.AST]) -> bool:
    """Whether the model that an optimizer gets its parameters from is handed to something below, in its function."""
    function = syntax.innermost_function(around)
    given = {syntax.base_name(one.func) for one in ast.walk(call) if isinstance(one, ast.Call) and one is not call} - {
        ""
    }
    later = [one for one in ast.walk(function) if isinstance(one, ast.Call)] if function is not None else []
    below = (one for one in later if one.lineno > (call.end_lineno or call.lineno))
    return any(isinstance(arg, ast.Name) and arg.id in given for one in below for arg in one.args)


def optimizer_line_at(point: Point, *, filtered: bool = False) -> Location:
    """The call that was running when an optimizer was built; with ``filtered``, as for ``optimizer_line``."""
    spot, call = locations.locate(point), locations.node_at(point)
    for node, around in statements(spot.file) if filtered and isinstance(call, ast.Call) else ():
        if isinstance(node, ast.Call) and ast.dump(node, include_attributes=True) == _dumped(call):
            picked = _picking(node, around)
            return locations.place(spot.file, picked, spot.function) if picked is not None else spot
    return spot


def _dumped(node: ast.AST | None) -> str:
    return ast.dump(node, include_attributes=True) if node is not None else ""


def _building(file: str, kind: str, settings: Mapping[str, str]) -> Iterator[tuple[float, ast.Call, Sequence[ast.AST]]]:
    for node, around in statements(file):
        if not isinstance(node, ast.Call):
            continue
        named = ast.unparse(node.func)
        exact = named.rpartition(".")[2] == kind
        likely = re.search("optim", named, re.I) and any("parameters()" in ast.unparse(arg) for arg in node.args)
        looked_up = not exact and not likely and bool(node.args) and _is_looked_up(node.func, around)
        if not exact and not likely and not looked_up:
            continue
        told = {k.arg: _plain(k.value) for k in node.keywords if k.arg in settings and _plain(k.value)}
        agreeing = sum(1 if settings[key] == value else -10 for key, value in told.items() if key)
        yield agreeing + (5 if exact else -0.5 if looked_up else 0), node, around


def _is_looked_up(function: ast.expr, around: Sequence[ast.AST]) -> bool:
    """Whether the class is chosen by name: ``getattr(torch.optim, name)(...)``, ``OPTIMIZERS[name](...)``."""
    inside = [outer for outer in around if isinstance(outer, FUNCTIONS)]
    if isinstance(function, ast.Name) and inside:
        given = [n for n in ast.walk(inside[-1]) if isinstance(n, ast.Assign)]
        values = [n.value for n in given if any(isinstance(t, ast.Name) and t.id == function.id for t in n.targets)]
        return any(_is_looked_up(value, ()) for value in values)
    by_name = isinstance(function, ast.Subscript) or (
        isinstance(function, ast.Call) and ast.unparse(function.func) == "getattr"
    )
    return by_name and re.search("optim", ast.unparse(function), re.I) is not None


def _plain(value: ast.expr) -> str:
    """A value that is written out, as Python shows it; ``""`` for any other."""
    try:
        return repr(ast.literal_eval(value))
    except ValueError:
        return ""


def _picking(call: ast.Call, around: Sequence[Any]) -> ast.expr | None:
    """The expression that picks out the parameters, if it stands on a line of its own in the same function.

    None where groups are put together over several lines: none of them leaves out what they all leave out.
    """
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "params"), None)
    inside = [outer for outer in around if isinstance(outer, FUNCTIONS)]
    if not isinstance(given, ast.Name) or not inside:
        return None
    if any(_adds_to(node, given.id) for node in ast.walk(inside[-1])):
        return None
    for node in ast.walk(inside[-1]):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == given.id for t in targets):
            if _picks(node.value):
                return node.value
    return None


def _adds_to(node: ast.AST, name: str) -> bool:
    """Whether a list that a name holds grows there: ``groups += [...]``, ``groups.append(...)``."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name) and node.target.id == name
    grows = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in attributes.ADDING
    return grows and isinstance(node.func.value, ast.Name) and node.func.value.id == name  # type: ignore[attr-defined]


def _picks(value: ast.expr) -> bool:
    """Whether an expression leaves parameters out: by a condition other than ``requires_grad``, or by naming parts."""
    conditions = [test for node in ast.walk(value) if isinstance(node, ast.comprehension) for test in node.ifs]
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    asked = [node.args[0] for node in calls if ast.unparse(node.func) == "filter" and node.args]
    conditions += [one.body if isinstance(one, ast.Lambda) else one for one in asked]
    if any("requires_grad" not in ast.unparse(part) for test in conditions for part in _each_of(test)):
        return True
    owners = [
        node.func.value for node in calls if isinstance(node.func, ast.Attribute) and "parameters" in node.func.attr
    ]
    return bool(owners) and all(isinstance(owner, ast.Attribute) for owner in owners)


def _each_of(test: ast.expr) -> list[ast.expr]:
    """What has to hold for a condition to hold, where several things have to."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def matches_no_name(files: Iterable[str], function: str, names: Iterable[str]) -> Location | None:
    """The call that hands a function a text to look for in names, where no name holds it.

    Args:
        function: name of the function that chooses by name, such as ``convert(model, part)``.
        names: of everything in the model.

    Returns:
        None unless there is just one such call.
    """
    files, told = tuple(files), " ".join(names)
    asked = {key for file in files for key in _looked_for(file, function)}
    found = []
    for file in files:
        for node, around in statements(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == function:
                given = [*enumerate(node.args), *((k.arg, k.value) for k in node.keywords)]
                texts = [v.value for key, v in given if key in asked and isinstance(v, ast.Constant)]
                if any(isinstance(text, str) and text and text not in told for text in texts):
                    found.append(locations.place(file, node, function_of(around)))
    return found[0] if len(found) == 1 else None


def _looked_for(file: str, function: str) -> Iterator[int | str]:
    """Name and position of each parameter of a function that it looks for in something: ``if part in name``."""
    for node, _ in statements(file):
        if isinstance(node, FUNCTIONS) and node.name == function:
            tests = [x.left for x in ast.walk(node) if isinstance(x, ast.Compare) and isinstance(x.ops[0], ast.In)]
            sought = {x.id for x in tests if isinstance(x, ast.Name)}
            for position, argument in enumerate(node.args.args):
                if argument.arg in sought:
                    yield from (position, argument.arg)
