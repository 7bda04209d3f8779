import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "VQ-VAE: argmin codes, in-place EMA codebook under no_grad, commitment with detach, straight-through output"
SOURCE = "rosinality/vq-vae-2-pytorch (the program of #60); kornia/kornia#1666 for the estimator"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["enc.weight", "dec.weight"]


class Quantize(nn.Module):
    def __init__(self, n=5, d=4):
        super().__init__()
        self.register_buffer("embed", torch.randn(n, d))

    @torch.no_grad()
    def ema(self, flat, index, decay=0.9):
        for k in index.unique().tolist():
            self.embed[k].mul_(decay).add_((1 - decay) * flat[index == k].mean(0))

    def forward(self, z):
        index = torch.cdist(z.detach(), self.embed).argmin(1)
        q = self.embed[index].clone()
        if self.training:
            self.ema(z, index)
        commit = (q.detach() - z).pow(2).mean()
        return z + (q - z).detach(), commit


class VqVae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.quant, self.dec = nn.Linear(7, 4), Quantize(), nn.Linear(4, 7)

    def forward(self, x):
        q, commit = self.quant(self.enc(x))
        return F.mse_loss(self.dec(q), x) + 0.25 * commit


def make():
    torch.manual_seed(0)
    model, x = VqVae(), torch.randn(10, 7)
    return model, lambda: model(x)
