"""The line that builds a layer with ``inplace=True``: ``nn.ReLU(inplace=True)``, ``nn.Dropout(0.3, True)``.

What such a layer overwrites is its input. The line that calls it says nothing of that, and often calls a whole
``nn.Sequential``; what has to change is the line that built the layer.
Source: https://pytorch.org/docs/stable/generated/torch.nn.ReLU.html
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import attributes, locations, syntax

_INPLACE = "inplace"


def built_at(cls: type, ways: Sequence[tuple[type, str]], files: Sequence[str]) -> Location | None:
    """The line that builds a layer of a class, so that it overwrites its input.

    Args:
        cls: the class of the layer.
        ways: the classes of the modules around it, the innermost first, each with the attribute that leads to it.
        files: the user's.

    Returns:
        None if the class has no such setting, or if no line, or more than one, may be meant.
    """
    place = _place(cls)
    if place is None:
        return None
    known = [*_builders(files, cls.__name__, place)]
    for owner, attribute in ways:
        inside = attributes.created(owner, attribute, cls.__name__, files)
        if inside:
            return _only(one for one in known if any(_holds(outer, one) for outer in inside))
    return _only(known) if known else _only(_builders(files, "", place))


def _holds(outer: Location, inner: Location) -> bool:
    return outer.file == inner.file and outer.line <= inner.line <= max(outer.line, outer.end_line)


def _place(cls: type) -> int | None:
    """At which position the class takes the setting; None if it has none."""
    try:
        names = list(inspect.signature(cls).parameters)
    except (TypeError, ValueError):
        return None
    return names.index(_INPLACE) if _INPLACE in names else None


def _builders(files: Iterable[str], name: str, place: int) -> Iterator[Location]:
    """The calls by this name that ask for it; with ``""``, those of what a variable holds."""
    for file in dict.fromkeys(files):
        for node, around in syntax.statements(file):
            if isinstance(node, ast.Call) and (syntax.call_name(node) == name if name else _is_variable(node)):
                if _asks(syntax.argument(node, _INPLACE, place if name else len(node.args))):
                    yield locations.place(file, node, syntax.function_of(around))


def _is_variable(call: ast.Call) -> bool:
    """Whether what is called may be any class: a variable, an element, a result; not ``nn.ReLU`` or ``F.relu``."""
    if isinstance(call.func, ast.Attribute):
        return isinstance(call.func.value, ast.Name) and call.func.value.id in ("self", "cls", "cfg", "config")
    return not isinstance(call.func, ast.Name) or not call.func.id[:1].isupper()


def _asks(value: ast.expr | None) -> bool:
    """Whether it may be true, as a variable may."""
    return value is not None and not (isinstance(value, ast.Constant) and value.value is not True)


def _only(found: Iterable[Location]) -> Location | None:
    places = {(one.file, one.line): one for one in found}
    return next(iter(places.values())) if len(places) == 1 else None
