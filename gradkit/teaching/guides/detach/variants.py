"""A loss that was detached for the log, where a library goes backward. Each function says whether the net learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved, trainer_train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


def loss_of(model, x):
    return (model(x) - x).pow(2).mean()


def fitted(training_step):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

    Lit.training_step, module = training_step, Lit()
    return moved(module.net.encoder.weight, lambda: lightning_fit(module, torch.randn(8, 4)))


def wrong_lightning():
    def training_step(self, pictures, _):
        loss = loss_of(self.net, pictures).detach()
        self.log("loss", loss)
        return loss

    return fitted(training_step)


def right_lightning():
    # [lightning]
    def training_step(self, pictures, _):
        loss = loss_of(self.net, pictures)
        self.log("loss", loss)  # Lightning detaches what it logs
        return loss

    # [end]
    return fitted(training_step)


def trained(kind):
    model, data = Net(), [{"x": torch.randn(4)} for _ in range(8)]
    return moved(model.encoder.weight, lambda: trainer_train(model, data, kind))


def wrong_trainer():
    from transformers import Trainer

    class OwnTrainer(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            return loss_of(model, inputs["x"]).detach()

    return trained(OwnTrainer)


def right_trainer():
    from transformers import Trainer

    # [trainer]
    class OwnTrainer(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return loss_of(model, inputs["x"])

    # [end]
    return trained(OwnTrainer)
