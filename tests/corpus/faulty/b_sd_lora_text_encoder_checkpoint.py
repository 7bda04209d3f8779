import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

TITLE = "diffusion LoRA with checkpointing: the U-Net adapter learns, the text encoder's saved weights do not change"
SOURCE = "cloneofsimo/lora#26"
ERROR = ""
CAUSE = "checkpoint_reentrant"
SHOULD_TRAIN = ["text_lora.weight", "unet_lora.weight"]


class Diffuser(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(30, 12).requires_grad_(False)
        self.text, self.unet = nn.Linear(12, 12).requires_grad_(False), nn.Linear(20, 8).requires_grad_(False)
        self.text_lora, self.unet_lora = nn.Linear(12, 12, bias=False), nn.Linear(20, 8, bias=False)

    def text_block(self, h):
        return torch.tanh(self.text(h) + self.text_lora(h))

    def denoise(self, noisy, context):
        both = torch.cat([noisy, context.mean(1)], -1)
        return self.unet(both) + self.unet_lora(both)


class Broken(Diffuser):
    def forward(self, noisy, prompt):
        context = checkpoint(self.text_block, self.tokens(prompt), use_reentrant=True)  # CUT
        return self.denoise(noisy, context)


class Cured(Diffuser):
    def forward(self, noisy, prompt):
        embedded = self.tokens(prompt).requires_grad_(True)
        context = checkpoint(self.text_block, embedded, use_reentrant=True)
        return self.denoise(noisy, context)


def _program(kind):
    torch.manual_seed(0)
    model, noise = kind(), torch.randn(4, 8)
    noisy, prompt = noise + torch.randn(4, 8), torch.randint(0, 30, (4, 5))
    return model, lambda: (model(noisy, prompt) - noise).pow(2).mean()


def make():
    return _program(Broken)


def make_fixed():
    return _program(Cured)
