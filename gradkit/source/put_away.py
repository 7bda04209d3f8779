"""Between where a value is made and where it is used: the line that puts it into what outlasts its function.

``buffer["logp"].append(dist.log_prob(a))``, ``self.logp.append(lp)`` in a method that was handed it; where there is
none, the line of the function that both share, ``start = model(x)``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from types import CodeType

from gradkit.core.records import Location
from gradkit.core.trace import Chain, Point
from gradkit.source import dataflow, locations, receivers, returns, syntax
from gradkit.source.attributes import ADDING
from gradkit.source.carrying import Carriers
from gradkit.source.keeping import is_without_history as _is_let_go
from gradkit.source.syntax import FUNCTIONS

Line = tuple[str, int]
"""A file and a line in it."""
CONSTRUCTORS = ("__init__", "__post_init__", "__new__")
"""What runs for a new object: what that keeps is kept by what keeps the object."""


def put_away_at(
    made: Chain, used: Chain, files: Iterable[str], output: int = -1, *, taken_over: bool = False,
    stores: Collection[Line] = (),
) -> Location | None:  # fmt: skip
    """The line that keeps what was made at some frames for those that use it.

    Args:
        made: the frames of the call that made it, innermost first.
        used: those of the call that uses it.
        files: the user's.
        output: which of what the call has made it is, -1 if that is not known.
        taken_over: it is made anew in each pass of a loop, out of what it was: a variable that keeps it is read before
            it is written.
        stores: the lines that store under the names which are read there: of several methods of one name, the one that
            has such a line counts.

    Returns:
        None where the two share no frame, or it cannot be read off.
    """
    files, shared, at, inner = tuple(files), {code for code, _ in used}, output, None
    for point in made:
        code, node = point[0], locations.node_at(point)
        if code.co_name == "<lambda>" and code not in shared:  # the statement around it has made the function alone
            at = -1
            continue
        statement = dataflow.statement_at(code, locations.line_of(point))
        if statement is None:
            return inner
        left = taken_over and code not in shared  # its own variables are gone before the value is used again
        names = _names_given(statement, at)
        search = partial(_kept_by, code=code, files=files, left=left, stores=stores)
        spot = search(statement, node, at=at)
        last = _handed_on(statement, names, code, files) if taken_over and code in shared else None
        if spot is None and last is not None and _is_read_before(last, code):
            return locations.place(code.co_filename, last, locations.qualified_name(code))
        uses = set() if taken_over else {locations.line_of(one) for one in used if one[0] is code}
        for later in dataflow.statements(code) if spot is None and names else ():
            is_after = later.lineno > statement.lineno and uses.isdisjoint(_lines(later))
            spot = spot or (search(later, None, names=names) if is_after else None)
        if spot is not None and not (left and code.co_name in CONSTRUCTORS):
            return spot
        inner = inner or spot
        if code in shared:
            return inner if taken_over else locations.place(code.co_filename, statement, locations.qualified_name(code))
        at = _position(statement, node, names, code, files) if spot is None else -1
    return inner


def attributes_read(point: Point, files: Iterable[str] = (), made: Chain = ()) -> set[str]:
    """The attributes that an expression reads: by itself, by a variable that was given one, or by a helper.

    ``table = self.kept`` before it; ``self.rows(n)`` or ``self.basis`` whose function returns ``self.kept[n]``.

    Args:
        files: the user's, where the helpers are sought.
        made: the frames in which what it reads was made: of several helpers of one name it is the one that ran there,
            and where none did, none is asked.
    """
    code, node = point[0], locations.node_at(point)
    if node is None:
        return set()
    line = locations.line_of(point)
    earlier = [one for one in dataflow.statements(code) if one.lineno < line and _is_simple(one)]
    found, todo, asked = set[str](), _assigned_before(node, earlier, latest=True), set[str]()
    for _ in range(_HELPERS):
        inner = [one for part in todo for one in ast.walk(part)]
        read = {one.attr for one in inner if isinstance(one, ast.Attribute)}
        found |= read
        called = read | {one.func.id for one in inner if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}
        todo = [part for name in sorted(called - asked) for part in _returned_by(name, tuple(files), made)]
        asked |= called
    return found


def variables_read(point: Point) -> set[str]:
    """The variables that an expression reads and that outlive its function: globals, and those of a function around it.

    Also by a variable of the function that was given one: ``last = STATE`` before it.
    """
    code, node = point[0], locations.node_at(point)
    if node is None or code.co_name == "<module>":
        return set()
    line, own = locations.line_of(point), {*code.co_varnames, *code.co_cellvars}
    earlier = [one for one in dataflow.statements(code) if one.lineno < line and _is_simple(one)]
    parts = _assigned_before(node, earlier, latest=True)
    return {name for part in parts for name in syntax.names_in(part)} - own


_HELPERS = 4
_PLAIN = frozenset("len int float str bool size item tolist numel time perf_counter".split())
_ABOUT = frozenset("shape dtype device ndim".split())


def _assigned_before(node: ast.AST, statements: list[ast.stmt], *, latest: bool) -> list[ast.AST]:
    """An expression, and what the variables in it were given by some statements; of each, the ``latest`` alone."""
    parts: list[ast.AST] = [node]
    for name in {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}:
        given = sorted((one for one in statements if name in _names_given(one, -1)), key=lambda one: one.lineno)
        parts += [part for one in given[-latest:] for pair in syntax.pairs(one) for part in pair]
    return parts


def _returned_by(name: str, files: tuple[str, ...], made: Chain) -> list[ast.AST]:
    """What the function of some name returns, if there is one alone, or one that ran."""
    known = [(file, one) for file in files for one in _functions(file, name)]
    ran = [returns.function_of(code) for code, _ in made if code.co_name == name]
    found = [one for _, one in known if len(known) == 1 or any(one is other for other in ran)]
    if len(found) != 1:
        return []
    statements = [one for one in ast.walk(found[0]) if isinstance(one, ast.stmt) and _is_simple(one)]
    ends = (value for value, _ in returns.returned(found[0]))
    return [part for value in ends for part in _assigned_before(value, statements, latest=False)]


def _handed_on(statement: ast.stmt, names: frozenset[str], code: CodeType, files: tuple[str, ...]) -> ast.stmt:
    """The last statement after one that gives what stands under some names to another variable: ``h = new_h``."""
    carriers, given = Carriers(files), set(names)
    for later in sorted(dataflow.statements(code), key=lambda one: one.lineno):
        pairs = syntax.pairs(later) if later.lineno > statement.lineno and _is_simple(later) else ()
        for target, value in pairs:
            taken = {one.id for one in _parts(target, -1) if isinstance(one, ast.Name)}
            if taken and carriers.hands_on(value, given):
                statement, given = later, given | taken
    return statement


def _is_read_before(statement: ast.stmt, code: CodeType) -> bool:
    """Whether a variable that a statement writes is read before, or by the statement itself."""
    end = statement.end_lineno or statement.lineno
    loads = (one for s in dataflow.statements(code) if s.lineno <= end and _is_simple(s) for one in ast.walk(s))
    read = {one.id for one in loads if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return bool(_names_given(statement, -1) & read)


def _kept_by(
    statement: ast.stmt, node: ast.AST | None, *, code: CodeType, files: tuple[str, ...], left: bool,
    stores: Collection[Line], names: frozenset[str] = frozenset(), at: int = -1,
) -> Location | None:  # fmt: skip
    """Where a statement keeps what stands at a node of it, or under some names: itself, or in a function it calls.

    Args:
        left: what the function itself made is gone before the value is used.
        at: which of what the node gives it is, -1 if that is not known.
        stores: as of ``put_away_at``.
    """
    here = locations.place(code.co_filename, statement, locations.qualified_name(code))
    calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call)] if _is_simple(statement) else []
    told = ((call, x) for call in calls for x in syntax.arguments(call))
    given = [(call, x) for call, x in told if _is_kept(x, node, names, files) and not _is_let_go(x)]
    for call, value in given:
        spot = _kept_in(call, value, here, files, stores)
        if spot is not None:
            return spot
        if (
            syntax.call_name(call) in ADDING
            and isinstance(call.func, ast.Attribute)
            and not (left and _is_own(call.func.value, code))
        ):
            return here
    kept = [x for target, x in syntax.pairs(statement) if any(_outlasts(one, code) for one in _parts(target, at))]
    kept += [x for x in (syntax.named_store(call)[1] for call in calls) if x is not None]
    lasting = (_is_kept(x, node, names, files) and not _is_let_go(x) for x in kept)
    return here if any(lasting) else None


def _parts(target: ast.expr, at: int) -> list[ast.expr]:
    """What a target consists of; of several, what the one at a position consists of, if that is known."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return [target]
    parts = target.elts[min(at, len(target.elts) - 1) :][:1] if at >= 0 else target.elts
    return [inner for one in parts for inner in _parts(one, -1)]


def _outlasts(target: ast.expr, code: CodeType) -> bool:
    """Whether what a function stores there is there after it has ended: no variable of its own."""
    if isinstance(target, ast.Name):
        return code.co_name != "<module>" and target.id not in (*code.co_varnames, *code.co_cellvars)
    return isinstance(target, (ast.Attribute, ast.Subscript))


def _is_own(holder: ast.expr, code: CodeType) -> bool:
    """Whether what something is added to is a variable that a function has made for itself."""
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return isinstance(holder, ast.Name) and holder.id in code.co_varnames and holder.id not in given


def _is_kept(value: ast.expr, node: ast.AST | None, names: frozenset[str], files: tuple[str, ...]) -> bool:
    """Whether what stands at a node or under some names is itself in what an expression gives: no loss made of it."""
    return _holds(value, node, frozenset()) or Carriers(files).hands_on(value, set(names))


def _kept_in(
    call: ast.Call, value: ast.expr, here: Location, files: tuple[str, ...], stores: Collection[Line], depth: int = 0
) -> Location | None:
    """Where a function of the user's keeps one of its arguments; where it knows it by no name, the call.

    Of several functions of its name it is the one of the class that is called, or the one that stores what is read.
    """
    known = [(file, one) for file in files for one in _functions(file, syntax.call_name(call))]
    known = receivers.of_call(call, here, known, files)
    found = [_keeping(call, value, file, one, here, files, stores, depth) for file, one in known]
    spots = list(dict.fromkeys(spot for spot in found if spot is not None))
    if len(known) > 1:
        spots = [spot for spot in spots if (spot.file, spot.line) in stores]
    return spots[0] if len(spots) == 1 else None


def _keeping(
    call: ast.Call, value: ast.expr, file: str, function: syntax.Function, here: Location, files: tuple[str, ...],
    stores: Collection[Line], depth: int,
) -> Location | None:  # fmt: skip
    """Where a function keeps what a call hands to it; where it knows it by no name, the call."""
    name = syntax.handed_as(call, value, function)
    rest = function.args.vararg.arg if function.args.vararg is not None else ""
    given = _handed_along({name, rest} - {""}, function, files)
    for node, around in syntax.statements(file):
        if function not in around or not isinstance(node, ast.stmt) or not _is_simple(node):
            continue
        there = locations.place(file, node, syntax.function_of(around))
        further = (_kept_in(c, x, there, files, stores, depth + 1) for c, x in _handing(node, given, files, depth))
        inner = next(filter(None, further), None)
        if inner is not None or _adds(node, given, files):
            decides = name and not _takes_anything(name, function, files)
            return (inner or there) if decides else here
    return None


def _handing(
    statement: ast.stmt, given: set[str], files: tuple[str, ...], depth: int
) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls in a statement that are handed what stands under some names, with its history, each with that."""
    calls = (one for one in ast.walk(statement) if isinstance(one, ast.Call)) if depth < _HELPERS else ()
    told = ((call, x) for call in calls for x in syntax.arguments(call))
    yield from ((call, x) for call, x in told if _is_kept(x, None, frozenset(given), files) and not _is_let_go(x))


def _handed_along(names: set[str], function: syntax.Function, files: tuple[str, ...]) -> set[str]:
    """Some names of a function, and those to which it hands on what stands under them, or parts of it, as in a loop."""
    carriers, given = Carriers(files), set(names)
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.stmt))
    for node in sorted(nodes, key=lambda one: one.lineno):
        if isinstance(node, (ast.For, ast.AsyncFor)) and carriers.hands_on(node.iter, given):
            given |= syntax.names_in(node.target)
        for target, value in syntax.pairs(node) if _is_simple(node) else ():
            given |= {target.id} if isinstance(target, ast.Name) and carriers.hands_on(value, given) else set()
    return given


def _takes_anything(name: str, function: syntax.Function, files: tuple[str, ...]) -> bool:
    """Whether a function is handed, for one of its parameters, what is no tensor as well: then it takes anything.

    Whoever hands it something with a history decides; the function cannot let go of what has none.
    """
    calls = (node for file in files for node in syntax.nodes(file) if isinstance(node, ast.Call))
    same = (one for one in calls if syntax.call_name(one) == function.name and isinstance(one.func, ast.Attribute))
    given = (syntax.handed(one, function, name) for one in same)
    return any(one is not None and _is_no_tensor(one) for one in given)


def _is_no_tensor(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return syntax.call_name(value) in _PLAIN
    texts = isinstance(value, ast.Constant) and value.value is not None
    return texts or isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Attribute) and value.attr in _ABOUT)


def _adds(statement: ast.stmt, names: set[str], files: tuple[str, ...]) -> bool:
    """Whether a statement puts what stands under some names into an object or a container."""
    calls = (one for one in ast.walk(statement) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute))
    adding = (x for one in calls if syntax.call_name(one) in ADDING for x in syntax.arguments(one))
    stored = (x for target, x in syntax.pairs(statement) if isinstance(target, (ast.Attribute, ast.Subscript)))
    return any(_is_kept(x, None, frozenset(names), files) for x in (*adding, *stored))


def _functions(file: str, name: str) -> list[syntax.Function]:
    tree = locations.tree_of(file)
    return syntax.named(tree).get(name, []) if tree is not None and name else []


def _names_given(statement: ast.stmt, at: int) -> frozenset[str]:
    """The variables that a statement gives a value, or a part of one: the one at a position, if that is known."""
    found: set[str] = set()
    for target, _ in syntax.pairs(statement):
        found |= {one.id for one in _parts(target, at) if isinstance(one, ast.Name)}
    return frozenset(found)


def _position(
    statement: ast.stmt, node: ast.AST | None, names: frozenset[str], code: CodeType, files: tuple[str, ...]
) -> int:
    """At which position of the tuple that a function returns a value stands; -1 if it returns none, or not it."""
    ends = [statement] if isinstance(statement, ast.Return) else dataflow.statements(code)
    carriers = Carriers(files)
    for end in ends:
        value = end.value if isinstance(end, ast.Return) else None
        parts = value.elts if isinstance(value, ast.Tuple) else []
        found = [at for at, part in enumerate(parts) if _holds(part, node, names)]
        plain = [at for at in found if carriers.hands_on(parts[at], set(names))]
        if found:
            return (plain or found)[0]
    return -1


def _holds(value: ast.AST, node: ast.AST | None, names: frozenset[str]) -> bool:
    """Whether an expression has a node in it, or uses one of some names."""
    inside = list(ast.walk(value))
    used = {one.id for one in inside if isinstance(one, ast.Name)}
    return bool(used & names) or (node is not None and any(syntax.same(node, one) for one in inside))


def _lines(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _is_simple(statement: ast.stmt) -> bool:
    return not isinstance(getattr(statement, "body", None), list) and not isinstance(statement, FUNCTIONS)
