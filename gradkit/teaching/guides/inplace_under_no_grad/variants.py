"""Features of all processes in one loss, where a library gathers them. Each function says whether the encoder learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved


def fitted(training_step):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(4, 3)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    Lit.training_step, module = training_step, Lit()
    return moved(module.encoder.weight, lambda: lightning_fit(module, torch.randn(8, 4), strategy="ddp"))


def apart(features):
    return -torch.pdist(features.flatten(0, -2)).mean()


def wrong_lightning():
    def training_step(self, pictures, _):
        return apart(self.all_gather(self.encoder(pictures)))

    return fitted(training_step)


def right_lightning():
    # [lightning]
    def training_step(self, pictures, _):
        return apart(self.all_gather(self.encoder(pictures), sync_grads=True))

    # [end]
    return fitted(training_step)
