"""Sound programs that look like `trainable_unused` and are not."""

from __future__ import annotations

from torch import nn

from tests.programs.shared import LABELS, Built, _one_worker, batch, small, sound

# -- models -----------------------------------------------------------------------------------------------------------


@sound
def weights_tied_to_an_embedding() -> Built:
    model = nn.Module()
    model.embed, model.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    model.head.weight = model.embed.weight
    return model, lambda: model.head(model.embed(LABELS)).logsumexp(-1).sum()


# -- every kind of model ----------------------------------------------------------------------------------------------


@sound
def a_model_in_distributed_data_parallel() -> Built:
    _one_worker()
    model, x = nn.parallel.DistributedDataParallel(small()), batch()
    return model, lambda: model(x).sum()
