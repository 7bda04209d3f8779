"""The encoder is frozen although it should learn."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "frozen_all"
SHOULD_TRAIN = ["*"]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 4)
        self.classifier = nn.Linear(4, 3)
        self.encoder.requires_grad_(False)  # CUT

    def forward(self, features, tags):
        return F.cross_entropy(self.classifier(torch.tanh(self.encoder(features))), tags)


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
