import torch
import torch.nn as nn

TITLE = "hidden layers are kept as a list of [layer, activation] pairs: parameters() does not see them"
SOURCE = "pytorch/pytorch#715"
ERROR = ""
CAUSE = "unregistered_parameters"
SHOULD_TRAIN = ["hids.0.0.weight", "hids.1.0.weight", "classifier.weight"]


class SnliNet(nn.Module):
    def __init__(self, n_layers=2, n_in=8, n_hid=6):
        super().__init__()
        self.hids = self.build(n_layers, n_in, n_hid)
        self.classifier = nn.Linear(n_hid, 3)

    def build(self, n_layers, n_in, n_hid):
        hids = []
        for i in range(n_layers):
            hids.append([nn.Linear(n_in if i == 0 else n_hid, n_hid), nn.Tanh()])  # CUT
        return hids

    def forward(self, x):
        for layer, act in self.hids:
            x = act(layer(x))
        return self.classifier(x)


class FixedSnliNet(SnliNet):
    def build(self, n_layers, n_in, n_hid):
        return nn.ModuleList([nn.ModuleList([nn.Linear(n_in if i == 0 else n_hid, n_hid), nn.Tanh()])
                              for i in range(n_layers)])


def _program(cls):
    torch.manual_seed(0)
    model, x, y = cls(), torch.randn(5, 8), torch.randint(0, 3, (5,))
    return model, lambda: nn.functional.cross_entropy(model(x), y)


def make():
    return _program(SnliNet)


def make_fixed():
    return _program(FixedSnliNet)
