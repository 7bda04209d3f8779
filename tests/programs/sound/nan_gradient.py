"""Sound programs that look like `nan_gradient` and are not."""

from __future__ import annotations

from tests.programs.shared import Built, batch, small, sound

# -- models -----------------------------------------------------------------------------------------------------------


@sound
def half_precision() -> Built:
    model, x = small().half(), batch().half()
    return model, lambda: model(x).sum()


@sound
def gradients_too_big_for_a_squared_norm_in_float32() -> Built:
    model, x = small(), batch()
    return model, lambda: model(x).sum() * 1e25


@sound
def gradients_too_big_for_float32() -> Built:
    model, x = small().double(), batch().double()
    return model, lambda: model(x).sum() * 1e200
