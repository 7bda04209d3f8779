import torch
import torch.nn as nn

TITLE = "np.sum over a list of losses failed, so each list became torch.tensor(list, requires_grad=True): PSNR never moves"
SOURCE = "MC-E/Deep-Generalized-Unfolding-Networks-for-Image-Restoration#6"
ERROR = ""
CAUSE = "new_leaf"


class Restorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Conv2d(3, 3, 3, padding=1) for _ in range(3)])
        self.to_edge = nn.Conv2d(3, 1, 1)

    def forward(self, x):
        outs = []
        for stage in self.stages:
            x = x + stage(x)
            outs.append(x)
        return outs[::-1], [self.to_edge(o.detach()) for o in outs]


def charbonnier(a, b):
    return ((a - b).pow(2) + 1e-6).sqrt().mean()


def edge_target(t):
    gray = t.mean(1, keepdim=True)
    return (gray[..., 1:, :] - gray[..., :-1, :]).abs()


def total_loss(restored, edge_maps, target):
    char = torch.tensor([charbonnier(r, target) for r in restored], requires_grad=True).sum()  # CUT
    edges = torch.tensor([charbonnier(e[..., 1:, :], edge_target(target)) for e in edge_maps], requires_grad=True).sum()  # CUT
    return char + 0.05 * edges


def total_loss_fixed(restored, edge_maps, target):
    char = sum(charbonnier(r, target) for r in restored)
    return char + 0.05 * sum(charbonnier(e[..., 1:, :], edge_target(target)) for e in edge_maps)


def _program(loss):
    torch.manual_seed(0)
    model, x, target = Restorer(), torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
    return model, lambda: loss(*model(x), target)


def make():
    return _program(total_loss)


def make_fixed():
    return _program(total_loss_fixed)
