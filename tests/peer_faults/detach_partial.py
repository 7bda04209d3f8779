"""A helper of a helper detaches the encoder's output."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "detach"


def without_history(values):
    return values.detach()  # CUT


def rescaled(values):
    return 0.5 * without_history(values)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 4)
        self.classifier = nn.Linear(4, 3)

    def forward(self, features, tags):
        hidden = rescaled(torch.tanh(self.encoder(features)))
        return F.cross_entropy(self.classifier(hidden), tags)


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
