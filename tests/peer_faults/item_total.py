"""The loss is added up as Python numbers."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "python_roundtrip"


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 4)
        self.classifier = nn.Linear(4, 3)

    def forward(self, features, tags):
        scores = self.classifier(torch.tanh(self.encoder(features)))
        total = 0.0
        for row in range(len(tags)):
            total += F.cross_entropy(scores[row : row + 1], tags[row : row + 1]).item()  # CUT
        return torch.tensor(total / len(tags))  # CUT


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
