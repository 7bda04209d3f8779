"""Sound programs that look like `non_scalar` and are not."""

from __future__ import annotations

from tests.programs.shared import Built, batch, small, sound

# -- models -----------------------------------------------------------------------------------------------------------


@sound
def a_loss_of_one_element_and_two_dimensions() -> Built:
    model, x = small(), batch()
    return model, lambda: model(x[:1])
