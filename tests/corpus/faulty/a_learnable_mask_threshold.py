import torch
import torch.nn as nn

TITLE = "a learnable cut-off used in a boolean mask stays at its start value"
SOURCE = "discuss.pytorch.org/t/optimize-masking-parameter/204381"
ERROR = ""
CAUSE = "non_differentiable_op"
SHOULD_TRAIN = ["threshold"]


class MaskedNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 3)
        self.threshold = nn.Parameter(torch.tensor(1.0))

    def select(self, size):
        return (size < self.threshold).float()  # CUT

    def forward(self, x):
        size = self.embed(x).norm(dim=1)
        keep = self.select(size)
        return (keep * size).sum() / (keep.sum() + 1e-6)


class SoftMaskedNorm(MaskedNorm):
    def select(self, size):
        return torch.sigmoid(10.0 * (self.threshold - size))


def _program(cls):
    torch.manual_seed(0)
    model, x = cls(), torch.randn(12, 4)
    return model, lambda: model(x)


def make():
    return _program(MaskedNorm)


def make_fixed():
    return _program(SoftMaskedNorm)
