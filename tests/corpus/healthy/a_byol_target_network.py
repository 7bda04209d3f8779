import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "BYOL: deep-copied target under no_grad with an in-place EMA update before the forward"
SOURCE = "lucidrains/ema-pytorch#25 (EMA copy under no_grad); MrChenFeng/Adaptive-Soft-Contrastive-Learning_ICPR2022#2 (BYOL loss)"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["online.0.weight", "predict.weight"]


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        self.predict = nn.Linear(4, 4)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    @torch.no_grad()
    def momentum(self, m=0.99):
        for q, k in zip(self.online.parameters(), self.target.parameters()):
            k.mul_(m).add_(q, alpha=1 - m)

    def side(self, a, b):
        p = F.normalize(self.predict(self.online(a)), dim=1)
        with torch.no_grad():
            z = F.normalize(self.target(b), dim=1)
        return 2 - 2 * (p * z.detach()).sum(1)

    def forward(self, a, b):
        self.momentum()
        return (self.side(a, b) + self.side(b, a)).mean()


def make():
    torch.manual_seed(0)
    model, x = Byol(), torch.randn(6, 8)
    return model, lambda: model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
