"""Follow a value through the user's source by names, in three parts.

From one line to another (``flows_into``, ``defined_at``); back to what computes it (``Reader``); and to where it is
stored for later: under a name (``stored_at``, ``store_lines``), or by a decorator that remembers results
(``memo_decorator``, ``computed_once``).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import attributes, locations, syntax
from gradkit.source.attributes import ADDING, EMPTY
from gradkit.source.syntax import named


@functools.lru_cache(maxsize=512)
def flows_into(code: CodeType, start: int, end: int) -> bool:
    """Whether what the statement at line ``start`` computes is among what the statement at line ``end`` uses.

    Names are followed through assignments, loops, and method calls such as ``history.append(value)``. Both lines belong
    to the function ``code``. Within one statement, lines cannot tell: False.
    """
    body = statements(code)
    first, last = _at(body, start), _at(body, end)
    if first is None or last is None or first is last:
        return False
    carrying = written(first)
    for _ in range(len(body)):
        before = len(carrying)
        for statement in body:
            if _read(statement) & carrying:
                carrying |= written(statement)
        if len(carrying) == before:
            break
    return bool(_read(last) & carrying)


def leads_to(left: Chain, back: Chain) -> bool:
    """Whether, in the innermost function that two chains share, the value of the first call is given to the second."""
    points = dict(reversed(left))
    shared = next((point for point in back if point[0] in points), None)
    if shared is None:
        return False
    code = shared[0]
    mine = (code, points[code])
    return flows_into(code, locations.line_of(mine), locations.line_of(shared)) or locations.holds(shared, mine)


def is_given_names(chain: Chain, function: str) -> bool:
    """Whether what is given to a function, ``torch.tensor(...)`` say, stands there as names, not as numbers.

    False where the line calls something else: a library that was called there made the tensor.
    """
    node = locations.node_at(chain[0]) if chain else None
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != function:
        return False
    return any(isinstance(x, ast.Name) for argument in node.args for x in ast.walk(argument))


def is_used_in(made: Chain, used: Chain) -> bool:
    """Whether what is computed at some frames is used by the statement of the innermost function that others share."""
    points = dict(reversed(made))
    code, at = next((point for point in used if point[0] in points), (None, -1))
    if code is None:
        return False
    start, end, body = locations.line_of((code, points[code])), locations.line_of((code, at)), statements(code)
    return _at(body, start) is _at(body, end) or flows_into(code, start, end)


def defined_at(point: Point) -> int | None:
    """Of a call ``torch.autograd.grad(y, x)`` or ``y.backward()``, the last line before it that makes ``y``."""
    code, node = point[0], locations.node_at(point)
    if not isinstance(node, ast.Call):
        return None
    owner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "backward" else None
    asked = owner or (node.args[0] if node.args else None)
    names = syntax.names_in(asked)
    before = [s for s in statements(code) if s.lineno < locations.line_of(point) and written(s) & names]
    return max((s.lineno for s in before), default=None)


def statements(code: CodeType) -> list[ast.stmt]:
    """The simple statements of a function, and the heads of its loops and conditions."""
    tree = locations.tree_at(code)
    lines = {line for *_, line in code.co_lines() if line}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree is not None else []
    return [node for node in found if node.lineno in lines or (node.end_lineno or 0) in lines]


def statement_at(code: CodeType, line: int) -> ast.stmt | None:
    """The innermost statement of a function that holds a line."""
    return _at(statements(code), line)


def _at(body: list[ast.stmt], line: int) -> ast.stmt | None:
    """The innermost statement that holds a line."""
    holding = [node for node in body if node.lineno <= line <= (node.end_lineno or line)]
    return min(holding, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


def reads(code: CodeType, names: Collection[str]) -> list[tuple[ast.stmt, ast.Name]]:
    """Where a function reads any of these variables: the statement, and the name in it."""
    return [
        (statement, node)
        for statement in statements(code)
        for node in own_nodes(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
    ]


def own_nodes(statement: ast.stmt) -> list[ast.AST]:
    """The parts of a statement that are its own, without the statements inside of it."""
    parts = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    return [node for part in parts for node in ast.walk(part)]


def _read(statement: ast.stmt) -> set[str]:
    names = {node.id for node in own_nodes(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        names.add(statement.target.id)
    return names | {node.attr for node in own_nodes(statement) if isinstance(node, ast.Attribute)}


def written(statement: ast.stmt) -> set[str]:
    """Names and attributes that a statement gives a value, or calls a method of."""
    names: set[str] = set()
    for node in own_nodes(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            names |= _base(node.value)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        names |= _base(call.func.value)
    return names


def _base(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    return {node.attr} if isinstance(node, ast.Attribute) else set()


_ASIDE = frozenset("device dtype shape size config training grad requires_grad".split())


class Reader:
    """Follows names and calls backwards from an expression, each of them once.

    Args:
        files: the user's, to look for functions.

    Example:
        >>> value = ast.parse("net.encoder(x).to(net.device)").body[0].value
        >>> sorted(Reader(()).words(value, [], "?"))
        ['encoder', 'to']
    """

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._seen: set[int] = set()

    def words(self, value: ast.AST, around: Sequence[ast.AST], file: str) -> set[str]:
        """The attributes that an expression or a function is computed by, the functions and keys that are called.

        Args:
            around: the statements that it stands in, outermost first.
            file: where it stands.
        """
        if id(value) in self._seen:
            return set()
        self._seen.add(id(value))
        found: set[str] = set()
        scope = syntax.innermost_function(around) or locations.tree_of(file)
        todo = [value]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Attribute):
                if node.attr in _ASIDE:
                    continue
                found.add(node.attr)
            elif isinstance(node, ast.Call):
                found |= _keys(node.func)
                name = ast.unparse(node.func).rpartition(".")[2]
                for inner, function in _called(name, self._files):
                    found |= self.words(function, (function,), inner)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and scope is not None:
                for statement in ast.walk(scope):
                    if isinstance(statement, ast.Assign) and node.id in _given(statement):
                        found |= self.words(statement.value, around, file)
            todo.extend(ast.iter_child_nodes(node))
        return found


def _given(statement: ast.Assign) -> set[str]:
    return {x.id for target in statement.targets for x in ast.walk(target) if isinstance(x, ast.Name)}


def _keys(called: ast.expr) -> set[str]:
    if isinstance(called, ast.Name):
        return {called.id}
    inside = ast.walk(called.slice) if isinstance(called, ast.Subscript) else ()
    return {str(x.value) for x in inside if isinstance(x, ast.Constant)}


def _called(name: str, files: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    for file in files:
        tree = locations.tree_of(file)
        yield from ((file, node) for node in (named(tree).get(name, ()) if tree is not None else ()))


_OUTERMOST = 6
_ANY = ".__dict__"  # an attribute whose name is worked out: self.__dict__[key], vars(self)[key], setattr(self, key, x)


def stored_at(chain: Chain, name: str) -> Location | None:
    """Where what was computed at the innermost of some frames is stored under ``name``, in one of these frames."""
    for point in chain[:_OUTERMOST]:
        code, line = point[0], locations.line_of(point)
        storing = [s for s in statements(code) if {name, f".{name}", _ANY} & _targets(s, code)]
        here = [s for s in storing if s.lineno <= line <= (s.end_lineno or line) and not _body(s)]
        later = [s for s in storing if s.lineno > line and flows_into(code, line, s.lineno)]
        for statement in (*here, *later):
            return locations.place(code.co_filename, statement, locations.qualified_name(code))
    return None


def _body(statement: ast.stmt) -> bool:
    return isinstance(getattr(statement, "body", None), list)


def _targets(statement: ast.stmt, code: CodeType | None = None, *, registered: bool = False) -> set[str]:
    """What a statement stores into: ``"a"`` for a name, ``".a"`` for an attribute.

    With ``code``, the function that it stands in, only names that outlive its run; with ``registered``, also what is
    registered as a buffer, or set past ``nn.Module``.
    """
    found: set[str] = set()
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = [*statement.targets]
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
        targets = [statement.target]
    while targets:
        target = targets.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        elif isinstance(target, ast.Name):
            lasting = code is None or code.co_name == "<module>" or target.id not in code.co_varnames
            found |= {target.id} if lasting else set()
        else:
            found |= _name(target)
    for node in ast.walk(statement) if not _body(statement) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
            found |= _name(node.func.value)
        elif isinstance(node, ast.Call):
            key, value = syntax.named_store(node)
            meant = value is not None and (registered or syntax.call_name(node) == "setattr")
            found |= {f".{key}" if key else _ANY} if meant else set()
    return found


def _name(target: ast.expr) -> set[str]:
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Call) and ast.unparse(target.func) == "vars":
        return {_ANY}
    if isinstance(target, ast.Attribute):
        return {f".{target.attr}"}
    return {target.id} if isinstance(target, ast.Name) else set()


def memo_decorator(code: CodeType, files: Iterable[str] = ()) -> Location | None:
    """The decorator that makes a function remember its results; else the call that does: ``cache(function)``."""
    tree, name = locations.tree_at(code), locations.qualified_name(code)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, syntax.FUNCTIONS) and node.name == code.co_name:
            marks = [mark for mark in node.decorator_list if "cache" in ast.unparse(mark).lower()]
            if marks and code.co_firstlineno in {node.lineno, *(d.lineno for d in node.decorator_list)}:
                return locations.place(code.co_filename, marks[0], name)
    for file in dict.fromkeys((code.co_filename, *files)):
        for statement, around in syntax.statements(file):
            if isinstance(statement, ast.Call) and "cache" in ast.unparse(statement.func).lower():
                if any(ast.unparse(arg).rpartition(".")[2] == code.co_name for arg in statement.args):
                    return locations.place(file, statement, syntax.function_of(around))
    return None


def computed_once(owner: type, name: str) -> Location | None:
    """The decorator of a ``cached_property``."""
    for file, body in attributes.bodies(owner):
        for node in body.body:
            if isinstance(node, syntax.FUNCTIONS) and node.name == name:
                marks = [mark for mark in node.decorator_list if "cached" in ast.unparse(mark)]
                return locations.place(file, marks[0], f"{owner.__name__}.{name}") if marks else None
    return None


Storing = tuple[str, Any, list[Any]]
"""A file, a statement that stores, and the statements around it."""


def store_lines(
    name: str, files: Iterable[str], owner: type | None = None, reader: CodeType | None = None, *,
    registered: bool = False, wanted: Callable[[Storing], bool] = lambda _: True,
) -> Iterator[tuple[Location, set[str]]]:  # fmt: skip
    """The statements that store something computed under a name, and the words of what they store.

    The words are the attributes and functions that what is stored is computed by, and the keys of what is called
    (``model["inner"](x)``, ``model[0](x)``), in the function itself and in those of the user's that it calls.

    Args:
        owner: of an attribute, the class of the object that has it: if its own methods store it, only these count.
        reader: of a variable, a function that uses it: only the scope that it belongs to counts.
        registered: what is registered as a buffer under the name counts as well.
        wanted: what counts, as of ``storing``.
    """
    files = tuple(files)
    for file, statement, around in storing(name, files, owner, reader, wanted, registered=registered):
        spot = locations.place(file, statement, syntax.function_of(around))
        yield spot, Reader(files).words(_own_value(statement, name), around, file)


def _own_value(statement: Any, name: str) -> ast.expr:
    """What a statement stores under a name, where it stores several things side by side; else all of it."""
    told = [value for target, value in syntax.pairs(statement) if syntax.stored_name(target).lstrip(".") == name]
    return told[0] if len(told) == 1 else statement.value


def storing(
    name: str,
    files: Iterable[str],
    owner: type | None = None,
    reader: CodeType | None = None,
    wanted: Callable[[Storing], bool] = lambda _: True,
    *,
    registered: bool = False,
) -> list[Storing]:
    """The statements that store something computed under a name; arguments as of ``store_lines``.

    Args:
        wanted: what counts: where none of an attribute's own class does, those elsewhere are asked.
    """
    name = name if reader is not None else f".{name}"
    spans = (
        list(attributes.bodies(owner)) if owner is not None else [_scope(reader, name)] if reader is not None else []
    )
    stored = functools.partial(_storing, name, registered=registered)
    found = [one for file, top in spans for one in stored(file, top, []) if wanted(one)]
    if not found and reader is None:
        trees = ((file, tree) for file in files if (tree := locations.tree_of(file)) is not None)
        found = [one for file, tree in trees for one in stored(file, tree, []) if wanted(one)]
        found = [one for one in found if owner is None or not _is_of_another(one, owner)]
    return found


def _is_of_another(one: Storing, owner: type) -> bool:
    """Whether a statement stores ``self.<name>`` in a class that an object's own class does not derive from."""
    _, statement, around = one
    inside = [outer for outer in around if isinstance(outer, ast.ClassDef)]
    targets = [target for target, _ in syntax.pairs(statement)]
    targets += [node.func for node in ast.walk(statement) if isinstance(node, ast.Call) and syntax.named_store(node)[0]]
    on = {ast.unparse(target.value) for target in targets if isinstance(target, ast.Attribute)}
    return bool(inside) and on == {"self"} and inside[-1].name not in {base.__name__ for base in owner.__mro__}


def _storing(name: str, file: str, node: Any, around: list[Any], *, registered: bool) -> Iterator[Storing]:
    inner = [*around, node] if isinstance(node, ast.stmt) else around
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and not _body(child) and name in _targets(child, registered=registered):
            value = getattr(child, "value", None)
            if value is not None and not isinstance(value, ast.Constant) and ast.unparse(value) not in EMPTY:
                yield file, child, inner
        yield from _storing(name, file, child, inner, registered=registered)


def _scope(reader: CodeType, name: str) -> tuple[str, Any]:
    """The function that a variable belongs to, by one that uses it; the module for a global."""
    file, line = reader.co_filename, reader.co_firstlineno
    tree = locations.tree_of(file) or ast.Module([], [])
    own = [
        f
        for f in syntax.named(tree).get(reader.co_name, ())
        if line in {f.lineno, *(d.lineno for d in f.decorator_list)}
    ]
    if own and name in reader.co_varnames:
        return file, own[0]
    if name not in reader.co_freevars:
        return file, tree
    holding = [
        f for f in ast.walk(tree) if isinstance(f, syntax.FUNCTIONS) and f.lineno < line <= (f.end_lineno or line)
    ]
    binding = [f for f in holding if any(_binds(node, name) for node in ast.walk(f))]
    return file, max(binding, key=lambda f: f.lineno, default=tree)


def may_be_missing(name: str, reader: CodeType) -> bool:
    """Whether the code provides for a variable that holds nothing yet: it is set by inner functions, or asked for."""
    _, scope = _scope(reader, name)
    return any(_asks(node, name) for node in ast.walk(scope))


def _asks(node: ast.AST, name: str) -> bool:
    if isinstance(node, (ast.Nonlocal, ast.Global)):
        return name in node.names
    if isinstance(node, ast.Compare):
        return any(isinstance(side, ast.Name) and side.id == name for side in (node.left, *node.comparators))
    tests: list[ast.expr] = node.values if isinstance(node, ast.BoolOp) else []
    tests = [node.test] if isinstance(node, (ast.If, ast.IfExp)) else tests
    return any(isinstance(x, ast.Name) and x.id == name for test in tests for x in ast.walk(test))


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.arg):
        return node.arg == name
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
