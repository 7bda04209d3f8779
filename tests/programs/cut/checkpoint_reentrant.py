"""Programs that lose the gradient by `checkpoint_reentrant`."""

from __future__ import annotations

from torch.utils.checkpoint import checkpoint

from tests.programs.shared import Built, batch, cut, pair

# -- grad mode --------------------------------------------------------------------------------------------------------


@cut("checkpoint_reentrant")
def a_reentrant_checkpoint_whose_input_needs_no_grad() -> Built:
    model, x = pair(), batch()
    return model, lambda: model["outer"](checkpoint(model["inner"], x, use_reentrant=True)).sum()  # CUT
