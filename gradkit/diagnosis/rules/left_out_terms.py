"""A term of the loss that is computed, logged perhaps, and never added: what it alone reaches gets no gradient.

Named is the line that puts the loss together, where the loss is plainly a sum and what is left out is plainly meant for
it: a single number with a history that nothing computes with any more, and that a loss function or a distance made, or
that the source calls a loss. A number that is none of these is a statistic, and its layer is unused. Where the loss is
one entry of a dictionary of such, named is the line that picks it.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from gradkit.core.operations import ADDS, CRITERIA
from gradkit.core.records import LIKELY, Finding, Location, Note
from gradkit.core.trace import Call, Chain, Point
from gradkit.diagnosis.rules.evidence import Evidence, same_line
from gradkit.source import addends, dataflow, entries, locations

VARIANT = "left_out"
_DISTANCES = frozenset("cosine_similarity pairwise_distance cdist dist".split())
_DIFFERENCES = frozenset("sub __sub__ __rsub__ sub_ __isub__ rsub subtract".split())
_SIZES = frozenset("pow __pow__ square abs __abs__ norm linalg_norm linalg_vector_norm".split())
_SUMS = ADDS | {"stack", "cat", "hstack", "rsub", "subtract"}
WORDS = re.compile(r"(^|_)(loss|losses|penalty|regulari[sz]ation|regulari[sz]er|reg|kld?|nll|bce|mse)(_|\d|$)", re.I)


def told(e: Evidence, names: Sequence[str], defined: Location | None, attribute: str, module: str) -> Finding | None:
    """The finding for parameters that a term which is left out of the loss would reach; None if that is not plain.

    Args:
        defined: where they are defined, under the name of ``attribute``.
        module: what holds them.
    """
    sums = _sums(e)
    found = next(((term, total) for term in _ends(e, names) if (total := _total(sums, term)) is not None), None)
    if found is not None:
        term, total = found
        spot, name, call = locations.innermost(total.chain), _name(term, total), total.name
    else:
        picked = next((one for term in _ends(e, names) if (one := _picked(e, term)) is not None), None)
        if picked is None:
            return None
        term, name, spot = picked
        call = ""
    made = locations.innermost(term.chain)
    notes = [Note("left_out_term", made, {"name": name})] if made and not (spot and same_line(made, spot)) else []
    notes += [Note("defined", defined, {"attribute": attribute})] if defined is not None else []
    return Finding(
        "trainable_unused", spot, tuple(notes), proof=LIKELY, parameters=tuple(names), module=module,
        call=call, variant=VARIANT, facts={"attribute": attribute, "used": "yes", "name": name},
    )  # fmt: skip


def without(e: Evidence, term: Call, beside: Iterable[str]) -> Location | None:
    """The line that puts the loss together without a term: the last that adds, or the one that picks another entry.

    Args:
        beside: the keys of the entries beside it.
    """
    total = _total(_sums(e), term)
    maker = e.trace.maker(e.trace.loss) if total is None else None
    if maker is not None and maker.name in ADDS and maker.chain and not maker.through and _is_single(e, maker.inputs):
        total = maker  # a single term, added to the number 0
    if total is not None:
        return locations.innermost(total.chain)
    return next((spot for key in beside if (spot := entries.picked(e.files, key, e.near)) is not None), None)


def _picked(e: Evidence, term: Call) -> tuple[Call, str, Location] | None:
    """Where the loss is picked out of a dictionary that holds a term as well: with the key of the term."""
    maker = e.trace.values[e.trace.loss].maker if e.trace.loss >= 0 else -1
    if maker < 0:
        return None
    loss = _before_weights(e, e.trace.calls[maker])
    for point, other in ((one, two) for one in term.chain for two in loss.chain if one[0] is two[0]):
        mine, its = entries.entry(point), entries.entry(other)
        if mine is not None and its is not None and mine.held == its.held and mine.key != its.key:
            spot = entries.picked(e.files, its.key, e.near)
            return (term, mine.key, spot) if spot is not None else None
    return None


def _sums(e: Evidence) -> list[Call]:
    """The calls that add up single numbers to the loss; none where several losses are gone backward from."""
    trace, terms = e.trace, e.first.terms
    if len({one.loss for one in terms if one.added >= 0}) > 1 or trace.loss < 0:
        return []
    adds = {one.added for one in terms if one.added >= 0}
    maker = trace.values[trace.loss].maker
    if not adds and maker >= 0 and _is_of_one(trace.calls[maker]):
        adds.add(maker)
    calls = [trace.calls[index] for index in sorted(adds)]
    calls = [c for c in calls if c.name in _SUMS and c.chain and not c.through]
    return [c for c in calls if e.verdict.reaching.intersection(c.outputs) and _is_single(e, c.inputs)]


def _is_of_one(call: Call) -> bool:
    """Whether it is ``sum([term])``, which adds a single term to the number 0."""
    node = locations.node_at(call.chain[0]) if call.chain and call.name in ADDS else None
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum"


def _is_single(e: Evidence, numbers: Sequence[int]) -> bool:
    return all(math.prod(e.trace.values[number].shape) == 1 for number in numbers)


def _ends(e: Evidence, names: Sequence[str]) -> Iterator[Call]:
    """The calls that made a number for a loss out of what the parameters compute, of which nothing else is made."""
    flow = e.flow_from(names)
    for call in reversed(flow):
        made = [n for n in call.outputs if e.trace.values[n].requires_grad and e.trace.values[n].floating]
        used = [c for c in e.trace.using(made) if any(e.trace.values[n].requires_grad for n in c.outputs)]
        if made and call.chain and not used and _is_single(e, made) and is_for_a_loss(e, flow, call):
            yield _before_weights(e, call)


def _before_weights(e: Evidence, call: Call) -> Call:
    """The call that made a term, before it was weighed on a line of its own."""
    while call.name in ("mul", "__mul__", "__rmul__", "div", "__truediv__"):
        inputs = [n for n in call.inputs if e.trace.values[n].requires_grad]
        maker = e.trace.values[inputs[0]].maker if len(inputs) == 1 else -1
        if maker < 0 or not e.trace.calls[maker].chain or not _is_single(e, inputs):
            return call
        call = e.trace.calls[maker]
    return call


def is_for_a_loss(e: Evidence, flow: Sequence[Call], end: Call) -> bool:
    """Whether a loss function or a distance made a number, or the source calls it a loss."""
    behind = {call.index for call in e.trace.behind(end.outputs)}
    calls = [call for call in flow if call.index in behind]
    if any(call.name.endswith(CRITERIA) or call.name in _DISTANCES for call in calls):
        return True
    differences = {n for call in calls if call.name in _DIFFERENCES for n in call.outputs}
    return any(call.name in _SIZES and differences.intersection(call.inputs) for call in calls) or any(
        WORDS.search(word) for word in _called(end)
    )


def _called(end: Call) -> Iterator[str]:
    """What the source calls a number: the variable or key that it is put under, and the functions that return it."""
    for point in end.chain:
        yield addends.name_of((point,)).rpartition(".")[2]
        statement = _statement(point)
        if not isinstance(statement, ast.Return) or _is_several(statement.value):
            return
        yield locations.qualified_name(point[0]).rpartition(".")[2]


def _total(sums: Sequence[Call], term: Call) -> Call | None:
    """Of the calls that add up the loss, the last of those that stand nearest to where a term was made."""
    return max(sums, key=lambda call: (_shared(call.chain, term.chain), call.index), default=None)


def _shared(one: Chain, other: Chain) -> int:
    """How many functions two calls have in common, counted from the outermost."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0][0] is pair[1][0], pairs))


def _name(term: Call, total: Call) -> str:
    """What the source calls a term: the variable or key that it is put under, else the expression that makes it."""
    for at in range(min(len(term.chain) - _shared(term.chain, total.chain) + 1, len(term.chain))):
        statement = _statement(term.chain[at])
        if not isinstance(statement, ast.Return):
            return addends.name_of(term.chain[at if isinstance(statement, ast.Assign) else 0 :]) or term.name
        if _is_several(statement.value):
            return addends.name_of(term.chain[at:]) or term.name
    return addends.name_of(term.chain) or term.name


def _is_several(value: ast.expr | None) -> bool:
    """Whether what is returned holds other things as well."""
    made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict"
    return made or isinstance(value, (ast.Dict, ast.Tuple, ast.List))


def _statement(point: Point) -> ast.stmt | None:
    return dataflow.statement_at(point[0], locations.line_of(point))
