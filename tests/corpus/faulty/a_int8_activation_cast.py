import torch
import torch.nn as nn

TITLE = "activations cast to int8 'to speed training up': an integer tensor cannot carry a gradient"
SOURCE = "pytorch/pytorch#31880"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "integer_cast"


def to_int8(t):
    scale = t.detach().abs().max() / 127
    return (t / scale).round().char(), scale  # CUT


def fake_int8(t):
    scale = t.detach().abs().max() / 127
    q = (t / scale).round()
    return t / scale + (q - t / scale).detach(), scale


class QuantBlock(nn.Module):
    def __init__(self, quantise):
        super().__init__()
        self.conv, self.quantise = nn.Conv1d(2, 4, 3), quantise

    def forward(self, x):
        q, scale = self.quantise(self.conv(x))
        return q.float() * scale


class Net(nn.Module):
    def __init__(self, quantise):
        super().__init__()
        self.blocks = nn.Sequential(QuantBlock(quantise), nn.Flatten())

    def forward(self, x):
        return self.blocks(x).pow(2).mean()


def _program(quantise):
    torch.manual_seed(0)
    model, x = Net(quantise), torch.randn(3, 2, 10)
    return model, lambda: model(x)


def make():
    return _program(to_int8)


def make_fixed():
    return _program(fake_int8)
