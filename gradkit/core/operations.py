"""What the tracer has to know of torch's functions: which write in place, which leave torch, which use no data."""

from __future__ import annotations

import functools
from typing import Any

import torch

PARAMETER, COPY, VARIABLE = "Parameter", "deepcopy", "Variable"
NAMES = frozenset((PARAMETER, VARIABLE))

PROPERTIES = frozenset("data T mT H mH real imag".split())
ESCAPES = frozenset("item tolist numpy __array__ __float__ __complex__ __int__ __index__".split())
OVERWRITES = frozenset("zero_ fill_ normal_ uniform_ random_ exponential_ bernoulli_ geometric_ cauchy_".split())
NO_DATA = frozenset(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full "
    "new_empty_strided size dim numel stride is_floating_point is_complex element_size nelement ndimension get_device "
    "storage_offset is_contiguous untyped_storage storage data_ptr __len__ __bool__ is_inference requires_grad_ "
    "retain_grad register_hook register_post_accumulate_grad_hook __repr__ __format__ __hash__ is_same_size equal "
    "allclose is_nonzero _is_all_true can_cast result_type __deepcopy__ __contains__ is_shared is_pinned "
    "__reduce_ex__ __setstate__ is_coalesced is_sparse broadcast_shapes _indices indices crow_indices col_indices "
    "ccol_indices row_indices _nnz sparse_dim dense_dim".split()
)
WRITING = frozenset(
    "__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__".split()
)
ABOUT = frozenset(
    "size dim numel stride is_floating_point is_complex element_size nelement ndimension get_device storage_offset "
    "is_contiguous __len__ __hash__ is_same_size is_inference is_coalesced".split()
)
HOOKS = frozenset(("register_hook", "register_post_accumulate_grad_hook"))
FROM_PLAIN = frozenset("tensor as_tensor asarray new_tensor".split())
JOINS = frozenset("cat concat concatenate stack hstack vstack".split())
ADDS = frozenset("add __add__ __radd__ __iadd__ add_ sub __sub__ __rsub__ __isub__ sub_".split())
SCALES = frozenset("mul __mul__ __rmul__ __imul__ mul_ div __truediv__ __itruediv__ div_ neg __neg__ __pos__".split())
COPIES = frozenset("detach data cpu clone float double to".split())
INTO = "(out=)"
UNSEEN = "from_numpy"  # of a tensor that turned up: from_numpy() and torch.Tensor() are not heard
MADE_TENSOR = "as_tensor"  # on no line of the user's: a number that stood in the place of the loss
GRAD, GRAD_KEPT = "grad", "grad(create_graph=True)"
FILLED = "backward"  # on the line that reads a .grad, or of the backward that hands a hook its gradient
RAW = frozenset("untyped_storage storage _typed_storage".split())  # hand out the memory, to be written or freed
QUIET = frozenset("batch_norm instance_norm embedding embedding_bag numpy __array__".split())


def writes(name: str) -> bool:
    """Whether a call of this name writes into its first argument."""
    return (name[-1:] == "_" and name[-2:] != "__") or name in WRITING or name == "data="


@functools.lru_cache(maxsize=1024)
def is_plain(name: str) -> bool:
    """Whether all calls of this name compute something of what they are given, and do nothing else.

    Unless they are given ``out=`` or ``inplace=``.
    """
    special = (NO_DATA, OVERWRITES, FROM_PLAIN, ESCAPES, QUIET, {GRAD})
    return not writes(name) and not any(name in names for names in special)


def written_unseen(name: str, args: Any, kwargs: Any) -> list[Any]:
    """Tensors that a call may write without its name saying so, or hand out to be written through NumPy."""
    if name in ("batch_norm", "instance_norm"):
        return [*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var")]
    if name in ("embedding", "embedding_bag") and (
        kwargs.get("max_norm") is not None or args[3:4] not in ((), (None,))
    ):
        return [*args[1:2], kwargs.get("weight")]
    if name == "_amp_update_scale_":  # a gradient scaler's scale, and how long it has been good
        return list(args[:2])
    return list(args[:1]) if name in ("numpy", "__array__") or name in RAW else []


def may_write(args: Any, kwargs: Any) -> bool:
    """Whether a call whose name says nothing of it may write in place: ``F.relu(x, True)``, ``torch.add(x, y, out=x)``.

    One that does not, and hands back a tensor it was given (``x.contiguous()``, ``x.float()``), has made nothing.
    """
    return "out" in kwargs or "inplace" in kwargs or any(arg is True for arg in args)


def full_name(func: Any, name: str, args: Any, kwargs: Any) -> str:
    """The name under which a call is recorded, where what it was given makes it another thing.

    Example:
        >>> full_name(torch.add, "add", (), {"out": torch.ones(1)})
        'add(out=)'
    """
    if func is torch.autograd.grad and (kwargs.get("create_graph") or args[4:5] == (True,)):
        return GRAD_KEPT
    return f"{name}{INTO}" if kwargs.get("out") is not None else name


CRITERIA = ("_loss", "cross_entropy", "cross_entropy_with_logits", "kl_div")  # what the name of a loss function ends in
CASTS = frozenset("long int short char byte bool to type type_as cast view_as_int half_int".split())
NEW = frozenset("tensor new_tensor".split())
MAYBE_NEW = frozenset("as_tensor asarray".split())

RANDOM = frozenset(
    "normal normal_ randn randn_like rand rand_like uniform_ exponential_ cauchy_ log_normal_ geometric_".split()
)
"""Calls that make random numbers."""
