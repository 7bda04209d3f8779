import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "adversarial loss is turned into a float for the log and the float is what enters the total"
SOURCE = "guopengf/FL-MRCM#10"
ERROR = ""
CAUSE = "python_roundtrip"
SHOULD_TRAIN = ["align.weight", "align.bias"]


class Recon(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec, self.align = nn.Linear(12, 8), nn.Linear(8, 12), nn.Linear(8, 4)

    def forward(self, x):
        z = torch.tanh(self.enc(x))
        return self.dec(z), self.align(z)


class LocalUpdate:
    def __init__(self, net, critics):
        self.net, self.critics, self.log = net, critics, []

    def adversarial(self, latent):
        total = sum(F.binary_cross_entropy_with_logits(c(latent), torch.ones(latent.shape[0], 1)) for c in self.critics)
        total = total.detach().item()  # CUT
        self.log.append(total)
        return total

    def loss(self, x):
        recon, latent = self.net(x)
        return F.mse_loss(recon, x) + 0.5 * self.adversarial(latent)


class FixedUpdate(LocalUpdate):
    def adversarial(self, latent):
        total = sum(F.binary_cross_entropy_with_logits(c(latent), torch.ones(latent.shape[0], 1)) for c in self.critics)
        self.log.append(total.detach().item())
        return total


def _program(cls):
    torch.manual_seed(0)
    net = Recon()
    update, x = cls(net, [nn.Linear(4, 1) for _ in range(3)]), torch.randn(5, 12)
    return net, lambda: update.loss(x)


def make():
    return _program(LocalUpdate)


def make_fixed():
    return _program(FixedUpdate)
