"""The encoder runs inside no_grad; the classifier behind it still learns."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "no_grad_block"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(7, 4)

    def forward(self, features):
        with torch.no_grad():  # CUT
            mixed = self.mix(features)
            hidden = torch.tanh(mixed)
        return hidden


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.classifier = nn.Linear(4, 3)

    def forward(self, features, tags):
        return F.cross_entropy(self.classifier(self.encoder(features)), tags)


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
