"""Parameters that were frozen along with others, where the program itself says that they were not meant.

That something is frozen is as a rule meant so, and where all else learns nothing else shows. Two things do: layers that
are frozen because their number begins like another's (``"layers.1"`` begins ``"layers.10"``), and what an optimizer was
handed apart from the rest of a frozen module, in a program that never thaws anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from gradkit.source import freezing, syntax

NUMBER, PICKED = "number", "picked"
_MATCHES = frozenset("match search fullmatch".split())


def caught(flags: Mapping[str, bool], held: Collection[str], files: Iterable[str]) -> dict[str, str]:
    """What is frozen and was not meant to be, each with how that is known.

    Args:
        flags: whether each parameter requires grad, by its name.
        held: the names of those that an optimizer holds which the user has handed over; ``()`` if there is none.
        files: the user's.

    Example:
        >>> import linecache
        >>> text = ["if name.startswith('layers.1'):\\n", "    p.requires_grad = False\\n"]
        >>> linecache.cache["freeze_along.py"] = (1, None, text, "freeze_along.py")
        >>> flags = {f"layers.{i}.weight": i not in (1, 10, 11) for i in range(12)}
        >>> caught(flags, (), ["freeze_along.py"])
        {'layers.10.weight': 'number', 'layers.11.weight': 'number'}
    """
    if all(flags.values()) or not any(flags.values()):
        return {}
    files = tuple(files)
    found = dict.fromkeys(_picked(flags, held), PICKED) if held and not _thaws(files) else {}
    return {**found, **dict.fromkeys([*_by_number(flags, files), *_by_first_digit(flags, files)], NUMBER)}


# -- a number cut short -----------------------------------------------------------------------------------------------


def _by_number(flags: Mapping[str, bool], files: Iterable[str]) -> Iterator[str]:
    """The frozen layers whose number begins with that of another frozen one, where all such and no others are."""
    for path, layers in _lists(flags).items():
        whole = {number for number, names in layers.items() if not any(flags[name] for name in names)}
        partly = any(not flags[name] for n, names in layers.items() if n not in whole for name in names)
        begun = {n for n in layers if any(_begins(n, other) for other in whole)}
        if partly or not begun or not begun <= whole or _is_a_stretch(whole, layers):
            continue
        word = path.rpartition(".")[2]
        if any(freezing.is_text_of(node, word) for file in files for node in syntax.nodes(file)):
            yield from (name for number in sorted(begun) for name in layers[number])


def _lists(flags: Mapping[str, bool]) -> dict[str, dict[int, list[str]]]:
    """The names of parameters by the list that they are in, and by their number there."""
    found: dict[str, dict[int, list[str]]] = {}
    for name in flags:
        parts = name.split(".")
        for at, part in enumerate(parts):
            if part.isdigit():
                found.setdefault(".".join(parts[:at]), {}).setdefault(int(part), []).append(name)
    return found


def _begins(number: int, other: int) -> bool:
    return number != other > 0 and str(number).startswith(str(other))


def _is_a_stretch(some: Collection[int], of: Collection[int]) -> bool:
    """Whether some numbers follow one another, as those do that a bound picks."""
    return sum(min(some) <= one <= max(some) for one in of) == len(some)


def _by_first_digit(flags: Mapping[str, bool], files: Iterable[str]) -> Iterator[str]:
    """The frozen layers of whose number a pattern takes the first digit alone, beside a line that freezes by it."""
    for file in files:
        nodes = list(syntax.statements(file))
        freezers = {syntax.function_of(around) for node, around in nodes if freezing.flag_off(node)}
        counting = {syntax.function_of(around) for node, around in nodes if _is_call(node, ("int",))}
        for node, around in nodes:
            function = syntax.function_of(around)
            pattern = _pattern(node) if function in freezers and function in counting else None
            yield from _cut_short(pattern, flags) if pattern is not None else ()


def _cut_short(pattern: re.Pattern[str], flags: Mapping[str, bool]) -> list[str]:
    """The names of whose number a pattern takes less, if they are as frozen as those whose number that is."""
    told = {name: taken for name in flags if (taken := _taken(pattern, name)) is not None}
    whole = {number for name, (number, cut) in told.items() if not cut and not flags[name]}
    free = {number for name, (number, cut) in told.items() if flags[name]}
    found = [name for name, (number, cut) in told.items() if cut and not flags[name]]
    return found if whole and not free.intersection(told[name][0] for name in found) else []


def _is_call(node: ast.AST, names: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and syntax.call_name(node) in names


def _pattern(node: ast.AST) -> re.Pattern[str] | None:
    """The pattern with a group that a name is matched with, if it is written out."""
    if not isinstance(node, ast.Call) or not _is_call(node, _MATCHES) or len(node.args) < 2:
        return None
    given = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    try:
        found = re.compile(given) if isinstance(given, str) else None
    except re.error:
        return None
    return found if found is not None and found.groups == 1 else None


def _taken(pattern: re.Pattern[str], name: str) -> tuple[str, bool] | None:
    """The number that a pattern takes from a name, or from what a part calls it, and whether more of it follows."""
    parts = name.split(".")
    for at in range(len(parts)):
        inner = ".".join(parts[at:])
        found = pattern.match(inner)
        if found is not None and (found[1] or "").isdigit():
            return found[1], inner[found.end(1) : found.end(1) + 1].isdigit()
    return None


# -- handed to an optimizer -------------------------------------------------------------------------------------------


def _picked(flags: Mapping[str, bool], held: Collection[str]) -> Iterator[str]:
    """What is frozen and was handed to the optimizer as a whole, apart from what else is frozen around it."""
    off = [name for name, on in flags.items() if not on]
    apart = [name for name in off if name not in held]
    for name in off:
        parts = name.split(".") if name in held else []
        for depth in range(len(parts) - 1, -1, -1):
            around = "".join(f"{part}." for part in parts[:depth])
            if any(other.startswith(around) for other in apart):
                mine = ".".join(parts[: depth + 1])
                if not any(on for n, on in flags.items() if n == mine or n.startswith(f"{mine}.")):
                    yield name
                break


def _thaws(files: Iterable[str]) -> bool:
    """Whether anything in some files may set ``requires_grad`` again: what is frozen now may learn later."""
    return any(_sets_flag(node) for file in files for node in syntax.nodes(file))


def _sets_flag(node: ast.AST) -> bool:
    """Whether a node sets the flag to something else than False."""
    value = freezing.flag_given(node)
    if value is not None:
        return not (isinstance(value, ast.Constant) and value.value is False)
    return isinstance(node, ast.Call) and "unfreeze" in syntax.call_name(node).lower()
