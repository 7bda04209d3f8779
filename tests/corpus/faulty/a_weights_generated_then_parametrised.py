import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "layer weights computed from another parameter are put back with nn.Parameter, which forgets their history"
SOURCE = "discuss.pytorch.org/t/what-is-the-most-convenient-way-to-make-model-weights-dependent-on-some-parameter/47645"
ERROR = ""
CAUSE = "parameter_rewrap"
SHOULD_TRAIN = ["u"]


class Generated(nn.Module):
    def __init__(self, d_in=6, d_out=3):
        super().__init__()
        self.u = nn.Parameter(torch.randn(d_out, d_in))
        self.layer = nn.Linear(d_in, d_out)

    @property
    def weight(self):
        return torch.sin(self.u) / self.u.norm()

    def install(self):
        self.layer.weight = nn.Parameter(self.weight)  # CUT

    def forward(self, x):
        self.install()
        return self.layer(x)


class FixedGenerated(Generated):
    def forward(self, x):
        return F.linear(x, self.weight, self.layer.bias)


def _program(cls):
    torch.manual_seed(0)
    model, x, y = cls(), torch.randn(5, 6), torch.randint(0, 3, (5,))
    return model, lambda: F.cross_entropy(model(x), y)


def make():
    return _program(Generated)


def make_fixed():
    return _program(FixedGenerated)
