"""The loss of the second head is added as a Python number."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "python_roundtrip"


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 4)
        self.classifier = nn.Linear(4, 3)
        self.length = nn.Linear(4, 1)

    def forward(self, features, tags):
        hidden = torch.tanh(self.encoder(features))
        extra = self.length(hidden).square().mean().item()  # CUT
        return F.cross_entropy(self.classifier(hidden), tags) + 0.1 * extra


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
