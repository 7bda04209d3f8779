"""The loss stays the constant that it began as."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "constant_loss"


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 4)
        self.classifier = nn.Linear(4, 3)

    def forward(self, features, tags):
        scores = self.classifier(torch.tanh(self.encoder(features)))
        loss = torch.tensor(0.0)  # CUT
        if len(tags) == 0:
            loss = loss + F.cross_entropy(scores, tags)
        return loss


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
