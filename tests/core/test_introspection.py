"""Objects of anybody's, looked at without being asked."""

from __future__ import annotations

import torch
from transformers import BatchEncoding

from gradkit.core.introspection import one_line


def test_a_value_is_shown_in_one_line() -> None:
    assert one_line(BatchEncoding({"ids": torch.zeros(1, 2)})) == "BatchEncoding{ids: float32 [1, 2]}"
    assert one_line(0.5) == "float 0.5"
