"""Batches with nothing to learn from, where a library runs the loop. Each function says whether training went through."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from gradkit.teaching.guides.loops import lightning_trainer, moved, one_process_group, trainer_train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def loss_of(model, batch):
    """None if no label counts."""
    known = batch["labels"] != -100
    return F.cross_entropy(model(batch["x"])[known], batch["labels"][known]) if known.any() else None


def examples():
    """Two of four batches of two have no label at all."""
    labels = (0, 1, -100, -100, 1, 0, -100, -100)
    return [{"x": torch.randn(4), "labels": label} for label in labels]


def fitted(training_step):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

    Lit.training_step = training_step
    module = Lit()
    data = torch.utils.data.DataLoader(examples(), batch_size=2)
    return moved(module.net.head.weight, lambda: lightning_trainer().fit(module, data))


def wrong_lightning():
    def training_step(self, batch, _):
        loss = loss_of(self.net, batch)
        return torch.tensor(0.0) if loss is None else loss

    return fitted(training_step)


def right_lightning():
    # [lightning]
    def training_step(self, batch, _):
        return loss_of(self.net, batch)  # None: Lightning leaves this batch out

    # [end]
    return fitted(training_step)


def trained(data):
    from transformers import Trainer

    class OwnTrainer(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss = loss_of(model, inputs)
            return torch.tensor(0.0) if loss is None else loss

    model, arguments = Net(), {"per_device_train_batch_size": 2, "remove_unused_columns": False}
    return moved(model.head.weight, lambda: trainer_train(model, data, OwnTrainer, **arguments))


def wrong_trainer():
    return trained(examples())


def right_trainer():
    data = examples()
    # [trainer]
    data = [example for example in data if example["labels"] != -100]  # the Trainer goes backward from every loss
    # [end]
    return trained(data)


def accumulated(skip_all):
    from accelerate import Accelerator

    model, accelerator = Net(), Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = torch.utils.data.DataLoader(examples(), batch_size=2)
    model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)

    def wrong():
        for batch in data:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                if loss is None:
                    continue
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()

    def right():
        # [accelerate]
        for batch in data:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                if loss is not None:
                    accelerator.backward(loss)
                optimizer.step()  # also where nothing was added: this batch may be the one that ends the accumulation
                optimizer.zero_grad()
        # [end]

    return moved(model.head.weight, wrong if skip_all else right)


def wrong_accelerate():
    return accumulated(skip_all=True)


def right_accelerate():
    return accumulated(skip_all=False)


def synchronised(end):
    """Whether the hooks of DDP have averaged the gradients of two micro-batches, of which the last has no label."""
    one_process_group()
    model, averaged = nn.parallel.DistributedDataParallel(Net()), []

    def average(_, bucket):
        averaged.append(bucket.index())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, average)
    batches = list(torch.utils.data.DataLoader(examples(), batch_size=2))[:2]
    end(model, batches)
    return averaged != [] and model.module.head.weight.grad is not None


def wrong_ddp():
    def end(model, batches):
        for number, batch in enumerate(batches):
            with contextlib.nullcontext() if number == len(batches) - 1 else model.no_sync():
                loss = loss_of(model, batch)
                if loss is not None:
                    loss.backward()

    return synchronised(end)


def right_ddp():
    def end(model, batches):
        # [ddp]
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = loss_of(model, batch)
                if loss is None and last:  # this pass averages the gradients: it has to go through DDP
                    loss = 0.0 * model(batch["x"]).sum()
                if loss is not None:
                    loss.backward()
        # [end]

    return synchronised(end)
