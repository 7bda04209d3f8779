import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

TITLE = "frozen embedding in front of checkpointed LoRA blocks, use_reentrant=False: no input needs a gradient"
SOURCE = "huggingface/peft#1142"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = None


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.lora = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return torch.tanh(self.base(x) + self.lora(x))


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 8).requires_grad_(False)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 20).requires_grad_(False)

    def forward(self, ids):
        h = self.emb(ids)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False)
        return self.head(h)


def make():
    torch.manual_seed(0)
    model, ids = Lm(), torch.randint(0, 20, (2, 5))
    return model, lambda: nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
