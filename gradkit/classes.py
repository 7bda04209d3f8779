"""Where the user's classes set and read an attribute, by their source."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType

from gradkit import frames, handing, sources
from gradkit.records import Location


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
    return file, _class_in(frames.tree_of(file), cls.__name__, lines) if file else None


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


def definition(
    chain: Sequence[tuple[type, str]], files: Iterable[str] = (), built: Sequence[handing.Built] = ()
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
            for child in ast.walk(node):
                if _sets(child, attribute):
                    function = f"{base.__name__}.{_function_around(node, child)}"
                    target = _target(child, attribute)
                    given = None
                    if cls.__init__ is base.__init__:  # type: ignore[misc]
                        given = handing.handed_over(node, child, target, cls.__name__, files, built[step : step + 2])
                    return given or frames.place(file, target, function), attribute
    known = chain[:-1] if chain and chain[-1][0].__module__.startswith("torch.") else chain
    for _, attribute in reversed(known):
        found = list(_attached(attribute, files))
        if found:
            return (found[0], attribute) if len(found) == 1 else (None, "")
    return None, ""


def _attached(attribute: str, files: Iterable[str]) -> Iterator[Location]:
    """Where the user's code sets an attribute of anything: ``model.extra = nn.Linear(2, 2)``."""
    for file in files:
        for node, around in sources.statements(file):
            values = [v for t, v in sources.pairs(node) if isinstance(t, ast.Attribute) and t.attr == attribute]
            yield from (frames.place(file, value, sources.function_of(around)) for value in values)


def _sets(node: ast.AST, attribute: str) -> bool:
    return _target(node, attribute) is not node or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("register_parameter", "add_module", "register_module", "setattr")
        and any(isinstance(a, ast.Constant) and a.value == attribute for a in node.args)
    )


def _target(node: ast.AST, attribute: str) -> ast.AST:
    """Of ``self.a, self.b = A(), B()``, the part ``B()`` for ``b``; the node itself if it sets no such attribute."""
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
    line = node.lineno  # type: ignore[attr-defined]
    for child in cls.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and child.lineno <= line <= (
            child.end_lineno or line
        ):
            return child.name
    return ""


def uses(classes: Iterable[type], attribute: str) -> tuple[Location, ...]:
    """Where the user's classes read ``self.<attribute>`` outside of ``__init__``."""
    found: dict[tuple[str, int], Location] = {}
    for base in dict.fromkeys(base for cls in classes for base in cls.__mro__):
        file, node = _class_node(base)
        if node is None or not frames.is_user_file(file):
            continue
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and child.attr == attribute and isinstance(child.ctx, ast.Load):
                function = _function_around(node, child)
                if function != "__init__":
                    spot = frames.place(file, child, f"{base.__name__}.{function}")
                    found.setdefault((file, spot.line), spot)
    return tuple(found.values())


def stored(cls: type, attribute: str) -> Location | None:
    """Where a class stores ``self.<attribute>`` outside of ``__init__``, something other than None."""
    for base in cls.__mro__:
        file, owner = _class_node(base)
        if owner is None or not frames.is_user_file(file):
            continue
        for node in ast.walk(owner):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or _function_around(owner, node) == "__init__":
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_stores(t, attribute) for t in targets) and not (
                isinstance(node.value, ast.Constant)
                or (isinstance(node.value, (ast.Dict, ast.List)) and not ast.unparse(node.value)[1:-1])
            ):
                return frames.place(file, node, f"{base.__name__}.{_function_around(owner, node)}")
    return None


def _stores(target: ast.AST, attribute: str) -> bool:
    """``self.a = ...`` and ``self.a[key] = ...`` both store into ``a``."""
    if isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and target.attr == attribute
