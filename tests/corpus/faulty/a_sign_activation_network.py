import torch
import torch.nn as nn

TITLE = "network with a sign() step: gradients exist, all are exactly zero, the loss never decreases"
SOURCE = "PyTorch forum 2019-04-04, 'Circumventing an indifferentiability problem' (stored in Nemotron-CC-Math pages)"
ERROR = ""
CAUSE = "zero_gradient"
SHOULD_TRAIN = ["fc1.weight", "fc1.bias"]


class StepNet(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.fc1, self.fc2, self.act = nn.Linear(2, 6), nn.Linear(6, 1), act

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def binarise(t):
    return torch.sign(t)  # CUT


class SignSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return torch.sign(t)

    @staticmethod
    def backward(ctx, grad):
        t, = ctx.saved_tensors
        return grad * (t.abs() < 1.5)


def _program(act):
    torch.manual_seed(0)
    model, x, y = StepNet(act), torch.randn(16, 2), torch.randn(16, 1)
    return model, lambda: (model(x) - y).pow(2).mean()


def make():
    return _program(binarise)


def make_fixed():
    return _program(SignSTE.apply)
