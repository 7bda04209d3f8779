"""The summands of a loss, as autograd's graph tells them, and which leaves each of them gives a gradient to."""

from __future__ import annotations

from typing import Any

import torch

from gradkit.core import patches
from gradkit.core.tensors import has_no_numbers
from gradkit.tracing import backward

MOST, LARGEST = 6, 5000


def reached_by(loss: torch.Tensor) -> tuple[frozenset[int], ...] | None:
    """For each summand of a loss, the ids of the leaves whose gradient from it is not zero. The graph is kept.

    A summand without history reaches nothing.

    Returns:
        None of a loss that is no sum, or one of very many summands, or that cannot be asked twice.

    Example:
        >>> a, b = (torch.ones(1, requires_grad=True) for _ in "ab")
        >>> [len(one) for one in reached_by((a * b).sum() + b.sum())]
        [2, 1]
    """
    if loss.numel() != 1 or loss.grad_fn is None or has_no_numbers(loss):
        return None
    terms = _terms(loss.grad_fn)
    nodes = backward.nodes_of(loss)
    if not 1 < len(terms) <= MOST or len(nodes) > LARGEST:
        return None
    leaves = backward.leaves_of(loss)
    try:
        return tuple(_reached(loss, term, terms, leaves) if term is not None else frozenset() for term in terms)
    except RuntimeError:  # reentrant checkpoints refuse to be asked by name
        return None


def _terms(root: Any) -> list[Any]:
    """The nodes of the summands in their order; None for one without history."""
    if root is None or type(root).__name__ not in ("AddBackward0", "SubBackward0"):
        return [root]
    return [term for parent, _ in root.next_functions for term in _terms(parent)]


def _reached(loss: torch.Tensor, term: Any, terms: list[Any], leaves: list[torch.Tensor]) -> frozenset[int]:
    with patches.undone():
        for other in {id(one): one for one in terms if one is not None and one is not term}.values():
            patches.later(other.register_prehook(_nothing).remove)
        grads = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
    return frozenset(
        id(leaf) for leaf, grad in zip(leaves, grads, strict=True) if grad is not None and bool(grad.any())
    )


def _nothing(grads: Any) -> Any:
    return tuple(None if grad is None else torch.zeros_like(grad) for grad in grads)
