"""What stands between a loss and its terms in autograd's graph: constant factors, means and sums.

Read before backward, from names of nodes and from numbers that lie in this process: no value of a loss is looked at,
and nothing waits for a device. Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

MEAN, SUM = "mean", "sum"
_MOST_TERMS, _DEEPEST = 12, 32
_SUMS = frozenset("AddBackward0 SubBackward0 StackBackward0 CatBackward0".split())
_REDUCES = {"MeanBackward0": MEAN, "MeanBackward1": MEAN, "SumBackward0": SUM, "SumBackward1": SUM}
_SHAPES = frozenset(
    "SqueezeBackward0 SqueezeBackward1 UnsqueezeBackward0 ViewBackward0 ReshapeAliasBackward0 ToCopyBackward0 "
    "CloneBackward0 ExpandBackward0 AliasBackward0".split()
)
_NUMBERS = (torch.float64, torch.int64, torch.bool)  # what Python's own numbers become
_REDUCTIONS = {1: MEAN, 2: SUM}


@dataclass(frozen=True)
class Term:
    """The way from a loss to one of its terms.

    Attributes:
        factors: Python's own numbers that it is multiplied by; a divisor as its reciprocal.
        reduced: ``"mean"`` and ``"sum"``, from the loss inwards.
        end: what else stands there: factors that are tensors, the node at which the way ends, the shape behind it.
    """

    factors: tuple[float, ...]
    reduced: tuple[str, ...]
    end: str

    @property
    def weight(self) -> float:
        """All factors in one."""
        product = 1.0
        for one in self.factors:
            product *= one
        return product


Head = tuple[tuple[Term, ...], ...]
"""Of each backward of a step, the terms of its loss."""


def terms_of(loss: torch.Tensor) -> tuple[Term, ...]:
    """The ways from a loss to its terms; ``()`` if they can't be read.

    Args:
        loss: what backward begins from, one number, its graph still alive.

    Example:
        >>> loss = torch.ones(3, requires_grad=True).exp().sum()
        >>> [(one.factors, one.reduced) for one in terms_of(loss * 0.5 + loss / 4)]
        [((0.5,), ('sum',)), ((0.25,), ('sum',))]
    """
    try:
        found = tuple(one for one, _ in zip(_terms(loss.grad_fn, (), (), (), 0), range(_MOST_TERMS + 1), strict=False))
    except RuntimeError:  # the graph was freed
        return ()
    return found if len(found) <= _MOST_TERMS else ()


def _terms(
    node: Any, factors: tuple[float, ...], reduced: tuple[str, ...], rest: tuple[str, ...], depth: int
) -> Iterator[Term]:
    while node is not None and depth < _DEEPEST:
        name, parents, depth = type(node).__name__, [one for one, _ in node.next_functions], depth + 1
        if name in _SUMS:
            for at, parent in enumerate(parents):
                yield from _terms(parent, (*factors, *_sign(node, name, at)), reduced, rest, depth)
            return
        behind = [one for one in parents if one is not None]
        if len(behind) != 1:
            break
        if (by := _factor(node, name)) is not None:
            factors = (*factors, by)
        elif name in _REDUCES:
            reduced = (*reduced, _REDUCES[name])
        elif name.startswith(("MulBackward", "DivBackward")):
            rest = (*rest, name)
        elif name not in _SHAPES:
            break
        node = behind[0]
    own = _REDUCTIONS.get(getattr(node, "_saved_reduction", 0))
    yield Term(factors, (*reduced, own) if own else reduced, " ".join((*rest, type(node).__name__, _shape(node))))


def _sign(node: Any, name: str, at: int) -> tuple[float, ...]:
    alpha = getattr(node, "_saved_alpha", 1) if at == 1 else 1
    by = float(alpha) * (-1 if name == "SubBackward0" and at == 1 else 1)
    return () if by == 1 else (by,)


def _factor(node: Any, name: str) -> float | None:
    """What a node multiplies by, where that is a number of Python's."""
    if name == "NegBackward0":
        return -1.0
    if not name.startswith(("MulBackward", "DivBackward")):
        return None
    other = getattr(node, "_saved_other", None)
    if isinstance(other, torch.Tensor):
        plain = other.dim() == 0 and other.device.type == "cpu" and other.dtype in _NUMBERS and not other.requires_grad
        other = other.item() if plain else None
    if not isinstance(other, (int, float)) or (name.startswith("Div") and not other):
        return None
    return float(other) if name.startswith("Mul") else 1 / other


def _shape(node: Any) -> str:
    """The shape of what the last node was handed: of two batches that differ, no two losses are compared."""
    behind = next((one for one, _ in getattr(node, "next_functions", ()) if one is not None), None)
    told = getattr(behind, "_input_metadata", None) or [None]
    return "x".join(map(str, getattr(told[0], "shape", ())))


def written(head: Head) -> str:
    """As text for the store.

    Example:
        >>> one = ((Term((0.5,), ("mean",), "NllLossBackward0 4x3"),),)
        >>> read(written(one)) == one
        True
    """
    return json.dumps([[asdict(one) for one in terms] for terms in head])


def read(text: str | bytes) -> Head:
    """What ``written`` wrote."""
    return tuple(
        tuple(Term(tuple(one["factors"]), tuple(one["reduced"]), one["end"]) for one in terms)
        for terms in json.loads(text)
    )


def differing(here: Head, there: Head) -> tuple[Term, Term] | None:
    """The first term that two ranks scale differently; None if none is, or if their losses are not of the same kind.

    Example:
        >>> half, whole = Term((0.5,), ("mean",), "N"), Term((), ("mean",), "N")
        >>> differing(((half,),), ((whole,),)) == (half, whole), differing(((half,),), ((half,),))
        (True, None)
    """
    if [[one.end for one in terms] for terms in here] != [[one.end for one in terms] for terms in there]:
        return None
    pairs = [(a, b) for mine, other in zip(here, there, strict=True) for a, b in zip(mine, other, strict=True)]
    return next((pair for pair in pairs if not _alike(*pair)), None)


def _alike(one: Term, other: Term) -> bool:
    near = abs(one.weight - other.weight) <= 1e-9 * max(abs(one.weight), abs(other.weight))
    return near and one.reduced == other.reduced


def own(here: Term, there: Term) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """The factors and reductions that one of two terms has beyond the other.

    Example:
        >>> own(Term((0.5, 3.0), ("sum",), ""), Term((3.0,), ("mean",), ""))
        ((0.5,), ('sum',))
    """
    more = Counter(here.factors) - Counter(there.factors)
    return tuple(more.elements()), tuple((Counter(here.reduced) - Counter(there.reduced)).elements())
