"""The backward of a run, watched: which parameters it really reaches, with which gradients, and what drops them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import torch

from gradkit.core import attempts, introspection
from gradkit.core.tensors import has_no_numbers
from gradkit.source import faults
from gradkit.source.faults import on_behalf
from gradkit.state.preserve import TENSOR_HOOKS, Preserved, grad_of
from gradkit.tracing import autograd_errors, ranks
from gradkit.tracing.autograd_errors import AutogradError
from gradkit.tracing.autograd_graph import leaf_of, walk_graph

_TWICE = (
    "Trying",
    "to backward through the graph a second time (or directly access saved tensors after they have already been freed)",
)  # torch's own words


@dataclass(frozen=True)
class Reached:
    """What a backward pass did.

    Attributes:
        norms: 2-norm of the gradient of each parameter that got one, by name; None on the meta device, and for a
            parameter that is connected where backward raised before it got there.
        runs: whether ``loss.backward()`` has something to start from.
        error: what it raised, ``""`` if nothing.
        elements: number of elements of the loss; 1 for a scalar.
        mishap: that error, if it is one of autograd's or was raised inside a custom Function's backward or a hook.
        emptied: parameters that got a gradient and have none any more after the backward.
        warned: warnings that a backward of the user's own raises as errors where it is run under the same filters.
        frees_past: whether it frees values that were kept before the step began, as the user's would.
    """

    norms: dict[str, float | None] = field(default_factory=dict)
    runs: bool = False
    error: str = ""
    elements: int = 1
    mishap: AutogradError | None = None
    emptied: frozenset[str] = frozenset()
    warned: tuple[str, ...] = ()
    frees_past: bool = False


@on_behalf
def backward(loss: torch.Tensor, preserved: Preserved, since: int = 0, spent: Collection[int] = frozenset()) -> Reached:
    """Run a real backward from ``loss`` and see where gradients arrive; every ``.grad`` is taken away again.

    A loss with several elements starts from ones, as ``loss.sum()`` would.

    Args:
        since: autograd's sequence number when the step began. Where the graph reaches further back, into something that
            the user holds, it is not freed.
        spent: sequence numbers of nodes from before the step that a backward of the step's own would have freed.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> with Preserved(model) as preserved:
        ...     sorted(backward(model(torch.ones(1, 2)).sum(), preserved).norms)
        ['bias', 'weight']
    """
    if not loss.requires_grad:
        return Reached(elements=loss.numel())
    for leaf in leaves_of(loss):
        preserved.leaf(leaf)
    preserved.clear_grads()
    ranks.meet_ranks()
    with attempts.lifted() as warned, torch.enable_grad(), arrivals(preserved) as arrived:
        error, mishap, past = "", None, _older(loss, since)
        frees_past = any(map(keeps_values, past))
        try:
            start = None if loss.numel() == 1 else torch.ones_like(loss)
            if spent and any(node._sequence_nr() in spent for node in nodes_of(loss)):
                refuse_a_second_walk()
            loss.backward(start, retain_graph=bool(past))  # type: ignore[no-untyped-call]
        except Exception as raised:  # a hook or a custom Function may raise anything
            if faults.is_ours(raised):
                raise
            error, mishap = introspection.text(raised) or type(raised).__name__, autograd_errors.classify(raised)
    held = norms(preserved.parameters)
    grad_norms, emptied = {**arrived, **held}, arrived.keys() - held.keys()
    if error:
        behind = {id(leaf) for leaf in leaves_of(loss)}
        grad_norms = {
            name: grad_norms.get(name)
            for name, p in preserved.parameters.items()
            if name in grad_norms or id(p) in behind
        }
    preserved.clear_grads()
    return Reached(grad_norms, True, error, loss.numel(), mishap, frozenset(emptied), tuple(warned), frees_past)


def keeps_values(node: Any) -> bool:
    """Whether a node keeps values for its backward, so that a second walk over it raises once they are freed.

    Example:
        >>> w = torch.ones(2, requires_grad=True)
        >>> keeps_values(w.exp().grad_fn), keeps_values((w + 1).grad_fn)
        (True, False)
    """
    kept = [name for name in dir(node) if name.startswith("_raw_saved_")]
    if kept != ["_raw_saved_tensors"]:
        return bool(kept)
    try:
        return bool(getattr(node, "_raw_saved_tensors", True))
    except RuntimeError:  # it has kept some, and they are freed
        return True


@on_behalf
def refuse_a_second_walk() -> NoReturn:
    """Raise what autograd raises where a graph that was freed is walked once more: it was spared, for the user's sake.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(" ".join(_TWICE))


def _older(loss: torch.Tensor, since: int) -> list[Any]:
    return [node for node in nodes_of(loss) if node._sequence_nr() < since and leaf_of(node) is None]


@contextlib.contextmanager
def arrivals(preserved: Preserved) -> Iterator[dict[str, float | None]]:
    """Gradients that arrive while the block runs, of parameters whose hooks use them up at once.

    An optimizer that steps in a ``register_post_accumulate_grad_hook``, or in a hook of the parameter that comes next,
    leaves no ``.grad`` behind to be looked at.
    """
    found: dict[str, float | None] = {}
    handles = []
    for name, parameter in preserved.parameters.items():
        if parameter.requires_grad and any(getattr(parameter, table, None) for table in TENSOR_HOOKS):
            preserved.before_write(parameter)
            handles.append(parameter.register_hook(partial(_arrived, found, name)))  # type: ignore[no-untyped-call]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _arrived(found: dict[str, float | None], name: str, grad: torch.Tensor) -> None:
    found[name] = _norm(grad)


def norms(parameters: Mapping[str, torch.Tensor]) -> dict[str, float | None]:
    """The 2-norm of every gradient that these parameters hold now."""
    held = {name: grad_of(parameter) for name, parameter in parameters.items()}
    return {name: _norm(grad) for name, grad in held.items() if grad is not None}


def leaves_of(loss: torch.Tensor) -> list[torch.Tensor]:
    """Every leaf tensor in the autograd graph behind ``loss``."""
    return [found for node in nodes_of(loss) if (found := leaf_of(node)) is not None]


def nodes_of(loss: torch.Tensor) -> list[Any]:
    """Every node of the autograd graph behind ``loss``."""
    return walk_graph([loss.grad_fn])[0] if loss.grad_fn is not None else []


def not_finite(norms: dict[str, float | None], names: Iterable[str]) -> tuple[str, ...]:
    """Of the named parameters, those whose gradient holds nan or inf."""
    return tuple(n for n in names if (norm := norms.get(n)) is not None and not math.isfinite(norm))


def not_finite_at(loss: torch.Tensor, preserved: Preserved) -> tuple[int, ...]:
    """Run a backward and find the nodes that were handed finite gradients and handed on nan or inf.

    Each hands on 0 in their place: those behind it are judged by themselves.

    Returns:
        Their sequence numbers in autograd's count, in the order of the backward.
    """
    found: list[int] = []

    def watch(node: Any, handed_on: Any, handed: Any) -> Any:
        if _finite(handed_on) or not _finite(handed):
            return None
        found.append(node._sequence_nr())
        return tuple(g.masked_fill(~torch.isfinite(g), 0) if is_strided(g) else g for g in handed_on)

    with watched(loss, watch):
        backward(loss, preserved)
    return tuple(found)


@contextlib.contextmanager
def watched(loss: torch.Tensor, watch: Callable[[Any, Any, Any], Any]) -> Iterator[None]:
    """While the block runs, ``watch(node, handed_on, handed)`` is called for every node that backward comes to.

    What it returns, if it is not None, is handed on instead.
    """
    nodes = [node for node in nodes_of(loss) if leaf_of(node) is None]
    handles = [node.register_hook(partial(watch, node)) for node in nodes]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def all_zero(grads: Any) -> bool:
    """Whether gradients hold numbers, and nothing but zeros."""
    strided = [g for g in grads if is_strided(g) and not has_no_numbers(g)]
    return bool(strided) and not any(bool(g.any()) for g in strided)


def _finite(grads: Any) -> bool:
    return all(bool(torch.isfinite(g).all()) for g in grads if is_strided(g))


def is_strided(grad: Any) -> bool:
    """Whether something is a tensor whose numbers can be looked at one by one: not sparse, not nested.

    Example:
        >>> is_strided(torch.ones(2)), is_strided(torch.ones(2).to_sparse()), is_strided(None)
        (True, False, False)
    """
    return isinstance(grad, torch.Tensor) and grad.layout is torch.strided and not grad.is_nested


_SMALLEST = 1e-10  # below, float32 loses the squares of much of what there is


def _norm(grad: torch.Tensor) -> float | None:
    """The 2-norm; the largest element where squares would overflow; nan or inf only if the gradient holds such."""
    if has_no_numbers(grad) or grad.is_nested:
        return None
    values = grad.detach().coalesce().values() if grad.layout is torch.sparse_coo else grad.detach()
    if values.dim() > 1 and values.is_floating_point() and values.dtype is not torch.float64:
        # A copy in float64 of a large embedding's gradient takes twice its memory, and longer than a forward.
        # A row is all but the first dimension: of a convolution, the last alone is 3 long, or 1, which takes 18 times.
        rows = torch.linalg.vector_norm(values, dim=tuple(range(1, values.dim())), dtype=torch.float32)
        norm = float(torch.linalg.vector_norm(rows if rows.device.type == "mps" else rows.double()))
        if _SMALLEST <= norm < math.inf:
            return norm
    exact = values.device.type != "mps"  # Apple's GPUs have no float64
    wide = values.to(torch.complex128 if values.is_complex() else torch.float64) if exact else values.float()
    norm = float(torch.linalg.vector_norm(wide))
    return norm if math.isfinite(norm) or not wide.numel() else float(wide.abs().max())
