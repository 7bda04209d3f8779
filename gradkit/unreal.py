"""Tensors that have a shape and no numbers: on the meta device, and the fake ones that compilers trace with."""

from __future__ import annotations

import sys

import torch


def has_no_numbers(tensor: torch.Tensor) -> bool:
    """Whether a tensor has nothing to be read, copied or compared.

    Example:
        >>> has_no_numbers(torch.empty(2, device="meta")), has_no_numbers(torch.empty(2))
        (True, False)
    """
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return tensor.is_meta or (fake is not None and isinstance(tensor, fake.FakeTensor))
