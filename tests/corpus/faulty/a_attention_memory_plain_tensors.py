import torch
import torch.nn as nn

TITLE = "image-to-text attention: M and the score vector are plain tensors, in no parameter list and without grad"
SOURCE = "James-Yip/AttentionImageClass#7"
ERROR = ""
CAUSE = "unregistered_parameters"
SHOULD_TRAIN = ["m", "scores"]


class AttendRegions(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.embed = nn.Linear(d, d)
        self.declare(d)

    def declare(self, d):
        self.m = torch.randn(d, d) * 0.1  # CUT
        self.scores = torch.randn(d)  # CUT

    def forward(self, regions, word):
        h = torch.tanh(self.embed(regions) + (word @ self.m)[:, None])
        weight = (h @ self.scores).softmax(1)
        return (weight[..., None] * regions).sum(1)


class FixedAttendRegions(AttendRegions):
    def declare(self, d):
        self.m = nn.Parameter(torch.randn(d, d) * 0.1)
        self.scores = nn.Parameter(torch.randn(d))


def _program(cls):
    torch.manual_seed(0)
    model, regions, word = cls(), torch.randn(3, 4, 6), torch.randn(3, 6)
    return model, lambda: (model(regions, word) - word).pow(2).mean()


def make():
    return _program(AttendRegions)


def make_fixed():
    return _program(FixedAttendRegions)
