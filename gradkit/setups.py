"""Lines of the user's source that set training up: that build an optimizer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gradkit import frames
from gradkit.records import Location
from gradkit.sources import function_of, statements
from gradkit.words import FUNCTIONS


def optimizer(
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
    if not found:
        return None
    _, call, around, file = max(found, key=lambda entry: entry[0])
    picked = _picking(call, around) if filtered else None
    return frames.place(file, picked if picked is not None else call, function_of(around))


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
    """The expression that picks out the parameters, if it stands on a line of its own in the same function."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "params"), None)
    inside = [outer for outer in around if isinstance(outer, FUNCTIONS)]
    if not isinstance(given, ast.Name) or not inside:
        return None
    for node in ast.walk(inside[-1]):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == given.id for t in targets):
            if _picks(node.value):
                return node.value
    return None


def _picks(value: ast.expr) -> bool:
    """Whether an expression leaves parameters out: by a condition other than ``requires_grad``, or by naming parts."""
    conditions = [test for node in ast.walk(value) if isinstance(node, ast.comprehension) for test in node.ifs]
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    conditions += [node.args[0] for node in calls if ast.unparse(node.func) == "filter" and node.args]
    if any("requires_grad" not in ast.unparse(test) for test in conditions):
        return True
    asked = [
        node.func.value for node in calls if isinstance(node.func, ast.Attribute) and "parameters" in node.func.attr
    ]
    return bool(asked) and all(isinstance(owner, ast.Attribute) for owner in asked)


def matching_nothing(files: Iterable[str], function: str, names: Iterable[str]) -> Location | None:
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
                    found.append(frames.place(file, node, function_of(around)))
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
