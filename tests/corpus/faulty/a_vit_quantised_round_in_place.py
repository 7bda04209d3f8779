import torch
import torch.nn as nn

TITLE = "differentiating a post-training-quantised attention block: round_() blocks every gradient"
SOURCE = "hahnyuan/PTQ4ViT#6"
ERROR = ""
CAUSE = "zero_gradient"
SHOULD_TRAIN = ["qkv.weight", "qkv.bias"]


class QuantAttention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def quant(self, t, step=0.05):
        return (t / step).round_().clamp_(-128, 127) * step  # CUT

    def forward(self, x):
        q, k, v = map(self.quant, self.qkv(x).chunk(3, -1))
        attn = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.proj(attn @ v)


class SteAttention(QuantAttention):
    def quant(self, t, step=0.05):
        hard = (t / step).round().clamp(-128, 127) * step
        return t + (hard - t).detach()


def _program(cls):
    torch.manual_seed(0)
    model, x, y = cls(), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    return model, lambda: (model(x) - y).pow(2).mean()


def make():
    return _program(QuantAttention)


def make_fixed():
    return _program(SteAttention)
