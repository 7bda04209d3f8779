"""An expression written so that its value keeps its history: what stays in torch, and is not written over.

Texts only, read from source and never run. A rewritten expression may mean another number where a library's function
and torch's differ, so who offers one has to compare what comes of both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from gradkit.core.records import Change, Location
from gradkit.source import imported, syntax
from gradkit.source.imported import Source
from gradkit.source.syntax import Function

Changes = tuple[Change, ...]
_MAKERS = frozenset("tensor as_tensor asarray from_numpy new_tensor Tensor FloatTensor DoubleTensor Parameter".split())
_HANDS_ON = frozenset("as_tensor asarray".split())
_UNHEARD = "from_numpy"
_LEAVES = frozenset("item tolist numpy float".split())
_BEFORE = frozenset("detach cpu data".split())
_COPIED = _BEFORE | {"clone", "requires_grad_"}
_KEYWORDS = frozenset("dtype device requires_grad".split())
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@",
}  # fmt: skip
_KEPT_SIGN = "_"  # ends the name of a method that writes into its tensor
_ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant)


def stacked(spot: Location) -> Changes:
    """``torch.stack(values)`` for ``torch.tensor(values)``, where these may be tensors."""
    found = _maker_at(spot)
    if found is None:
        return ()
    source, call = found
    values, function = call.args[0], call.func
    listed = isinstance(values, (ast.ListComp, ast.Name, ast.Attribute, ast.Subscript)) or _is_flat_list(values)
    if not listed or not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return ()
    if isinstance(values, ast.Name) and _is_anything(source, call, values.id):
        return ()
    return _with(source, {call: f"{function.value.id}.stack({text_of(source, values)}){_moved_to(source, call)}"})


def _is_anything(source: Source, call: ast.Call, name: str) -> bool:
    """Whether a value is an argument of a function that is called in several places: others may hand it numbers."""
    function = syntax.function_at(source.tree, call.lineno)
    if function is None or name not in syntax.parameters(function) or source.tree is None:
        return False
    calls = (one for one in ast.walk(source.tree) if isinstance(one, ast.Call) and not syntax.same(one, call))
    return sum(syntax.call_name(one) == function.name for one in calls) > 1


def unwrapped(spot: Location) -> Changes:
    """``x`` for ``torch.tensor(x)`` and for ``nn.Parameter(x)``."""
    found = _maker_at(spot)
    if found is None or isinstance(found[1].args[0], (ast.List, ast.ListComp, ast.Constant)):
        return ()
    source, call = found
    if isinstance(call.args[0], ast.Name) and _is_anything(source, call, call.args[0].id):
        return ()
    return _with(source, {call: f"{_atom(source, call.args[0])}{_moved_to(source, call)}"})


def uncopied(spot: Location) -> Changes:
    """``x`` for ``x.detach().clone().requires_grad_()``, where a location points at what cuts."""
    source = imported.source_of(spot)
    for call in _calls_on(source, spot) if source is not None else ():
        node: ast.expr = call
        cuts = False
        while _name_of_copy(node) in (_COPIED if node is not call else ("requires_grad_",)):
            cuts |= source is not None and _ends_at(source, node, spot)
            outer = node.func if isinstance(node, ast.Call) else node
            node = outer.value if isinstance(outer, ast.Attribute) else outer
        if cuts and source is not None:
            return _with(source, {call: _atom(source, node)})
    return ()


def _name_of_copy(node: ast.expr) -> str:
    """The last part of a method that is called, or of an attribute that is read."""
    outer = node.func if isinstance(node, ast.Call) else node
    return outer.attr if isinstance(outer, ast.Attribute) and (outer is not node or outer.attr == "data") else ""


def kept_in_torch(spot: Location, back: Sequence[Location] = ()) -> Changes:
    """``x`` for ``x.detach().numpy()``, ``x.item()`` and ``float(x)``, and for what makes tensors of them again.

    Where the variable that it is stored in is put away later in the function, that goes on without a history.

    Args:
        back: places in the same file where the value comes back into torch. They are left as they are where no call
            makes a tensor of one value, or where that hands a tensor on as it is.
    """
    source = imported.source_of(spot)
    call = _leaving_at(source, spot) if source is not None else None
    if source is None or call is None:
        return ()
    inner = _inner(call)
    new: dict[ast.expr, str] = {call: _atom(source, inner)}
    for made in (made for place in back if place.file == spot.file for made in _makers_at(source, place)):
        if made.lineno != spot.line and _name(made) not in _HANDS_ON:
            new[made] = f"{_atom(source, made.args[0])}{_moved_to(source, made)}"
    statement = _statement(source, spot.line)
    out = text_of(source, call)[len(text_of(source, inner)) :] if isinstance(call.func, ast.Attribute) else ""
    new.update(_put_away(source, statement, out))
    if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == ast.unparse(inner):
        if statement.value is not call or _is_alone(source, statement):
            return ()
        del new[call]
        gone = Change("-", statement.lineno, source.line(statement.lineno))
        return tuple(sorted((gone, *_with(source, new)), key=lambda one: one.number))
    return _with(source, new)


def out_of_place(spot: Location) -> Changes:
    """``x = x + y`` for ``x += y``, ``x.relu()`` for ``x.relu_()``, ``F.relu(x)`` for ``F.relu(x, inplace=True)``."""
    source = imported.source_of(spot)
    statement = _statement(source, spot.line) if source is not None else None
    if source is None or statement is None or statement.lineno != statement.end_lineno:
        return ()
    if isinstance(statement, ast.AugAssign):
        sign = _SIGNS.get(type(statement.op))
        if sign is None or not isinstance(statement.target, ast.Name):
            return ()
        name, value = statement.target.id, _atom(source, statement.value)
        return _rewritten(source, statement, f"{name} = {name} {sign} {value}")
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call) and _ends_at(source, node, spot)):
        if (made := _not_written(source, statement, call)) != ():
            return made
    return ()


def assigned(spot: Location) -> Changes:
    """``x = x.detach()`` for ``x.detach()`` alone on its line, which hands out a tensor that nobody takes."""
    source = imported.source_of(spot)
    statement = _statement(source, spot.line) if source is not None else None
    call = statement.value if isinstance(statement, ast.Expr) and statement.lineno == statement.end_lineno else None
    function = call.func if isinstance(call, ast.Call) and not call.args else None
    if source is None or statement is None or not isinstance(function, ast.Attribute) or function.attr != "detach":
        return ()
    if not isinstance(function.value, (ast.Name, ast.Attribute, ast.Subscript)):
        return ()
    return _rewritten(source, statement, f"{text_of(source, function.value)} = {text_of(source, statement)}")


def put_detached(spot: Location) -> Changes:
    """``kept.append(x.detach())`` for ``kept.append(x)`` alone on its line."""
    source = imported.source_of(spot)
    statement = _statement(source, spot.line) if source is not None else None
    kept = statement is not None and keeps(statement)
    call = statement.value if kept and isinstance(statement, ast.Expr) else None
    if source is None or not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return ()
    (value,) = call.args
    if isinstance(value, (ast.Starred, ast.Constant, ast.Tuple, ast.List, ast.Dict)):
        return ()
    return _with(source, {value: f"{_atom(source, value)}.detach()"}) if value.lineno == value.end_lineno else ()


def written_anew(source: Source, new: Mapping[Any, str]) -> Iterator[Change]:
    """The lines of some expressions, each on one line, with another text for each."""
    for number in sorted({node.lineno for node in new}):
        text = source.line(number)
        made = text.encode()
        for node in sorted((n for n in new if n.lineno == number), key=lambda n: -n.col_offset):
            made = made[: node.col_offset] + new[node].encode() + made[node.end_col_offset :]
        yield Change("-", number, text)
        yield Change("+", number, made.decode())


# -- what stands at a place -------------------------------------------------------------------------------------------


def _statement(source: Source, line: int) -> ast.stmt | None:
    """The innermost statement that begins on a line; None if several do."""
    nodes = ast.walk(source.tree) if source.tree is not None else ()
    found = [node for node in nodes if isinstance(node, ast.stmt) and node.lineno == line]
    return found[0] if len(found) == 1 else None


def _calls_on(source: Source, spot: Location) -> Iterator[ast.Call]:
    for node in ast.walk(source.tree) if source.tree is not None else ():
        if isinstance(node, ast.Call) and node.lineno == spot.line == node.end_lineno:
            yield node


def _ends_at(source: Source, node: ast.expr, spot: Location) -> bool:
    """Whether an expression ends where a location does; locations count characters, trees bytes."""
    before = source.line(spot.line).encode()[: node.end_col_offset].decode(errors="replace")
    return len(before) + 1 == spot.end_column


def _maker_at(spot: Location) -> tuple[Source, ast.Call] | None:
    """The call that makes a tensor of one value, which a location points at."""
    source = imported.source_of(spot)
    for call in _calls_on(source, spot) if source is not None else ():
        if source is not None and _makes_of_one(call) and _ends_at(source, call, spot):
            return source, call
    return None


def _makers_at(source: Source, spot: Location) -> list[ast.Call]:
    """The call that makes a tensor of one value; where a location points at none, those on its line that use NumPy's
    memory, none inside of another."""
    calls = [call for call in _calls_on(source, spot) if _makes_of_one(call)]
    found = [call for call in calls if _ends_at(source, call, spot)]
    return found or [call for call in calls if _name(call) == _UNHEARD and isinstance(call.args[0], ast.Name)]


def _makes_of_one(call: ast.Call) -> bool:
    plain = len(call.args) == 1 and not isinstance(call.args[0], ast.Starred)
    return plain and _name(call) in _MAKERS and all(keyword.arg in _KEYWORDS for keyword in call.keywords)


def _leaving_at(source: Source, spot: Location) -> ast.Call | None:
    """The call by which a value leaves torch, which a location points at."""
    found = [c for c in _calls_on(source, spot) if _name(c) in _LEAVES and _ends_at(source, c, spot)]
    by_name = [c for c in found if isinstance(c.func, ast.Name)]
    takes = 1 if by_name else 0
    return next((c for c in found if len(c.args) == takes and not c.keywords), None)


def _name(call: ast.Call) -> str:
    """The last part of the name of what is called; a plain name only of ``float``."""
    if isinstance(call.func, ast.Name):
        return call.func.id if call.func.id == "float" else ""
    return call.func.attr if isinstance(call.func, ast.Attribute) and call.func.attr != "float" else ""


def _inner(call: ast.Call) -> ast.expr:
    """What leaves torch, without what is done to it on the way out: ``x`` of ``x.detach().cpu().numpy()``."""
    node = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
    while True:
        plain = isinstance(node, ast.Call) and not node.args and not node.keywords
        outer = node.func if isinstance(node, ast.Call) and plain else node
        if not isinstance(outer, ast.Attribute) or outer.attr not in _BEFORE or plain == (outer.attr == "data"):
            return node
        node = outer.value


def _is_flat_list(values: ast.expr) -> bool:
    """Whether a list holds nothing that is plainly no tensor."""
    return isinstance(values, ast.List) and not any(
        isinstance(one, (ast.Constant, ast.List, ast.Starred, ast.Tuple)) for one in values.elts
    )


# -- texts ------------------------------------------------------------------------------------------------------------


def text_of(source: Source, node: ast.expr | ast.stmt) -> str:
    """The text of an expression or statement on one line."""
    return source.line(node.lineno).encode()[node.col_offset : node.end_col_offset].decode()


def _atom(source: Source, node: ast.expr) -> str:
    """The text of an expression that a dot may follow."""
    text = text_of(source, node)
    return text if isinstance(node, _ATOMS) else f"({text})"


def _moved_to(source: Source, call: ast.Call) -> str:
    """``.to(...)`` with the dtype and the device that a call asks for."""
    given = {one.arg: text_of(source, one.value) for one in call.keywords if one.arg in ("dtype", "device")}
    if len(given) == 1:
        return f".to({next(iter(given.values()))})"
    return f".to({given['device']}, {given['dtype']})" if given else ""


def _with(source: Source, new: Mapping[ast.expr, str]) -> Changes:
    return tuple(written_anew(source, new)) if all(node.lineno == node.end_lineno for node in new) else ()


def _rewritten(source: Source, statement: ast.stmt, made: str) -> Changes:
    text = source.line(statement.lineno).encode()
    new = (text[: statement.col_offset] + made.encode() + text[statement.end_col_offset :]).decode()
    return Change("-", statement.lineno, text.decode()), Change("+", statement.lineno, new)


def _not_written(source: Source, statement: ast.stmt, call: ast.Call) -> Changes:
    """A call that writes into its tensor as one that does not."""
    told = [keyword for keyword in call.keywords if keyword.arg == "inplace"]
    if told and len(call.keywords) == 1 and not isinstance(statement, ast.Expr):
        kept = ", ".join(text_of(source, one) for one in call.args)
        return _with(source, {call: f"{text_of(source, call.func)}({kept})"})
    function = call.func
    if told or not isinstance(function, ast.Attribute) or not function.attr.endswith(_KEPT_SIGN):
        return ()
    base, name = text_of(source, function.value), function.attr.removesuffix(_KEPT_SIGN)
    made = f"{base}.{name}{text_of(source, call)[len(text_of(source, function)) :]}"
    if not isinstance(statement, ast.Expr):
        return _with(source, {call: made})
    if statement.value is not call or not isinstance(function.value, ast.Name):
        return ()
    return _rewritten(source, statement, f"{base} = {made}")


# -- what is put away -------------------------------------------------------------------------------------------------


def _put_away(source: Source, statement: ast.stmt | None, out: str) -> Iterator[tuple[ast.expr, str]]:
    """The uses of an assigned variable that put it into a list, an attribute or under a key, each with what takes the
    history away; of a sum that is added to, nothing is known to be put away."""
    if not isinstance(statement, ast.Assign) or not out:
        return
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    function = function_around(source, statement.lineno)
    later = (node for node in ast.walk(function or statement) if keeps(node) and node.lineno > statement.lineno)
    for name in (node for one in later for node in ast.walk(one)):
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and name.id in names:
            yield name, f"{name.id}{out}"


def keeps(node: ast.AST) -> TypeGuard[ast.stmt]:
    """Whether a statement stores something in an attribute, under a key or in a list."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    called = node.value if isinstance(node, ast.Expr) else None
    return isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and called.func.attr == "append"


def function_around(source: Source, line: int) -> Function | None:
    """The innermost function around a line."""
    nodes = ast.walk(source.tree) if source.tree is not None else ()
    found = [node for node in nodes if isinstance(node, Function) and node.lineno <= line <= (node.end_lineno or line)]
    return max(found, key=lambda node: node.lineno, default=None)


def _is_alone(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement is all that a block holds."""
    nodes = ast.walk(source.tree) if source.tree is not None else ()
    return any(getattr(node, part, None) == [statement] for node in nodes for part in ("body", "orelse", "finalbody"))
