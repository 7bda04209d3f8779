import torch
import torch.nn as nn

TITLE = "BiFPN fusion weights have changing .grad but constant value: the YOLO-style groups keep only conv/bn/bias"
SOURCE = "bubbliiiing/efficientdet-pytorch#37"
ERROR = ""
CAUSE = "optimizer_mismatch"


class BiFpnNode(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
        self.conv, self.bn = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)

    def forward(self, a, b):
        w = torch.relu(self.w)
        w = w / (w.sum() + 1e-4)
        return self.bn(self.conv(w[0] * a + w[1] * b))


class Neck(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes = nn.ModuleList([BiFpnNode(3) for _ in range(2)])

    def forward(self, p3, p4):
        for node in self.nodes:
            p3 = node(p3, p4)
        return p3


def yolo_groups(model, with_plain):
    decay, bn, bias, plain = [], [], [], []
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            bn.append(m.weight); bias.append(m.bias)
        elif isinstance(m, nn.Conv2d):
            decay.append(m.weight); bias.append(m.bias)
        elif isinstance(m, BiFpnNode):
            plain.append(m.w)
    return [{"params": g} for g in ((decay, bn, bias, plain) if with_plain else (decay, bn, bias))]


def _build(make_optimizer):
    torch.manual_seed(0)
    neck, p3, p4 = Neck(), torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)

    def step():
        return (neck(p3, p4) - 1).pow(2).mean()
    step.optimizer = make_optimizer(neck)
    return neck, step


def make():
    return _build(lambda net: torch.optim.SGD(yolo_groups(net, False), lr=0.01))  # CUT


def make_fixed():
    return _build(lambda net: torch.optim.SGD(yolo_groups(net, True), lr=0.01))
