"""Where the user's classes set, create, read and store an attribute, by their source: also in lists and by helpers."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType

from gradkit.core.records import Location
from gradkit.source import constructors, frames, locations, syntax
from gradkit.source.helpers import Helpers, Part
from gradkit.source.syntax import FUNCTIONS, Function


def class_files(classes: Iterable[type]) -> tuple[str, ...]:
    """The user's files in which the given classes, and those they derive from, are written."""
    found: dict[str, None] = {}
    for cls in classes:
        for base in cls.__mro__:
            file = _file_of(base)
            if file and frames.is_user_file(file):
                found[file] = None
    return tuple(found)


def _file_of(cls: type) -> str:
    return next((code.co_filename for code in _codes(cls)), "")


def _codes(cls: type) -> Iterator[CodeType]:
    """The code objects of a class's own methods and properties."""
    for member in vars(cls).values():
        for function in (member, getattr(member, "fget", None), getattr(member, "__func__", None)):
            code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
            if isinstance(code, CodeType) and code.co_name != "<lambda>":
                yield code


def codes(classes: Iterable[type]) -> Iterator[CodeType]:
    """The code of the methods of the given classes, and of those they derive from, in the user's files."""
    for base in dict.fromkeys(base for cls in classes for base in cls.__mro__):
        yield from (code for code in _codes(base) if frames.is_user_file(code.co_filename))


def _class_node(cls: type) -> tuple[str, ast.ClassDef | None]:
    file = _file_of(cls)
    lines = frozenset(code.co_firstlineno for code in _codes(cls) if code.co_filename == file)
    return file, _class_in(locations.tree_of(file), cls.__name__, lines) if file else None


@functools.lru_cache(maxsize=256)
def _class_in(tree: ast.Module | None, name: str, lines: frozenset[int]) -> ast.ClassDef | None:
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            if any(node.lineno <= line <= (node.end_lineno or line) for line in lines):
                return node
    return None


def bodies(cls: type) -> Iterator[tuple[str, ast.ClassDef]]:
    """The user's source of a class and of those it derives from, each with its file."""
    for base in cls.__mro__:
        file, node = _class_node(base)
        if node is not None and frames.is_user_file(file):
            yield file, node


def heading(cls: type) -> Location | None:
    """The line on which the user's source begins a class; None if it is no user's."""
    file, node = _class_node(cls)
    if node is None or not frames.is_user_file(file):
        return None
    end = node.col_offset + len(f"class {node.name}")
    first = ast.copy_location(ast.Name(node.name), node)
    first.end_lineno, first.end_col_offset = node.lineno, end
    return locations.place(file, first)


def definition(
    chain: Sequence[tuple[type, str]], files: Iterable[str] = (), built: Sequence[constructors.Built] = ()
) -> tuple[Location | None, str]:
    """Where a parameter is defined: the line of the user's class that sets the attribute on the way to it.

    Where that line only keeps what ``__init__`` was handed (``self.body = body``), the line that handed it over, if it
    can be told.

    Args:
        files: the user's, to look for the line that hands over.
        chain: for ``"mid.proj.weight"``: the class of each module on the way and the attribute taken from it,
            outermost first: ``[(UNet, "mid"), (Block, "proj"), (Linear, "weight")]``.
        built: what each of these is now, to tell which of several lines handed it over.

    Returns:
        The innermost such line in the user's code, and the attribute it sets; ``(None, "")`` if there is none.
    """
    for step, (cls, attribute) in reversed(list(enumerate(chain))):
        for base in cls.__mro__:
            file, node = _class_node(base)
            if node is None or not frames.is_user_file(file):
                continue
            sets = [child for child in ast.walk(node) if _sets(child, attribute)]
            child = min(sets, key=lambda one: isinstance(_target(one, attribute), ast.Constant), default=None)
            if child is not None:
                function = f"{base.__name__}.{_function_around(node, child)}"
                target = _target(child, attribute)
                given = None
                if cls.__init__ is base.__init__:  # type: ignore[misc]
                    given = constructors.argument_for(node, child, target, cls.__name__, files, built[step : step + 2])
                made = _made_in(Part(file, target), cls, files) if _around(node, child) is not None else None
                return given or made or locations.place(file, target, function), attribute
    known = chain[:-1] if chain and chain[-1][0].__module__.startswith("torch.") else chain
    for _, attribute in reversed(known):
        found = list(_attached(attribute, files))
        if found:
            return (found[0], attribute) if len(found) == 1 else (None, "")
    return None, ""


def _made_in(value: Part, cls: type, files: Iterable[str]) -> Location | None:
    """Where the user's own function makes what it returns, for a value that is what such a function returns.

    None where it returns in several places, or hands on what it was given; and where it is called for other things:
    then the line that calls it tells them apart.
    """
    inside = list(_helpers(value, cls, files).handed_back(value))[1:]
    calls = [one for one in inside if isinstance(one.node, (ast.Call, *_DISPLAYS))]
    return calls[-1].place() if calls and not _is_called_again(value, files) else None


_DISPLAYS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)


def _is_called_again(value: Part, files: Iterable[str]) -> bool:
    """Whether what a value calls is called elsewhere, too, by its name."""
    name = syntax.call_name(value.node) if isinstance(value.node, ast.Call) else ""
    nodes = (node for file in dict.fromkeys((value.file, *files)) for node in syntax.nodes(file))
    return bool(name) and sum(isinstance(one, ast.Call) and syntax.call_name(one) == name for one in nodes) > 1


def _helpers(part: Part, cls: type, files: Iterable[str]) -> Helpers:
    """What is called by a part of a class, which the files of its base classes may hold, too."""
    return Helpers((part.file, *files), bodies(cls))


def registered_buffer(cls: type, name: str) -> Location | None:
    """The line of the user's class that registers a buffer; None if there is none."""
    for file, body in bodies(cls):
        for node in ast.walk(body):
            word = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            if word == "register_buffer" and any(isinstance(a, ast.Constant) and a.value == name for a in node.args):  # type: ignore[attr-defined]
                return locations.place(file, node, f"{body.name}.{_function_around(body, node)}")
    return None


def _attached(attribute: str, files: Iterable[str]) -> Iterator[Location]:
    """Where the user's code sets an attribute of anything: ``model.extra = nn.Linear(2, 2)``."""
    for file in files:
        for node, around in syntax.statements(file):
            values = [v for t, v in syntax.pairs(node) if isinstance(t, ast.Attribute) and t.attr == attribute]
            yield from (locations.place(file, value, syntax.function_of(around)) for value in values)


def _sets(node: ast.AST, attribute: str) -> bool:
    return _target(node, attribute) is not node or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("register_parameter", "add_module", "register_module")
        and any(isinstance(a, ast.Constant) and a.value == attribute for a in node.args)
    )


def _target(node: ast.AST, attribute: str) -> ast.AST:
    """Of ``self.a, self.b = A(), B()``, the part ``B()`` for ``b``; the node itself if it sets no such attribute."""
    if isinstance(node, ast.Call):
        return syntax.stored_as(node, attribute) or node
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        value: ast.AST = node.value or node  # type: ignore[attr-defined]
        if isinstance(target, ast.Attribute) and target.attr == attribute:
            return value
        if isinstance(target, ast.Tuple):
            for i, part in enumerate(target.elts):
                if isinstance(part, ast.Attribute) and part.attr == attribute:
                    return value.elts[i] if isinstance(value, ast.Tuple) and len(value.elts) > i else value
    return node


def _function_around(cls: ast.ClassDef, node: ast.AST) -> str:
    function = _around(cls, node)
    return function.name if function is not None else ""


def _around(cls: ast.ClassDef, node: ast.AST) -> Function | None:
    """The method of a class that a node stands in."""
    line = node.lineno  # type: ignore[attr-defined]
    methods = (child for child in cls.body if isinstance(child, FUNCTIONS))
    return next((one for one in methods if one.lineno <= line <= (one.end_lineno or line)), None)


def uses(classes: Iterable[type], attribute: str) -> tuple[Location, ...]:
    """Where the user's classes read ``self.<attribute>`` outside of ``__init__``."""
    found: dict[tuple[str, int], Location] = {}
    for file, node in dict.fromkeys(one for cls in classes for one in bodies(cls)):
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and child.attr == attribute and isinstance(child.ctx, ast.Load):
                function = _function_around(node, child)
                if function != "__init__":
                    spot = locations.place(file, child, f"{node.name}.{function}")
                    found.setdefault((file, spot.line), spot)
    return tuple(found.values())


def ignored_slot(cls: type, attribute: str, ran: Callable[[str, Function], bool]) -> Location | None:
    """The ``return`` of a ``forward`` that ran and ignores an attribute that is empty until it is set from outside.

    None where ``__init__`` gives the attribute anything but None, a method uses it, or ``forward`` returns in several
    places.
    """
    held = list(bodies(cls))
    given = [value for _, body in held for value in _given_by_init(body, attribute)]
    forward = next(((file, f) for file, body in held if (f := _method(body, "forward")) is not None), None)
    if not given or any(ast.unparse(value) != "None" for value in given) or forward is None or not ran(*forward):
        return None
    file, function = forward
    ends = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    if len(ends) != 1 or uses([cls], attribute):
        return None
    return locations.place(file, ends[0], f"{cls.__name__}.forward")


def _method(body: ast.ClassDef, name: str) -> Function | None:
    return next((node for node in body.body if isinstance(node, FUNCTIONS) and node.name == name), None)


def _given_by_init(body: ast.ClassDef, attribute: str) -> list[ast.expr]:
    init = _method(body, "__init__")
    told = [pair for node in (ast.walk(init) if init is not None else ()) for pair in syntax.pairs(node)]
    return [value for target, value in told if isinstance(target, ast.Attribute) and target.attr == attribute]


def stored(cls: type, attribute: str) -> Location | None:
    """Where a class stores ``self.<attribute>`` outside of ``__init__``, something other than None."""
    for file, owner in bodies(cls):
        for node in ast.walk(owner):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or _function_around(owner, node) == "__init__":
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_stores(t, attribute) for t in targets) and not (
                isinstance(node.value, ast.Constant)
                or (isinstance(node.value, (ast.Dict, ast.List)) and not ast.unparse(node.value)[1:-1])
            ):
                return locations.place(file, node, f"{owner.name}.{_function_around(owner, node)}")
    return None


def _stores(target: ast.AST, attribute: str) -> bool:
    """``self.a = ...`` and ``self.a[key] = ...`` both store into ``a``."""
    if isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and target.attr == attribute


ADDING = frozenset("append appendleft extend insert add update setdefault __setitem__ put push set store".split())
EMPTY = frozenset(("None", "[]", "{}", "()", "list()", "dict()", "set()", "deque()"))
_DEEPEST = 4
_PUTTING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def created(cls: type, attribute: str, kind: str, files: Iterable[str] = ()) -> tuple[Location, ...]:
    """The lines that create what ``self.<attribute>`` of a class holds, in the order of the source.

    Names are followed through assignments, ``append`` and the like, and into the methods and functions whose result
    they are.

    Args:
        kind: name of the class of what is held: a line that calls it creates it; of a ``Tensor``, also one that makes
            a leaf that requires grad.
        files: the user's, to look for functions.

    Returns:
        ``()`` if no line is seen to call ``kind``.
    """
    found: dict[tuple[str, int], Location] = {}
    for file, owner in bodies(cls):
        search = _Search(kind, Helpers((file, *files), bodies(cls)))
        for function in (node for node in owner.body if isinstance(node, Function)):
            for spot in search.fed(f".{attribute}", Part(file, function)):
                found.setdefault((spot.file, spot.line), spot)
    return tuple(found[key] for key in sorted(found))


def plain_box(cls: type, attribute: str) -> Location | None:
    """The line that makes ``self.<attribute>`` an empty plain list or dictionary, which methods then fill.

    None where it is made in several places, or what is put in is a list itself: that one is then the plain box.
    """
    made: dict[tuple[str, int], Location] = {}
    for file, owner in bodies(cls):
        for function in (node for node in owner.body if isinstance(node, Function)):
            for statement in ast.walk(function):
                values = _given(statement, f".{attribute}") if isinstance(statement, _PUTTING) else []
                if any(isinstance(value, (ast.List, ast.Tuple, ast.Dict)) and not _is_empty(value) for value in values):
                    return None
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and any(map(_is_empty, values)):
                    spot = locations.place(file, values[0], f"{cls.__name__}.{function.name}")
                    made[file, spot.line] = spot
    return next(iter(made.values())) if len(made) == 1 else None


def _is_empty(value: ast.expr) -> bool:
    return ast.unparse(value) in EMPTY - {"None"}


def derived(cls: type, attribute: str, files: Iterable[str] = ()) -> Location | None:
    """The first line that gives ``self.<attribute>`` something computed: ``self.x = torch.randn(3, ...) * 0.1``.

    A leaf that is made right there (``torch.randn(3, requires_grad=True)``, ``....requires_grad_()``) is none. Where
    the user's own function makes it, the line is in there.

    Args:
        files: the user's, to look for functions.
    """
    for file, owner in bodies(cls):
        for function in (node for node in owner.body if isinstance(node, Function)):
            for statement in ast.walk(function):
                if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                    for value in _given(statement, f".{attribute}"):
                        *_, end = _helpers(Part(file, value), cls, files).handed_back(Part(file, value))
                        if not _leaf(end.node):
                            return end.place()
    return None


def _leaf(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return not isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Subscript, ast.IfExp))
    return syntax.call_name(value) == "requires_grad_" or any(k.arg == "requires_grad" for k in value.keywords)


class _Search:
    """Follows what is put into a variable or an attribute to the lines that call a class.

    Args:
        kind: the name of the class.
        helpers: the user's.
    """

    def __init__(self, kind: str, helpers: Helpers) -> None:
        self._kind, self._helpers = kind, helpers

    def fed(self, target: str, function: Part, depth: int = 0) -> Iterator[Location]:
        """The lines of a function that put something of this kind into ``target``."""
        for statement in ast.walk(function.node):
            if isinstance(statement, _PUTTING):
                for value in _given(statement, target):
                    yield from self._made(value, statement, function, depth)

    def _made(self, value: ast.expr, statement: ast.stmt, function: Part, depth: int) -> Iterator[Location]:
        if any(isinstance(node, ast.Call) and _makes(node, self._kind) for node in ast.walk(value)):
            shown = statement if isinstance(statement, (ast.Expr, ast.Return)) else value
            yield locations.place(function.file, shown, function.name)
            return
        if depth >= _DEEPEST or ast.unparse(value) in EMPTY:
            return
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield from self.fed(node.id, function, depth + 1)
            elif isinstance(node, ast.Call):
                for inner in self._helpers.callees(Part(function.file, node.func)):
                    for back in ast.walk(inner.node):
                        if isinstance(back, (ast.Return, ast.Yield)) and back.value is not None:
                            shown = back if isinstance(back, ast.Return) else ast.Expr(value=back)
                            yield from self._made(back.value, ast.copy_location(shown, back), inner, depth + 1)


def _given(statement: ast.stmt, target: str) -> list[ast.expr]:
    """What a statement puts into ``target``: by assignment, by ``target[...] = ...`` or by a method that adds."""
    if isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ADDING:
            if syntax.stored_name(call.func.value) == target:
                return syntax.arguments(call)
        by_name = syntax.stored_as(call, target[1:]) if isinstance(call, ast.Call) and target[:1] == "." else None
        return [by_name] if by_name is not None else []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    value: ast.expr | None = statement.value  # type: ignore[attr-defined]
    if value is None:
        return []
    for one in targets:
        if syntax.stored_name(one) == target:
            return [value]
        for i, part in enumerate(one.elts if isinstance(one, ast.Tuple) else ()):
            if syntax.stored_name(part) == target:
                return [value.elts[i] if isinstance(value, ast.Tuple) and len(value.elts) > i else value]
    return []


def _makes(call: ast.Call, kind: str) -> bool:
    """Whether a call makes something of a class by its name; of a plain tensor, one that requires grad."""
    return syntax.call_name(call) == kind or (kind == "Tensor" and _leaf(call))
