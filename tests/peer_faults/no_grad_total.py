"""All that could learn runs inside no_grad."""

import torch
from torch import nn
from torch.nn import functional as F

CAUSE = "no_grad_block"


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(7, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, features):
        with torch.no_grad():  # CUT
            hidden = torch.tanh(self.mix(features))
            return self.out(hidden)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.scorer = Scorer()

    def forward(self, features, tags):
        return F.cross_entropy(self.scorer(features), tags)


def build():
    return Tagger(), (torch.randn(6, 7), torch.randint(3, (6,)))
