"""Where what a call was given came from: a name is followed back to the line that binds it, through the callers.

A run knows the frames around a call. A name that is a parameter of its function stands for what the next frame gave.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import dataflow, locations, syntax

_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Defining = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Given:
    """What stands for a value in one of some frames.

    Attributes:
        value: the expression; None if nothing was given and the parameter's default holds.
        chain: the frames from that one on, innermost first.
        default: where nothing was given, the default.
        name: the parameter that it was given for; ``""`` for the expression that was asked about itself.
    """

    value: ast.expr | None
    chain: Chain
    default: ast.expr | None = None
    name: str = ""

    @property
    def code(self) -> CodeType:
        """The function that it stands in."""
        return self.chain[0][0]


def handed(chain: Chain, value: ast.expr) -> Iterator[Given]:
    """What stands for a value in its own frame, then in each further out, as long as it is a parameter handed on."""
    yield (last := Given(value, chain))
    while isinstance(last.value, ast.Name) and (further := _further_out(last.chain, last.value.id)) is not None:
        yield (last := further)


def _further_out(chain: Chain, name: str) -> Given | None:
    """What the next frame gave for a parameter; None if the name is none, is bound anew, or the call cannot be read."""
    function = next(iter(_functions(chain[0])), None)
    call = locations.node_at(chain[1]) if len(chain) > 1 else None
    if function is None or not isinstance(call, ast.Call) or not _calls(call, function):
        return None
    known = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    named = [one.arg for one in function.args.kwonlyargs]
    if name not in (*known, *named) or _binding(function, name) or any(one.arg is None for one in call.keywords):
        return None
    value = next((one.value for one in call.keywords if one.arg == name), None)
    if value is None and name in known:
        at = known.index(name) - (known[0] in ("self", "cls") and _leaves_self_out(call, chain[0][0]))
        value = syntax.argument(call, name, at) if at >= 0 else None
    if value is None and any(isinstance(one, ast.Starred) for one in call.args):
        return None
    default = syntax.default(function, name) if value is None else None
    return Given(value, chain[1:], default, name) if value is not None or default is not None else None


def _calls(call: ast.Call, function: _Defining) -> bool:
    """Whether a call may be one of a function, by its name; what a module or a class runs goes by another."""
    name = getattr(function, "name", "")
    return name in ("", "forward", "__call__", "__init__") or syntax.call_name(call) == name


def _leaves_self_out(call: ast.Call, code: CodeType) -> bool:
    """Whether a call leaves the first parameter out: ``self.f(x)``, ``model(x)``, ``A(x)``, not ``A.f(self, x)``."""
    owner = locations.qualified_name(code).split(".")[-2:-1]
    return not (isinstance(call.func, ast.Attribute) and [ast.unparse(call.func.value)] == owner)


def _functions(point: Point) -> list[_Defining]:
    """The functions around a place, innermost first; what was made of a part of a function stands where that did."""
    code, line = point[0], locations.line_of(point)
    tree = locations.tree_at(code)
    found = [one for one in ast.walk(tree) if isinstance(one, _DEFINING)] if tree is not None else []
    around = [one for one in found if one.lineno <= line <= (one.end_lineno or line)]
    around = sorted(around, key=lambda one: (one.end_lineno or 0) - one.lineno)
    if code.co_name != "<lambda>":
        around = [one for one in around if not isinstance(one, ast.Lambda)]
    return around


def _scopes(point: Point) -> list[ast.AST]:
    """Where names are looked up from a place: the functions around it, innermost first, then the module."""
    tree = locations.tree_at(point[0])
    return [*_functions(point), *([tree] if tree is not None else [])]


def statements_of(scope: ast.AST) -> list[ast.stmt]:
    """The statements of a function or a module, without those of functions and classes inside of it."""
    found, todo = list[ast.stmt](), [*ast.iter_child_nodes(scope)]
    while todo:
        node = todo.pop()
        if isinstance(node, (*syntax.FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.stmt):
            found.append(node)
        todo += ast.iter_child_nodes(node)
    return sorted(found, key=lambda one: one.lineno)


def statements_around(point: Point) -> list[ast.stmt]:
    """The statements of the innermost function around a place, in the order of their lines."""
    return statements_of(scopes[0]) if (scopes := _scopes(point)) else []


def _binding(scope: ast.AST, name: str) -> list[ast.stmt]:
    """The statements that give a name a value, in the order of their lines."""
    return [one for one in statements_of(scope) if name in _bound(one)]


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value, by ``=``, ``for`` or ``with``."""
    targets: list[ast.AST] = []
    if isinstance(statement, ast.Assign):
        targets += statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        targets.append(statement.target)
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        targets += [item.optional_vars for item in statement.items if item.optional_vars is not None]
    names = {x.id for one in targets for x in ast.walk(one) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    inner = (x for x in ast.iter_child_nodes(statement) if isinstance(x, ast.expr))
    walrus = (x for one in inner for x in ast.walk(one) if isinstance(x, ast.NamedExpr))
    return names | {one.target.id for one in walrus}


def given_to(point: Point, name: str) -> ast.expr | None:
    """What a name was last given before a place, in the function around it or further out; None if nothing plain."""
    last = _last(point, name, name)
    found = [value for target, value in syntax.pairs(last) if ast.unparse(target) == name] if last is not None else []
    return found[-1] if found else None


def takes_the_rest(point: Point, name: str) -> bool:
    """Whether a name stands for ``**name`` of the function around a place."""
    around = _functions(point)
    rest = around[0].args.kwarg if around else None
    return rest is not None and rest.arg == name


def binding(point: Point, name: str) -> ast.stmt | None:
    """The last statement before a place that gives a variable a value, in the function around it or further out."""
    return _last(point, name, name)


def bound_at(chain: Chain, value: ast.expr) -> Location | None:
    """The line that last gave a value its name, before it is used at the innermost of some frames.

    ``batch["pos"]`` and ``self.pos`` are looked for as they are written, then by their first name.

    Returns:
        None if it has no name, or no line that can be told binds it.
    """
    for given in handed(chain, value):
        if given.value is None:
            return None
        name = _base(given.value)
        if not name:
            here = dataflow.statement_at(given.code, locations.line_of(given.chain[0]))
            return _place(given.code, here) if here is not None else None
        last = _last(given.chain[0], ast.unparse(given.value), name)
        if last is not None:
            return _place(given.code, last)
        further = _further_out(given.chain, name) if not isinstance(given.value, ast.Name) else None
        if further is not None and further.value is not None:
            return bound_at(further.chain, further.value)
    return None


def taken_at(chain: Chain, instead: str, files: Iterable[str]) -> Location | None:
    """The line that takes out of a record, an object or a variable what the innermost of some calls is given.

    A parameter is followed to what the callers give; a name to the line that binds it, if that looks it up or computes
    it from what it stands for; a call of a function of the user's to what that returns as it is:
    ``return data["distance"]``.

    Args:
        chain: the frames of the call, innermost first.
        instead: the name of what should have been taken: where a function is handed that as well, its own line.
        files: the user's.

    Returns:
        None where that call is given several things.
    """
    value = _only_operand(locations.node_at(chain[0]) if chain else None)
    if value is None:
        return None
    last = list(handed(chain, value))[-1]
    if last.value is None:
        return None
    returned = _returned_as_it_is(last.value, files)
    if returned is not None or not isinstance(last.value, ast.Name):
        return returned or locations.place(last.code.co_filename, last.value, locations.qualified_name(last.code))
    statement = _last(last.chain[0], last.value.id, last.value.id)
    given = given_to(last.chain[0], last.value.id)
    if statement is not None and given is not None:
        returned = _returned_as_it_is(given, files)
        if (
            returned is not None
            or isinstance(given, (ast.Attribute, ast.Subscript))
            or instead in syntax.names_in(given)
        ):
            return returned or _place(last.code, statement)
    both = len(last.chain) < len(chain) and instead in syntax.names_in(locations.node_at(last.chain[0]))
    return locations.locate(chain[0] if both else last.chain[0])


def _only_operand(node: ast.AST | None) -> ast.expr | None:
    """The one thing that an expression computes with: of ``x[:, None]``, ``x.norm(dim=1)``, ``f(x)`` and ``x - 1``."""
    if isinstance(node, ast.Subscript):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return node.operand
    if isinstance(node, ast.BinOp):
        given: list[ast.expr] = [node.left, node.right]
    elif isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        plain = [one for one in owner if ast.unparse(one) not in ("torch", "F", "self", "nn.functional")]
        given = [*plain, *node.args] if plain or not owner or len(node.args) == 1 else []
    else:
        return None
    given = [one for one in given if not isinstance(one, ast.Constant)]
    return given[0] if len(given) == 1 else None


def _returned_as_it_is(value: ast.expr, files: Iterable[str]) -> Location | None:
    """The one line by which a function of the user's hands out what something holds, of a call of that function."""
    name = syntax.call_name(value) if isinstance(value, ast.Call) else ""
    found = [
        locations.place(file, node, syntax.function_of([*around, node]))
        for file in files if name
        for node, around in syntax.statements(file)
        if isinstance(node, ast.Return) and isinstance(node.value, (ast.Attribute, ast.Subscript))
        and around and isinstance(around[-1], (*syntax.FUNCTIONS, ast.If))
        and getattr(syntax.innermost_function(around), "name", "") == name
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _last(point: Point, text: str, name: str) -> ast.stmt | None:
    """The last statement before a place that gives a value to what is written there, or to its first name."""
    line, before = locations.line_of(point), list[ast.stmt]()
    for scope in _scopes(point):
        written = [s for s in statements_of(scope) if any(ast.unparse(one) == text for one, _ in syntax.pairs(s))]
        found = {id(s): s for s in (*written, *(_binding(scope, name) if name != "self" else ()))}.values()
        before = [s for s in found if s.lineno < line] or list(found)
        if before:
            return max(before, key=lambda s: s.lineno)
        if isinstance(scope, _DEFINING) and name in _names_of(scope):
            break
    return _stored_once(point, text) if name == "self" else None


def _names_of(function: _Defining) -> set[str]:
    given = function.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self"}


def _stored_once(point: Point, text: str) -> ast.stmt | None:
    """The one statement of a file that gives an attribute its value."""
    found: list[ast.stmt] = [
        node for node, _ in syntax.statements(point[0].co_filename)
        if isinstance(node, ast.stmt) and any(ast.unparse(target) == text for target, _ in syntax.pairs(node))
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _base(value: ast.expr) -> str:
    """The first name of ``x``, ``x.pos``, ``x["pos"]`` or ``x[0].pos``; ``""`` of anything else."""
    while isinstance(value, (ast.Attribute, ast.Subscript)):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _place(code: CodeType, statement: ast.stmt) -> Location:
    opens = isinstance(statement, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith))
    where = locations.head if opens else locations.place
    return where(code.co_filename, statement, locations.qualified_name(code))
