import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "a learned time-step weighting is created in __init__ and never used in forward"
SOURCE = "ziyu-zui/heart-arrhythmia-diagnosis-with-deep-learning#4"
ERROR = ""
CAUSE = "trainable_unused"
SHOULD_TRAIN = ["weight"]


class BeatCnn(nn.Module):
    def __init__(self, steps=12):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3, padding=1)
        self.out = nn.Linear(4 * steps, 5)
        self.weight = nn.Parameter(torch.zeros(steps))  # CUT

    def features(self, x):
        return F.relu(self.conv(x))

    def forward(self, x):
        return self.out(self.features(x).flatten(1))


class FixedBeatCnn(BeatCnn):
    def forward(self, x):
        return self.out((self.features(x) * self.weight.softmax(0)).flatten(1))


def _program(cls):
    torch.manual_seed(0)
    model, x, y = cls(), torch.randn(6, 1, 12), torch.randint(0, 5, (6,))
    return model, lambda: F.cross_entropy(model(x), y)


def make():
    return _program(BeatCnn)


def make_fixed():
    return _program(FixedBeatCnn)
