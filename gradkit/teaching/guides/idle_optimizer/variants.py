"""Steps that never come, where a library decides when they do. Each function says whether the weights moved."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved


def examples():
    return [(torch.randn(4), torch.randn(1)) for _ in range(8)]


def fitted(training_step):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.net = nn.Linear(4, 1)

        def loss_of(self, batch):
            return (self.net(batch[0]) - batch[1]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    Lit.training_step = training_step
    module = Lit()
    return moved(module.net.weight, lambda: lightning_fit(module, examples()))


def wrong_lightning():
    def training_step(self, batch, _):
        self.manual_backward(self.loss_of(batch))

    return fitted(training_step)


def right_lightning():
    # [lightning]
    def training_step(self, batch, _):  # self.automatic_optimization is False: the steps are yours
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss_of(batch))
        optimizer.step()

    # [end]
    return fitted(training_step)


def accumulated(prepared):
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True, gradient_accumulation_steps=8), nn.Linear(4, 1)
    optimizer, data = torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(examples(), batch_size=4)
    if prepared:
        # [accelerate]
        model, optimizer, data = accelerator.prepare(model, optimizer, data)  # the end of this data ends an accumulation
        # [end]
    else:
        model, optimizer = accelerator.prepare(model, optimizer)

    def run():
        for x, wanted in data:
            with accelerator.accumulate(model):
                accelerator.backward((model(x) - wanted).square().mean())
                optimizer.step()
                optimizer.zero_grad()

    return moved(model.weight, run)


def wrong_accelerate():
    return accumulated(prepared=False)


def right_accelerate():
    return accumulated(prepared=True)
