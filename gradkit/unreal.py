"""Tensors that have a shape and no numbers: on the meta device, and the fake ones that compilers trace with."""

from __future__ import annotations

import sys

import torch


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
    return tensor.is_meta or (fake is not None and isinstance(tensor, fake.FakeTensor))
