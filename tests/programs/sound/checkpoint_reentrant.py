"""Sound programs that look like `checkpoint_reentrant` and are not."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.programs.shared import Built, batch, pair, small, sound

# -- what wraps a step ------------------------------------------------------------------------------------------------


@sound
def checkpoints_without_reentry() -> Built:
    model, x = small(), batch()
    return (
        model,
        lambda: (
            checkpoint(model, x, use_reentrant=False).sum()
            + checkpoint_sequential(model, 2, x, use_reentrant=False).sum()
        ),
    )


@sound
def a_reentrant_checkpoint_whose_input_requires_grad() -> Built:
    model, x = small(), batch().requires_grad_()
    return model, lambda: model[2](checkpoint(lambda t: model[0](t).tanh(), x, use_reentrant=True)).sum()


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def checkpoints_inside_a_checkpoint() -> Built:
    model, x = pair(), batch()

    def encode(given: torch.Tensor) -> torch.Tensor:
        return checkpoint(model["inner"], given, use_reentrant=False).tanh()

    return model, lambda: model["outer"](checkpoint(encode, x, use_reentrant=False)).sum()
