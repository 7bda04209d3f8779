"""What a tensor holds: a shape, the bits of its numbers, or none: on the meta device, as a fake, or once freed."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape of a tensor; ``()`` where it tells none: nested tensors do not, nor parameters that are lazy.

    Example:
        >>> shape_of(torch.ones(2, 3)), shape_of(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
        (torch.Size([2, 3]), ())
    """
    try:
        return tensor.shape
    except RuntimeError:
        return ()


def has_no_numbers(tensor: torch.Tensor) -> bool:
    """Whether a tensor has nothing to be read, copied or compared; nested ones of the old kind do not allow it.

    Example:
        >>> has_no_numbers(torch.empty(2, device="meta")), has_no_numbers(torch.empty(2))
        (True, False)
    """
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if tensor.is_nested and tensor.layout is torch.strided:
        return True
    return tensor.is_meta or (fake is not None and isinstance(tensor, fake.FakeTensor)) or is_hollow(tensor)


def is_hollow(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory was freed or made smaller than its shape needs: who reads it then, crashes.

    Sharded models free what they have gathered by ``storage.resize_(0)``.

    Example:
        >>> freed = torch.ones(2)
        >>> _ = freed.untyped_storage().resize_(0)
        >>> is_hollow(freed), is_hollow(torch.ones(2))
        (True, False)
    """
    if tensor.layout is not torch.strided or tensor.is_nested or inner(tensor):
        return False
    try:
        with torch._C.DisableTorchFunction():
            held = tensor.untyped_storage().nbytes()
            if held >= tensor.nbytes and tensor.is_contiguous():  # the usual case, and quick
                end = tensor.storage_offset() + tensor.numel()
            else:
                end = _end(tensor)
            return end * tensor.itemsize > held
    except (RuntimeError, NotImplementedError):  # functorch's and other wrappers have no storage of their own
        return False


def _end(tensor: torch.Tensor) -> Any:
    """One past the last element of a storage that a tensor reads."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.storage_offset() + last + 1


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def inner(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that one consists of that has no memory of its own: the local part of a ``DTensor``, for example."""
    one: Any = tensor
    if type(one) in _PLAIN or not is_traceable_wrapper_subclass(one):
        return []
    names, _ = one.__tensor_flatten__()
    parts = (getattr(one, name) for name in names)
    return [part for part in parts if isinstance(part, torch.Tensor)]


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of its numbers: 0.0 and -0.0 are not the same, and one nan is the same as itself.

    Example:
        >>> torch.equal(bits(torch.tensor([0.0])), bits(torch.tensor([-0.0])))
        False
    """
    plain = tensor.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_BITS[plain.itemsize]) if plain.is_floating_point() else plain
