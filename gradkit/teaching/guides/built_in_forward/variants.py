"""A layer that finds its width by itself, and DDP round it. Each function says whether the model can be wrapped."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import one_process_group


def wrapped(model, run):
    one_process_group()
    try:
        run()
        nn.parallel.DistributedDataParallel(model)
    except (RuntimeError, ValueError) as error:
        if "uninitialized parameters" not in str(error):
            raise
        return False
    return True


def wrong_ddp():
    model = nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 1))
    return wrapped(model, lambda: None)


def right_ddp():
    model, batch = nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 1)), torch.randn(6, 4)

    def run():
        # [ddp]
        with torch.no_grad():
            model(batch)  # one batch of every process, before DistributedDataParallel(model)
        # [end]

    return wrapped(model, run)
