"""A loss that became a number for the log, where a library goes backward. Each function says whether the net learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved


def fitted(training_step):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 1)

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

    Lit.training_step, module = training_step, Lit()
    return moved(module.net.weight, lambda: lightning_fit(module, torch.randn(8, 4)))


def wrong_lightning():
    def training_step(self, batch, _):
        loss = self.net(batch).pow(2).mean().item()
        self.log("loss", loss)
        return loss

    return fitted(training_step)


def right_lightning():
    # [lightning]
    def training_step(self, batch, _):
        loss = self.net(batch).pow(2).mean()
        self.log("loss", loss)  # a tensor will do
        return loss

    # [end]
    return fitted(training_step)
