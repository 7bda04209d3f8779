"""A loss function with a weight of its own, where the Trainer builds the optimizer. Each says whether it learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import moved, trainer_train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(4, 2)

    def forward(self, x, labels=None):
        return {"logits": self.scores(x)}


class WarmLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.warmth = nn.Parameter(torch.ones(()))

    def forward(self, outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs["logits"] * self.warmth, labels)


def trained(register):
    model, loss = Net(), WarmLoss()
    if register:
        # [trainer]
        model.loss = loss  # before Trainer(model, ..., compute_loss_func=loss): now model.parameters() has its weights
        # [end]
    data = [{"x": torch.randn(4), "labels": number % 2} for number in range(8)]
    return moved(loss.warmth, lambda: trainer_train(model, data, more={"compute_loss_func": loss}))


def wrong_trainer():
    return trained(register=False)


def right_trainer():
    return trained(register=True)
