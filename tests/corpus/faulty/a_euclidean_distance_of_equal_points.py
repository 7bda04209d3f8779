import torch
import torch.nn as nn

TITLE = "pairwise euclidean distances inside a batch: sqrt of the zero diagonal gives nan gradients"
SOURCE = "tilman151/rul-adapt#22 (pull request)"
ERROR = ""
CAUSE = "nan_gradient"


def pairwise_euclidean(x, y):
    return (x[:, None] - y[None]).pow(2).sum(-1).sqrt()  # CUT


def pairwise_euclidean_fixed(x, y):
    return ((x[:, None] - y[None]).pow(2).sum(-1) + 1e-8).sqrt()


def consistency(source, target, dist):
    within = dist(source, source).mean() + dist(target, target).mean()
    return 2 * dist(source, target).mean() - within


class Extractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))

    def forward(self, x):
        return self.layers(x)


def _program(dist):
    torch.manual_seed(0)
    net, s, t = Extractor(), torch.randn(5, 2, 10), torch.randn(5, 2, 10)
    return net, lambda: consistency(net(s), net(t), dist)


def make():
    return _program(pairwise_euclidean)


def make_fixed():
    return _program(pairwise_euclidean_fixed)
