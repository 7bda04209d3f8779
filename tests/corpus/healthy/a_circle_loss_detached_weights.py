import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "circle loss: the self-paced weights are detached on purpose, the similarities are not"
SOURCE = "TinyZeaMays/CircleLoss#31"
ERROR = ""
CAUSE = "healthy"


def similarities(feature, label):
    sim, same = feature @ feature.t(), label[:, None] == label[None]
    upper = torch.ones_like(same).triu(1)
    return sim[same & upper], sim[~same & upper]


def circle_loss(sp, sn, m=0.25, gamma=8.0):
    ap = torch.clamp_min(-sp.detach() + 1 + m, 0.0)
    an = torch.clamp_min(sn.detach() + m, 0.0)
    return F.softplus(torch.logsumexp(gamma * an * (sn - m), 0) + torch.logsumexp(-gamma * ap * (sp - 1 + m), 0))


def make():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 4))
    x, y = torch.randn(8, 7), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    return net, lambda: circle_loss(*similarities(F.normalize(net(x), dim=1), y))
