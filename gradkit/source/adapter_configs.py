"""Where the config of a peft adapter says ``inference_mode=True``, by which peft freezes the adapter.

It is written into the config, given through a function or a dictionary, set on the config afterwards, or read from a
folder: peft saves every adapter's config with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.core.trace import Chain
from gradkit.source import came_from, locations, syntax

FLAG = "inference_mode"
GIVEN, SAVED, SWITCHED = "config", "saved", "switched"
_POSITIONS = {"get_peft_model": 1, "PeftModel": 1, "inject_adapter_in_model": 0, "add_adapter": 1}
_NAMES = ("peft_config", "adapter_config")
_DEEPEST = 6
_READ = re.compile(r"(Peft|Lora|LoRA|IA3|AdaLora|Prompt\w*|Prefix\w*|P?Tuning|LoHa|LoKr|OFT|BOFT|VeRA|Vera)\w*Config$")


@dataclass(frozen=True)
class Said:
    """A line that has an adapter frozen.

    Attributes:
        location: the line.
        kind: ``"config"`` (it gives ``inference_mode=True``), ``"saved"`` (it reads a config that was saved with it) or
            ``"switched"`` (``set_adapter(..., inference_mode=True)``).
    """

    location: Location
    kind: str


def said_at(chain: Chain) -> Said | None:
    """Where the config that a call of peft's is given says ``inference_mode=True``; None if that cannot be told.

    Args:
        chain: the frames of the call that froze the adapter, innermost first.
    """
    call = locations.node_at(chain[0]) if chain else None
    if not isinstance(call, ast.Call):
        return None
    name = syntax.call_name(call)
    if name == "set_adapter":
        value = next((one.value for one in call.keywords if one.arg == FLAG), None)
        spot = _on(chain, value, _DEEPEST) if value is not None else None
        return Said(spot, SWITCHED) if spot is not None else None
    given = (syntax.argument(call, one, _POSITIONS.get(name, len(call.args))) for one in _NAMES)
    config = next((one for one in given if one is not None), None)
    return _of_config(chain, config) if config is not None and name in _POSITIONS else None


def said_in(files: Iterable[str]) -> Said | None:
    """The one line in the user's source that may say so, where nobody saw the adapter being made; None if several may.

    A config that is read from a folder counts unless the same function sets ``inference_mode`` on anything.
    """
    found = [said for file in files for said in _said_in(file)]
    return found[0] if len(found) == 1 else None


def _said_in(file: str) -> Iterator[Said]:
    statements = [(node, syntax.function_of(around)) for node, around in syntax.statements(file)]
    mended = {where for node, where in statements if isinstance(node, ast.Attribute) and node.attr == FLAG}
    for node, where in statements:
        if not isinstance(node, ast.Call):
            continue
        flags = [one.value for one in node.keywords if one.arg == FLAG]
        if any(isinstance(flag, ast.Constant) and flag.value is True for flag in flags):
            yield Said(locations.place(file, node, where), GIVEN)
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if syntax.call_name(node) == "from_pretrained" and _READ.search(owner) and where not in mended:
            yield Said(locations.place(file, node, where), SAVED)


def _of_config(chain: Chain, value: ast.expr) -> Said | None:
    last = list(came_from.handed(chain, value))[-1]
    made, line = last.value, locations.line_of(last.chain[0])
    if isinstance(made, ast.Name):
        told = [one for one in came_from.statements_around(last.chain[0]) if one.lineno < line]
        set_on = [x for one in told for x in _values_set(one, f"{made.id}.{FLAG}")]
        if set_on:
            spot = _on(last.chain, set_on[-1], _DEEPEST)
            return Said(spot, GIVEN) if spot is not None else None
        given = [x for one in told for x in _values_set(one, made.id)]
        made = given[-1] if given else None
    if not isinstance(made, ast.Call):
        return None
    if syntax.call_name(made) == "from_pretrained" and "Config" in ast.unparse(made.func):
        return Said(locations.place(last.code.co_filename, made, locations.qualified_name(last.code)), SAVED)
    spot = _in(last.chain, made, _DEEPEST)
    return Said(spot, GIVEN) if spot is not None else None


def _values_set(statement: ast.stmt, name: str) -> Iterator[ast.expr]:
    yield from (value for target, value in syntax.pairs(statement) if ast.unparse(target) == name)


def _in(chain: Chain, made: ast.expr, left: int) -> Location | None:
    """Where a call, a dictionary or a mapping that is spread into a call has the flag on."""
    if left <= 0:
        return None
    if isinstance(made, ast.Dict):
        keys = [one.value if isinstance(one, ast.Constant) else None for one in made.keys]
        found = [value for key, value in zip(keys, made.values, strict=True) if key == FLAG]
        return _on(chain, found[-1], left - 1) if found else None
    if isinstance(made, ast.Call):
        named = next((one.value for one in made.keywords if one.arg == FLAG), None)
        if named is not None:
            return _on(chain, named, left - 1)
        spread = (one.value for one in made.keywords if one.arg is None)
        return next(filter(None, (_in(chain, one, left - 1) for one in spread)), None)
    return _of_name(chain, made, left) if isinstance(made, ast.Name) else None


def _of_name(chain: Chain, name: ast.Name, left: int) -> Location | None:
    """The same of a mapping under a name: what it was made of, or what a caller gave for ``**name``."""
    told = came_from.given_to(chain[0], name.id)
    if told is not None:
        return _in(chain, told, left - 1)
    call = locations.node_at(chain[1]) if len(chain) > 1 else None
    if isinstance(call, ast.Call) and came_from.takes_the_rest(chain[0], name.id):
        return _in(chain[1:], call, left - 1)
    last = list(came_from.handed(chain, name))[-1]
    return _in(last.chain, last.value, left - 1) if last.value is not None and last.value is not name else None


def _on(chain: Chain, value: ast.expr, left: int) -> Location | None:
    """Where a value is True: itself, what its name was given, or what a caller gave."""
    last = list(came_from.handed(chain, value))[-1]
    if isinstance(last.value, ast.Name) and left > 0:
        told = came_from.given_to(last.chain[0], last.value.id)
        return _on(last.chain, told, left - 1) if told is not None else None
    made = last.value if last.value is not None else last.default
    if not isinstance(made, ast.Constant) or not made.value:
        return None
    if last.value is None:  # by default, for a caller that gives nothing
        return locations.locate(last.chain[0], whole=True)
    return locations.place(last.code.co_filename, made, locations.qualified_name(last.code))
