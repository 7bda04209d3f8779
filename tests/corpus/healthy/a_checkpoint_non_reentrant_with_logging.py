import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

TITLE = "blocks under checkpoint(use_reentrant=False), input without grad, running loss kept through .data.item()"
SOURCE = "mlfoundations/open_clip#573 (the cure); DeepRank/deeprank#210 (the logging)"
ERROR = ""
CAUSE = "healthy"


class Tower(nn.Module):
    def __init__(self, d=6, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU()) for _ in range(depth)])
        self.out, self.running = nn.Linear(d, 2), 0.0

    def forward(self, x, y):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        loss = nn.functional.cross_entropy(self.out(x), y)
        self.running += loss.data.item()
        return loss


def make():
    torch.manual_seed(0)
    model, x, y = Tower(), torch.randn(8, 6), torch.randint(0, 2, (8,))
    return model, lambda: model(x, y)
