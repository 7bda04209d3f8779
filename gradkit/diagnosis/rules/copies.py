"""A loss that is computed by a copy of what the optimizer trains: by the target network, the average, the teacher.

Which of two alike networks is the copy is told by the line that made it one: what loaded the other's ``state_dict()``,
or a deep copy of the other. Without such a line nothing is said here.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from gradkit.core.records import OBSERVED, Finding
from gradkit.core.trace import Chain
from gradkit.diagnosis.facts.optimizers import Gap
from gradkit.diagnosis.rules.evidence import Evidence, called_by
from gradkit.source import locations
from gradkit.witness.deeds import COPIED, LOADED, Deed

_Part = Mapping[str, tuple[int, ...]]


def in_the_loss(e: Evidence, missing: Sequence[str], built: Gap) -> Finding | None:
    """The line that asks a copy, where the optimizer holds what it is a copy of, and nothing of that gets a gradient.

    Args:
        missing: the parameters that no optimizer holds.
        built: the optimizer that holds others.
    """
    parts = _parts(e)
    names = {name.partition(".")[0] for name in missing}
    copy = next(iter(names)) if len(names) == 1 else ""
    mine = [row for row in e.rows if row.name.startswith(f"{copy}.")] if copy else []
    if not mine or {row.name for row in mine} != set(missing):
        return None
    original = _original(e, copy, [name for name, part in parts.items() if name != copy and part == parts[copy]])
    chain = _asked(e, copy, missing) if original else ()
    if not chain:
        return None
    return Finding(
        "optimizer_mismatch", locations.locate(chain[0]), tuple(called_by(chain)), proof=OBSERVED,
        parameters=tuple(missing), facts={"optimizer": built.kind, "copy": copy, "original": original},
        variant="asked_copy",
    )  # fmt: skip


def _parts(e: Evidence) -> dict[str, _Part]:
    """The shapes of what the model's outermost parts hold, by name."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for row in e.rows:
        part, _, rest = row.name.partition(".")
        found.setdefault(part, {})[rest] = row.shape
    return {part: shapes for part, shapes in found.items() if "" not in shapes}


def _original(e: Evidence, copy: str, alike: Sequence[str]) -> str:
    """Which of some parts one was made a copy of, if that gets no gradient; ``""`` if that was not seen."""
    deeds = [e.seen.parameters.get(row.name, ()) for row in e.rows if row.name.startswith(f"{copy}.")]
    lines = {_copying(told) for told in deeds}
    source = next(iter(lines)) if len(lines) == 1 else ""
    reached = {row.name.partition(".")[0] for row in e.rows if row.reached}
    return source if source in alike and source not in reached else ""


def _copying(told: Sequence[Deed]) -> str:
    """The name of what a parameter was copied from, as the line says that did it last; ``""`` if none did."""
    last = next((deed for deed in reversed(told) if deed.kind in (LOADED, COPIED) and deed.chain), None)
    node = locations.node_at(last.chain[0]) if last is not None else None
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    given = node.args[0]
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "state_dict":
        given = given.func.value
    return _last_name(given)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _asked(e: Evidence, copy: str, names: Sequence[str]) -> Chain:
    """The user's frames from the line on that calls the copy by its name, where what it gives has a history."""
    for call in e.flow_from(names):
        if call.grad_on and any(e.trace.values[number].requires_grad for number in call.outputs):
            for depth, point in enumerate(call.chain):
                node = locations.node_at(point)
                if isinstance(node, ast.Call) and _last_name(node.func) == copy:
                    return call.chain[depth:]
    return ()
