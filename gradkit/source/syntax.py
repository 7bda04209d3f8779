"""A syntax tree of the user's source: what stands in it, by which names, and in which function."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from gradkit.source import locations

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.lru_cache(maxsize=64)
def named(tree: ast.Module) -> dict[str, list[Any]]:
    """The functions of a file, by name."""
    found: dict[str, list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            found.setdefault(node.name, []).append(node)
    return found


def parameters(function: Function) -> list[str]:
    """The names of what a function may be given.

    Example:
        >>> parameters(ast.parse("def forward(self, x, *rest, image=None): ...").body[0])
        ['self', 'x', 'image']
    """
    given = function.args
    return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def default(function: Function | ast.Lambda, name: str) -> ast.expr | None:
    """The default of what a function may be given; None if it has none.

    Example:
        >>> ast.unparse(default(ast.parse("def f(x, *, sparse=False): ...").body[0], "sparse"))
        'False'
    """
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    told = dict(zip(reversed(names), reversed(given.defaults), strict=False))
    told |= {one.arg: d for one, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d is not None}
    return told.get(name)


def looked_up(value: ast.expr | None) -> tuple[ast.expr | None, str]:
    """The mapping and the key of ``batch.get("image")``, ``batch.pop("image", None)`` or ``batch["image"]``.

    Example:
        >>> mapping, key = looked_up(ast.parse("batch.get('image')", mode="eval").body)
        >>> ast.unparse(mapping), key
        ('batch', 'image')
    """
    mapping: ast.expr | None = None
    key: ast.expr | None = None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("get", "pop"):
        mapping, key = value.func.value, value.args[0] if value.args else None
    elif isinstance(value, ast.Subscript):
        mapping, key = value.value, value.slice
    return (mapping, key.value) if isinstance(key, ast.Constant) and isinstance(key.value, str) else (None, "")


def names_in(node: ast.AST | None) -> frozenset[str]:
    """Every name that stands in a node.

    Example:
        >>> sorted(names_in(ast.parse("a[i] + self.b")))
        ['a', 'i', 'self']
    """
    return frozenset(one.id for one in (ast.walk(node) if node is not None else ()) if isinstance(one, ast.Name))


def stores(function: Function, name: str, line: int) -> list[ast.Name]:
    """Where a name is given a value in a function, above a line."""
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name) and node.lineno < line)
    return [node for node in names if node.id == name and isinstance(node.ctx, ast.Store)]


def assigned(function: Function, name: str, line: int) -> ast.expr | None:
    """What a name is given in a function above a line, if that happens once."""
    given = stores(function, name, line)
    found = [value for node in ast.walk(function) for target, value in pairs(node) if target in given]
    return found[0] if len(found) == len(given) == 1 else None


def stored_name(node: ast.AST) -> str:
    """``"x"`` of ``x`` and ``x[0]``, ``".x"`` of ``self.x`` and ``self.x[0]``; ``""`` of anything else."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return f".{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def base_name(node: ast.AST) -> str:
    """The variable that an expression leads on from: ``"net"`` of ``net``, ``net.head`` and ``net.parts[0]``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def call_name(node: ast.Call) -> str:
    """``"step"`` of ``optimizer.step()`` and of ``step()``; ``""`` where what is called has no name."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def argument(call: ast.AST | None, name: str, position: int) -> ast.expr | None:
    """What a call hands to a parameter, by its name or its position from 0; None if it hands nothing.

    Example:
        >>> ast.unparse(argument(ast.parse("SGD(params, lr=rate)", mode="eval").body, "lr", 1))
        'rate'
    """
    if not isinstance(call, ast.Call):
        return None
    named = next((one.value for one in call.keywords if one.arg == name), None)
    plain = not any(isinstance(one, ast.Starred) for one in call.args[: position + 1])
    return named if named is not None else call.args[position] if plain and len(call.args) > position else None


def arguments(call: ast.Call) -> list[ast.expr]:
    """All that a call is given, by position and by name.

    Example:
        >>> [ast.unparse(one) for one in arguments(ast.parse("SGD(params, lr=rate)", mode="eval").body)]
        ['params', 'rate']
    """
    return [*call.args, *(one.value for one in call.keywords)]


def handed(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call of a function hands to its parameter, by name or place; None if it hands nothing that can be told.

    Example:
        >>> function = ast.parse("def build(self, width, depth=2): ...").body[0]
        >>> ast.unparse(handed(ast.parse("m.build(8, 3)", mode="eval").body, function, "depth"))
        '3'
    """
    named = [one for one in parameters(function) if one not in ("self", "cls")]
    placed = [one.arg for one in (*function.args.posonlyargs, *function.args.args) if one.arg in named]
    at = placed.index(name) if name in placed else len(call.args)  # what follows a ``*`` is given by its name
    return argument(call, name, at) if name in named else None


def handed_as(call: ast.Call, value: ast.expr, function: Function) -> str:
    """Under which name a function is handed one of the arguments of a call of it; ``""`` for one of ``*args``.

    Example:
        >>> function = ast.parse("def build(self, width, depth=2): ...").body[0]
        >>> call = ast.parse("m.build(8, depth=3)", mode="eval").body
        >>> [handed_as(call, one, function) for one in arguments(call)]
        ['width', 'depth']
    """
    for one in call.keywords:
        if one.value is value:
            return one.arg or ""
    known = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    at = next((at for at, one in enumerate(call.args) if one is value), -1)
    at += known[:1] in (["self"], ["cls"])
    return known[at] if 0 <= at < len(known) else ""


def is_none(value: ast.expr | None) -> bool:
    """Whether an expression is ``None``, as it is written."""
    return isinstance(value, ast.Constant) and value.value is None


def bases(cls: ast.ClassDef) -> list[str]:
    """The last names of what a class derives from: ``["Module"]`` of ``class Net(nn.Module)``."""
    return [ast.unparse(base).rpartition(".")[2] for base in cls.bases]


def pairs(statement: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with what it is given; ``a, b = x, y`` is taken apart.

    Example:
        >>> [(ast.unparse(a), ast.unparse(b)) for a, b in pairs(ast.parse("a, b = c = x, y").body[0])]
        [('a', 'x'), ('b', 'y'), ('c', '(x, y)')]
    """
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [(statement.target, statement.value)]
    found: list[tuple[ast.expr, ast.expr]] = []
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        value = statement.value  # type: ignore[attr-defined]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            found += zip(target.elts, value.elts, strict=True)
        else:
            found.append((target, value))
    return found


def named_store(call: ast.Call) -> tuple[str, ast.expr | None]:
    """The attribute that a call stores by its name, and what it stores; ``("", None)`` of any other call.

    That is ``setattr(thing, "x", value)``, ``object.__setattr__`` and ``self.register_buffer("x", value)``. A name that
    is worked out is ``""``.

    Example:
        >>> name, value = named_store(ast.parse("self.register_buffer('mean', z.mean(0))", mode="eval").body)
        >>> name, ast.unparse(value)
        ('mean', 'z.mean(0)')
    """
    key, value = _stored(call)
    return (str(key.value) if isinstance(key, ast.Constant) else "", value)


def _stored(call: ast.Call) -> tuple[ast.expr | None, ast.expr | None]:
    """The name under which a call stores an attribute, and what it stores."""
    first = {"setattr": 1, "__setattr__": len(call.args) - 2, "register_buffer": 0}.get(call_name(call), -1)
    key = argument(call, "name", first) if first >= 0 else None
    return key, argument(call, "tensor", first + 1) if key is not None else None


def stored_as(call: ast.Call, attribute: str) -> ast.expr | None:
    """What ``setattr`` stores in an attribute, also under a name put together by an f-string; None if in no such one.

    Example:
        >>> call = ast.parse("setattr(self, f'W_{gate}', table())", mode="eval").body
        >>> ast.unparse(stored_as(call, "W_i")), stored_as(call, "b_i")
        ('table()', None)
    """
    key, value = _stored(call) if call_name(call) != "register_buffer" else (None, None)
    if isinstance(key, ast.JoinedStr):
        said = (re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".+" for one in key.values)
        return value if re.fullmatch("".join(said), attribute) else None
    return value if isinstance(key, ast.Constant) and key.value == attribute else None


def function_of(around: Sequence[ast.AST]) -> str:
    """The qualified name of the function that the innermost of some statements stand in."""
    return ".".join(a.name for a in around if isinstance(a, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))


def innermost_function(around: Sequence[ast.AST]) -> Function | None:
    """The innermost function among the nodes around something, outermost first; None where there is none."""
    return next((one for one in reversed(around) if isinstance(one, FUNCTIONS)), None)


def function_at(tree: ast.AST | None, line: int) -> Function | None:
    """The innermost function of a tree that a line stands in; None at the top level.

    Example:
        >>> function_at(ast.parse("def f():\\n    def g(): pass\\nx = 1"), 2).name, function_at(None, 1)
        ('g', None)
    """
    found = (one for one in ast.walk(tree) if isinstance(one, FUNCTIONS)) if tree is not None else ()
    inside = [one for one in found if one.lineno <= line <= (one.end_lineno or one.lineno)]
    return max(inside, key=lambda one: one.lineno, default=None)


def opens_with(outer: ast.AST, node: ast.AST) -> bool:
    """Whether ``outer`` is a ``with`` and ``node`` one of the context managers that it enters."""
    return isinstance(outer, ast.With) and any(item.context_expr is node for item in outer.items)


def statements(file: str) -> Iterator[tuple[ast.AST, list[Any]]]:
    """Every node of a file with the statements around it, outermost first."""
    tree = locations.tree_of(file)
    todo: list[tuple[ast.AST, list[Any]]] = [(tree, [])] if tree is not None else []
    while todo:
        node, around = todo.pop()
        yield node, around
        inner = [*around, node] if isinstance(node, ast.stmt) else around
        todo.extend((child, inner) for child in reversed(list(ast.iter_child_nodes(node))))


def paths(node: ast.AST, outer: Sequence[ast.AST] = ()) -> Iterator[list[ast.AST]]:
    """Every node below one, itself first, each at the end of the nodes that lead to it.

    Example:
        >>> [type(path[-1]).__name__ for path in paths(ast.parse("-x", mode="eval").body)]
        ['UnaryOp', 'USub', 'Name', 'Load']
    """
    path = [*outer, node]
    yield path
    for child in ast.iter_child_nodes(node):
        yield from paths(child, path)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def same(node: ast.AST | None, other: ast.AST) -> bool:
    """Whether two nodes, of trees that were parsed apart, stand in the same place."""
    places = [
        (type(x), *(getattr(x, f, None) for f in ("lineno", "col_offset", "end_col_offset"))) for x in (node, other)
    ]
    return node is not None and places[0] == places[1]


class Tree:
    """A syntax tree, walked.

    Attributes:
        nodes: every node, outer ones before what is in them.

    Example:
        >>> tree = Tree(ast.parse("def f():\\n    return g(1)"))
        >>> [type(node).__name__ for node in tree.inside(tree.nodes[-1])]
        ['Module', 'FunctionDef', 'Return', 'Call']
        >>> tree.function(tree.nodes[-1]).name
        'f'
    """

    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[Any] = [tree]
        self._parents: dict[int, ast.AST] = {}
        self._functions: dict[int, Any] = {}
        for node in self.nodes:  # it grows on the way
            function = node if isinstance(node, FUNCTIONS) else self._functions.get(id(node))
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.expr_context, ast.operator)):
                    continue  # shared between nodes, and of no interest
                self._parents[id(child)] = node
                self._functions[id(child)] = function
                self.nodes.append(child)

    def inside(self, node: ast.AST) -> list[Any]:
        """The nodes that a node is inside of, outermost first."""
        found: list[Any] = []
        while (outer := self._parents.get(id(node))) is not None:
            found.append(outer)
            node = outer
        return found[::-1]

    def function(self, node: ast.AST) -> Any:
        """The innermost function that a node is inside of, None if it is in none."""
        return self._functions.get(id(node))


@functools.lru_cache(maxsize=64)
def walked(tree: ast.Module) -> Tree:
    """A file's tree, walked once for all who ask."""
    return Tree(tree)


def nodes(file: str) -> list[Any]:
    """Every node of a file, outer ones before what is in them; ``[]`` if it cannot be read."""
    tree = locations.tree_of(file)
    return walked(tree).nodes if tree is not None else []
