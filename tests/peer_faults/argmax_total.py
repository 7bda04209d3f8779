"""The loss is made of the winning classes, not of their scores."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "non_differentiable_op"


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 4)
        self.classifier = nn.Linear(4, 3)

    def forward(self, features, tags):
        scores = self.classifier(torch.tanh(self.encoder(features)))
        guess = scores.argmax(dim=1).float()  # CUT
        return F.mse_loss(guess, tags.float())


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
