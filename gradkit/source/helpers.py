"""The user's helpers, by their source: which function a call runs, what it is handed, and what makes what it returns.

Nothing is run. A name stands for what its scope gives it, or for what the calls of its function hand to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gradkit.core.records import Location
from gradkit.source import locations, returns, syntax
from gradkit.source.syntax import FUNCTIONS

_DEEPEST = 8
_OWN = ("self", "cls", "super()")


@dataclass(frozen=True)
class Part:
    """A node of a file's syntax tree.

    Attributes:
        file: of the user's.
        node: as ``locations.tree_of(file)`` has it.
    """

    file: str
    node: Any

    def around(self) -> list[Any]:
        """The nodes that it is inside of, outermost first."""
        tree = locations.tree_of(self.file)
        return syntax.walked(tree).inside(self.node) if tree is not None else []

    def functions(self) -> list[Any]:
        """The functions that it is inside of, innermost first."""
        return [one for one in reversed(self.around()) if isinstance(one, FUNCTIONS)]

    def scope(self) -> Any:
        """The innermost function that it is inside of, or the whole file."""
        return next(iter(self.functions()), None) or locations.tree_of(self.file) or ast.Module([], [])

    @property
    def owner(self) -> ast.ClassDef | None:
        """The class that it is a method of."""
        return next((one for one in self.around()[-1:] if isinstance(one, ast.ClassDef)), None)

    @property
    def name(self) -> str:
        """The qualified name of the function that it is, or stands in."""
        return syntax.function_of([*self.around(), self.node])

    def place(self) -> Location:
        """Its line."""
        return locations.place(self.file, self.node, self.name)


class Helpers:
    """The functions of some files, by their names.

    Args:
        files: the user's; a name is looked for in its own file first.
        classes: the class whose methods ``self`` has, and those it derives from, nearest first, each with its file.
            Where there are none, it is the class around a call.

    Example:
        >>> import linecache
        >>> text = "def build(n):\\n    made = Linear(n, n)\\n    return made\\nlayer = build(3)\\n"
        >>> linecache.cache["<helpers>"] = len(text), None, text.splitlines(True), "<helpers>"
        >>> tree = locations.tree_of("<helpers>")
        >>> parts = Helpers(["<helpers>"]).handed_back(Part("<helpers>", tree.body[1].value))
        >>> [ast.unparse(part.node) for part in parts]
        ['build(3)', 'Linear(n, n)']
    """

    def __init__(self, files: Iterable[str], classes: Iterable[tuple[str, ast.ClassDef]] = ()) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._classes = tuple(classes)

    def handed_back(self, value: Part) -> Iterator[Part]:
        """A value, then what the helper returns whose call it is, and so on inwards.

        Where a variable is returned, it is what that is given last.
        It ends where a call may run several functions or none that is seen, or one that returns in several places.
        """
        yield value
        for _ in range(_DEEPEST):
            ends = self.returned(value)
            if len(ends) != 1:
                return
            yield (value := self._last(ends[0]))

    def returned(self, value: Part) -> list[Part]:
        """All that the functions return which a call may run; ``[]`` if it is no call, or one of them is not seen."""
        callees = self.callees(Part(value.file, value.node.func)) if isinstance(value.node, ast.Call) else []
        return [end for one in callees for end in ends(one)]

    def _last(self, value: Part) -> Part:
        for _ in range(_DEEPEST):
            function = next(iter(value.functions()), None)
            named = isinstance(value.node, ast.Name) and function is not None
            stored = self._assigned(value.node.id, Part(value.file, function)) if named else []
            if not stored:
                break
            value = stored[-1]
        return value

    def callees(self, called: Part, left: int = _DEEPEST) -> list[Part]:
        """The functions and lambdas that what is called may stand for; ``[]`` if one of them is not seen."""
        node = called.node
        if isinstance(node, ast.Lambda):
            return [called]
        if left <= 0 or not isinstance(node, (ast.Name, ast.Attribute)):
            return []
        classes = (one.name for one in called.around() if isinstance(one, ast.ClassDef))
        own = isinstance(node, ast.Attribute) and ast.unparse(node.value) in (*_OWN, *classes)
        method = self._method(called) if own else None
        if method is not None:
            return [method]
        given = self._stands_for(called, own=own)
        if given or own or _is_parameter(called):
            found = [self.callees(one, left - 1) for one in given]
            return list({one: None for some in found for one in some}) if all(found) else []
        return self._plain(called)

    def _stands_for(self, called: Part, *, own: bool) -> list[Part]:
        if isinstance(called.node, ast.Name):
            return self.given(called)
        return self.set_to(called.node.attr, called.file) if own else []

    def _method(self, called: Part) -> Part | None:
        """The method that ``self`` has by a name."""
        mine = next((one for one in reversed(called.around()) if isinstance(one, ast.ClassDef)), None)
        known = [cls for _, cls in self._classes]
        classes = self._classes if mine in known else ((called.file, mine),) if mine is not None else ()
        if isinstance(called.node.value, ast.Call):  # of super()
            classes = classes[known.index(mine) + 1 if mine in known else 1 :]
        methods = (Part(file, one) for file, cls in classes for one in cls.body if isinstance(one, FUNCTIONS))
        found = [one for one in methods if one.node.name == called.node.attr]
        if not found and not known:  # of a base class, or of one that derives from this
            found = [one for one in named(called.node.attr, [called.file]) if one.owner is not None]
            found = found if len(found) == 1 else []
        return next(iter(found), None)

    def _plain(self, called: Part) -> list[Part]:
        """The function of that name that is seen from where it is called, in its own file before others."""
        name, around = getattr(called.node, "attr", getattr(called.node, "id", "")), called.functions()
        for file in dict.fromkeys((called.file, *self._files)):
            found = [one for one in named(name, [file]) if one.owner is None]
            outer = around if file == called.file else []
            found = [one for one in found if not (inside := one.functions()) or inside[0] in outer]
            if found:
                return found if len(found) == 1 else []
        return []

    def given(self, name: Part, *, adding: bool = False) -> list[Part]:
        """All that a variable is given in the innermost scope around that gives it anything, or is handed it.

        Args:
            adding: also what is added to it, by ``+=`` and the like.
        """
        for scope in (*name.functions(), locations.tree_of(name.file)):
            found = self._assigned(name.node.id, Part(name.file, scope), adding=adding)
            if found:
                return found
            if isinstance(scope, FUNCTIONS) and name.node.id in syntax.parameters(scope):
                return self.handed(Part(name.file, scope), name.node.id)
        return []

    def _assigned(self, name: str, scope: Part, *, adding: bool = False) -> list[Part]:
        """What a function, or a file outside of functions, gives a name, in the order of the lines."""
        tree = locations.tree_of(scope.file)
        walked = syntax.walked(tree) if tree is not None else None
        function = scope.node if isinstance(scope.node, FUNCTIONS) else None
        own = [node for node in walked.nodes if walked.function(node) is function] if walked is not None else []
        told = [pair for one in own for pair in syntax.pairs(one)]
        told += [(one.target, one.value) for one in own if adding and isinstance(one, ast.AugAssign)]
        values = [value for target, value in told if isinstance(target, ast.Name) and target.id == name]
        return [Part(scope.file, value) for value in sorted(values, key=lambda one: one.lineno)]

    def set_to(self, attribute: str, *files: str) -> list[Part]:
        """What is given to ``anything.attribute``, in these files, or else in all."""
        return [
            Part(file, value)
            for file in files or self._files
            for node in syntax.nodes(file)
            for target, value in syntax.pairs(node)
            if isinstance(target, ast.Attribute) and target.attr == attribute
        ]

    def handed(self, function: Part, name: str) -> list[Part]:
        """What the calls of a function hand to one of its parameters; and its default, where one hands nothing."""
        owner = function.owner if function.node.name == "__init__" else None
        called = owner.name if owner is not None else function.node.name
        found = [
            Part(file, syntax.handed(node, function.node, name))
            for file in dict.fromkeys((function.file, *self._files))
            for node in syntax.nodes(file)
            if isinstance(node, ast.Call) and syntax.call_name(node) == called
        ]
        told = [one for one in found if one.node is not None]
        default = syntax.default(function.node, name) if not found or len(told) < len(found) else None
        return told + ([Part(function.file, default)] if default is not None else [])


def _is_parameter(called: Part) -> bool:
    names = (name for one in called.functions() for name in syntax.parameters(one))
    return isinstance(called.node, ast.Name) and called.node.id in names


def ends(function: Part) -> list[Part]:
    """What a function or a lambda returns, as it is written there."""
    if isinstance(function.node, ast.Lambda):
        return [Part(function.file, function.node.body)]
    values = (one.value for one in returns.own_returns(function.node))
    return [Part(function.file, value) for value in values if value is not None]


def named(name: str, files: Iterable[str]) -> list[Part]:
    """All functions and methods of a name, in some files.

    Example:
        >>> named("forward", [])
        []
    """
    found = ((file, locations.tree_of(file)) for file in files if name)
    return [Part(file, one) for file, tree in found if tree is not None for one in syntax.named(tree).get(name, ())]
