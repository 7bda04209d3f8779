"""The lines that keep a value for a later step, by their source: in an attribute, a variable, or something in it.

A line that stores what can have no history (``torch.zeros(...)``, ``h.detach()``) keeps none. Of the others, those that
the step runs count first: only where it runs none was the value made once, before the steps began. A line that is
written over in the same block keeps nothing, and where a function only hands on what is kept, it is the line in that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import dataflow, locations, syntax
from gradkit.source.attributes import ADDING, EMPTY
from gradkit.source.carrying import ENDS, LETS_GO, SHAPING, Carriers
from gradkit.source.dataflow import Storing
from gradkit.source.syntax import FUNCTIONS

_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_NEW = frozenset(
    "zeros ones empty full rand randn randint arange linspace tensor as_tensor from_numpy eye zeros_like ones_like "
    "empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full new_tensor deque list dict set "
    "defaultdict OrderedDict tuple len int float".split()
)
_FRESH = frozenset("zeros ones empty full rand randn randint arange linspace eye".split())


@dataclass(frozen=True)
class Kept:
    """A line that keeps a value.

    Attributes:
        location: the statement.
        before: the step does not run it: it ran once, before the steps.
    """

    location: Location
    before: bool = False


def kept_at(
    name: str,
    files: Iterable[str],
    owner: type | None = None,
    reader: CodeType | None = None,
    step: CodeType | None = None,
    callers: Chain = (),
) -> list[Kept]:
    """The lines that keep a value with a history under a name; ``[]`` if the source has none.

    Args:
        name: of an attribute or a variable.
        owner: of an attribute, the class of the object that has it.
        reader: of a variable, a function that uses it.
        step: the code of the step.
        callers: the frames around it, innermost first.
    """
    files = tuple(files)
    found = _lasting(name, files, owner, reader)
    if not found or step is None:
        return [Kept(_place(one)) for one in found]
    ran = _Ran(files, *_repeated(step, callers))
    inside = [one for one in found if ran.holds(one)]
    carried = list(filter(None, (_carried(one, name, files, reader) for one in inside or found)))
    moved = ((ran.handed_over(one), one) for one in inside or found)
    places = carried or [spot or _place(one) for spot, one in moved]
    return [Kept(spot, not inside) for spot in dict.fromkeys(places)]


def is_let_go(name: str, files: Iterable[str], owner: type | None = None, reader: CodeType | None = None) -> bool:
    """Whether every line that keeps a value with a history under a name is followed by one that lets go of it."""
    files = tuple(files)
    return bool(_found(name, files, owner, reader)) and not _lasting(name, files, owner, reader)


def handed_in(name: str, callers: Chain, step: CodeType) -> tuple[str, Point] | None:
    """What a caller gives for an argument of the step, if it is a variable of the caller's: its name, and where."""
    call = locations.node_at(callers[0]) if callers else None
    given = step.co_varnames[: step.co_argcount + step.co_kwonlyargcount]
    if not isinstance(call, ast.Call) or name not in given:
        return None
    at = given.index(name) - (given[0] in ("self", "cls") and isinstance(call.func, ast.Attribute))
    values = [k.value for k in call.keywords if k.arg == name] or list(call.args[at : at + 1] if at >= 0 else ())
    value = values[0] if values else None
    return (value.id, callers[0]) if isinstance(value, ast.Name) else None


def is_without_history(value: ast.expr) -> bool:
    """Whether an expression can have no history: it is new, empty, plain data, or let go of.

    Example:
        >>> texts = ["torch.zeros(3).to(device)", "h.detach()", "{'h': None}", "cell(x, h)", "0.9 * m + loss", "1 - 2"]
        >>> [is_without_history(ast.parse(text, mode="eval").body) for text in texts]
        [True, True, True, False, False, True]
    """
    if isinstance(value, ast.Constant) or ast.unparse(value) in EMPTY:
        return True
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return all(map(is_without_history, value.elts))
    if isinstance(value, ast.Dict):
        return all(map(is_without_history, value.values))
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return is_without_history(value.elt)
    if isinstance(value, ast.DictComp):
        return is_without_history(value.value)
    if isinstance(value, ast.BinOp):
        return is_without_history(value.left) and is_without_history(value.right)
    if isinstance(value, ast.UnaryOp):
        return is_without_history(value.operand)
    if isinstance(value, ast.Attribute):
        return value.attr == "data"
    return isinstance(value, ast.Call) and _makes_none(value)


def may_be_computed(one: Storing) -> bool:
    """Whether what a statement stores may be computed of anything: fresh numbers are not, whatever they are made for.

    Example:
        >>> texts = ["{k: torch.randn(5, 1) for k in model.heads}", "{k: head(x).detach() for k, head in heads}"]
        >>> [may_be_computed(("train.py", ast.parse(f"kept = {text}").body[0], [])) for text in texts]
        [False, True]
    """
    value = getattr(one[1], "value", None)
    if value is None or not is_without_history(value):
        return True
    made = value.value if isinstance(value, ast.DictComp) else getattr(value, "elt", value)
    calls = [node for node in ast.walk(made) if isinstance(node, ast.Call)]
    return not all(syntax.call_name(call) in _FRESH or syntax.call_name(call) in SHAPING for call in calls)


def _makes_none(call: ast.Call) -> bool:
    name = syntax.call_name(call)
    if name in ENDS:
        return True
    if name in ("deque", "list", "tuple", "dict"):
        return all(map(is_without_history, call.args))
    if name in _NEW:
        return True
    return name in SHAPING and isinstance(call.func, ast.Attribute) and is_without_history(call.func.value)


# -- statements --------------------------------------------------------------------------------------------------------


def _found(name: str, files: tuple[str, ...], owner: type | None, reader: CodeType | None) -> list[Storing]:
    target, carriers = _target(name, reader), Carriers(files)
    return dataflow.storing(
        name,
        files,
        owner,
        reader,
        lambda one: _keeps(one[1], target, carriers) and _is_meant(one, name, reader),
        registered=True,
    )


def _target(name: str, reader: CodeType | None) -> str:
    return name if reader is not None else f".{name}"


def _keeps(statement: ast.stmt, target: str, carriers: Carriers) -> bool:
    """Whether what a statement puts under a name may have a history."""
    return not all(is_without_history(x) or carriers.of_call(x) == LETS_GO for x in _stored(statement, target))


def _lasting(name: str, files: tuple[str, ...], owner: type | None, reader: CodeType | None) -> list[Storing]:
    """The statements that keep something under a name and are not written over by a later one of the same block."""
    found = _found(name, files, owner, reader)
    every = dataflow.storing(name, files, owner, reader, lambda one: _is_meant(one, name, reader)) if found else []
    over = [one for one in every if _writes_over(one[1], _target(name, reader))]
    return [one for one in found if not any(_is_after(other, one) for other in over)]


def _writes_over(statement: ast.stmt, target: str) -> bool:
    """Whether a statement gives a name another value, rather than a part of one."""
    targets = [one for one, _ in syntax.pairs(statement)]
    plain = [x for one in targets for x in (one.elts if isinstance(one, (ast.Tuple, ast.List)) else [one])]
    return any(isinstance(one, (ast.Name, ast.Attribute)) and target in _bases(one) for one in plain)


def _is_after(one: Storing, other: Storing) -> bool:
    """Whether a statement always runs after another: it stands further down in the same block."""
    blocks = [block for block in _blocks(one[2]) if any(x is one[1] for x in block)]
    return one[0] == other[0] and any(
        any(x is other[1] for x in block[: next(i for i, x in enumerate(block) if x is one[1])]) for block in blocks
    )


def _blocks(around: Sequence[ast.AST]) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(around[-1], name, []) if around else []


def _carried(one: Storing, name: str, files: tuple[str, ...], reader: CodeType | None) -> Location | None:
    """Where what a statement stores is handed on by a function that does nothing else: the line in that."""
    carriers = Carriers(files)
    return next(filter(None, map(carriers.place, _stored(one[1], _target(name, reader)))), None)


def _stored(statement: ast.stmt, target: str) -> list[ast.expr]:
    """What a statement puts under a name."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        found = [value for one, value in syntax.pairs(statement) if target in _bases(one)]
        if found:
            return found
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    by_name = [value for key, value in map(syntax.named_store, calls) if value is not None and f".{key}" == target]
    if by_name:
        return by_name
    added = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ADDING]
    if isinstance(statement, ast.Expr) and added:
        return [x for call in added for x in syntax.arguments(call) if not _is_key(call, x)]
    value = getattr(statement, "value", None)
    return [value] if value is not None else []


def _is_key(call: ast.Call, given: ast.expr) -> bool:
    return len(call.args) > 1 and given is call.args[0] and isinstance(given, ast.Constant)


def _bases(target: ast.expr) -> set[str]:
    """The names into which a target stores: ``".h"`` of ``self.h[0]``."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*map(_bases, target.elts))
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    if isinstance(target, ast.Attribute):
        return {f".{target.attr}"}
    return {target.id} if isinstance(target, ast.Name) else set()


def _is_meant(one: Storing, name: str, reader: CodeType | None) -> bool:
    """Whether a name in a function is the one that is meant, and no local variable that is called so too."""
    function = syntax.innermost_function(one[2])
    if reader is None or function is None or name in reader.co_varnames or name in reader.co_freevars:
        return True
    inside = list(ast.walk(function))
    declared = any(isinstance(node, ast.Global) and name in node.names for node in inside)
    stores = any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in inside)
    return declared or not (stores or name in syntax.parameters(function))


def _place(one: Storing) -> Location:
    file, statement, around = one
    return locations.place(file, statement, syntax.function_of(around))


# -- what the step runs ------------------------------------------------------------------------------------------------


def _repeated(step: CodeType, callers: Chain) -> tuple[str, int, int]:
    """File, first and last line of what is run again and again: the step, or the loop in which it is called."""
    lines = {line for *_, line in step.co_lines() if line}
    lines = lines - {step.co_firstlineno} or {step.co_firstlineno}  # its head
    file, first = step.co_filename, min(lines)
    loop = _loop(file, first)
    if loop is not None:
        return file, loop.lineno, loop.end_lineno or loop.lineno
    for code, at in callers:
        loop = _loop(code.co_filename, locations.line_of((code, at)))
        if loop is not None:
            return code.co_filename, loop.lineno, loop.end_lineno or loop.lineno
    return file, first, max(lines)


def _loop(file: str, line: int) -> ast.stmt | None:
    """The innermost loop around a line, in the function that the line stands in."""
    tree = locations.tree_of(file)
    around = [n for n in ast.walk(tree or ast.Module([], [])) if isinstance(n, (*_LOOPS, *FUNCTIONS))]
    inside = [n for n in around if n.lineno < line <= (n.end_lineno or n.lineno)]
    last = max(inside, key=lambda n: n.lineno, default=None)
    return last if isinstance(last, _LOOPS) else None


class _Ran:
    """What the step runs, by the names that its lines speak of, and those that these functions speak of."""

    def __init__(self, files: tuple[str, ...], file: str, first: int, last: int) -> None:
        self._files, self._file, self._first, self._last = files, file, first, last
        tree = locations.tree_of(file)
        nodes = [n for n in ast.walk(tree) if self._is_own(n)] if tree is not None else []
        self._names = self._spoken(nodes)

    def holds(self, one: Storing) -> bool:
        """Whether the step runs a statement."""
        file, statement, around = one
        function = syntax.innermost_function(around)
        if file == self._file and self._first <= statement.lineno <= self._last:
            return True
        if function is None:
            return False
        if function.name == "__init__":
            return any(isinstance(node, ast.ClassDef) and node.name in self._names for node in around)
        return function.name in self._names

    def handed_over(self, one: Storing) -> Location | None:
        """The line that calls a function which stores whatever it is handed; None for any other statement.

        That is one that knows its arguments by no names (``*args``), and one that ran before the step, if what it
        stores is made of its arguments; it is called at one line only.
        """
        function = syntax.innermost_function(one[2])
        if function is None or (one[0] == self._file and function.lineno <= self._first <= (function.end_lineno or 0)):
            return None
        inside, rest = self.holds(one), function.args.vararg
        bare = rest is not None and _only_reads(one[1], rest.arg)
        if not _is_made_of_arguments(one[1], function) or (inside and not bare):
            return None
        name = _called(function, one[2])
        if name != function.name and not _is_an_argument(one[1], function):
            return None
        calls = [place for place, is_own in self._calls(name) if is_own == inside]
        return calls[0] if len(calls) == 1 else None

    def _calls(self, name: str) -> Iterator[tuple[Location, bool]]:
        for file in self._files:
            for node, around in syntax.statements(file):
                if isinstance(node, ast.Call) and syntax.call_name(node) == name:
                    own = file == self._file and self._first <= node.lineno <= self._last
                    around_it = syntax.innermost_function(around)
                    own = own or (around_it is not None and around_it.name in self._names)
                    yield locations.place(file, node, syntax.function_of(around)), own

    def _is_own(self, node: ast.AST) -> bool:
        return isinstance(node, ast.expr) and self._first <= node.lineno <= self._last

    def _spoken(self, nodes: Iterable[ast.AST]) -> set[str]:
        """The names in some expressions, and in the functions of these names."""
        found = {"forward", "__call__"}
        todo: list[ast.AST] = [*nodes]
        left: dict[str, list[syntax.Function]] = {}
        for file in self._files:
            for name, functions in self._functions(file):
                left.setdefault(name, []).extend(functions)
        while todo:
            found |= {n.id for n in todo if isinstance(n, ast.Name)}
            found |= {n.attr for n in todo if isinstance(n, ast.Attribute)}
            todo = [n for name in found & left.keys() for function in left.pop(name) for n in ast.walk(function)]
        return found

    @staticmethod
    def _functions(file: str) -> Iterator[tuple[str, list[syntax.Function]]]:
        tree = locations.tree_of(file)
        yield from syntax.named(tree).items() if tree is not None else ()


def _is_made_of_arguments(statement: ast.stmt, function: syntax.Function) -> bool:
    """Whether what a statement stores is read from its function's arguments, or from variables of the function."""
    inside = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    spread = {one.arg for one in (function.args.vararg, function.args.kwarg) if one is not None}
    given = inside.union(syntax.parameters(function), spread) - {"self", "cls"}
    return any(isinstance(n, ast.Name) and n.id in given for v in _stored(statement, "") for n in ast.walk(v))


def _called(function: syntax.Function, around: Sequence[ast.AST]) -> str:
    """By which name a function is called: a constructor by that of its class."""
    owner = next((one.name for one in reversed(around) if isinstance(one, ast.ClassDef)), "")
    return owner if owner and function.name == "__init__" else function.name


def _is_an_argument(statement: ast.stmt, function: syntax.Function) -> bool:
    """Whether what a statement stores is an argument of its function, as it was given."""
    names = {value.id for value in _stored(statement, "") if isinstance(value, ast.Name)}
    return bool(names.intersection(syntax.parameters(function)))


def _only_reads(statement: ast.stmt, name: str) -> bool:
    """Whether what a statement stores is made of one name alone, but for what is called."""
    values = _stored(statement, "")
    called = {id(n.func) for value in values for n in ast.walk(value) if isinstance(n, ast.Call)}
    names = {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name) and id(n) not in called}
    return names == {name}
