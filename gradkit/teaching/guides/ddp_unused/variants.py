"""A branch that depends on the batch, where a library wraps the model. Each function says whether training goes on."""

import os
import socket
from unittest import mock

import torch
from torch import nn

from gradkit.teaching.guides.loops import batches, lightning_fit, moved, trainer_train


class Net(nn.Module):
    """Its batches have pictures in turns."""

    def __init__(self):
        super().__init__()
        self.ear, self.eye = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x, labels):
        pictures = bool(labels[0] > 0)
        guess = self.ear(x) + (self.eye(x) if pictures else 0.0)
        return {"loss": guess.square().mean(), "logits": guess}


def data():
    return [{"x": torch.randn(4), "labels": float(number // 4 % 2)} for number in range(16)]


def as_torchrun_does():
    """One process, in the environment of a launcher."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    found = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    return mock.patch.dict(os.environ, {**found, "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"})


def launched(run):
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        with as_torchrun_does():
            return run()
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def trained(**arguments):
    model = Net()
    return launched(lambda: moved(model.eye.weight, lambda: trainer_train(model, data(), **arguments)))


def wrong_trainer():
    return trained(ddp_find_unused_parameters=False)


def right_trainer():
    # [trainer]
    arguments = {"ddp_find_unused_parameters": True}  # TrainingArguments(..., ddp_find_unused_parameters=True)
    # [end]
    return trained(**arguments)


def fitted(strategy):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

    module = Lit()
    return moved(module.net.eye.weight, lambda: lightning_fit(module, data(), strategy=strategy))


def wrong_lightning():
    return fitted("ddp")


def right_lightning():
    # [lightning]
    strategy = "ddp_find_unused_parameters_true"  # lightning.Trainer(..., strategy=strategy)
    # [end]
    return fitted(strategy)


def accelerated(**options):
    from accelerate import Accelerator

    net = Net()

    def train():
        accelerator = Accelerator(cpu=True, **options)
        model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
        for batch in batches(data()):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()

    return launched(lambda: moved(net.eye.weight, train))


def wrong_accelerate():
    return accelerated()


def right_accelerate():
    from accelerate import DistributedDataParallelKwargs

    # [accelerate]
    options = {"kwargs_handlers": [DistributedDataParallelKwargs(find_unused_parameters=True)]}  # Accelerator(**options)
    # [end]
    return accelerated(**options)
