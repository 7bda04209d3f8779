import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "GAN: the generator's own step passes a detached fake to the discriminator, so D wins at once"
SOURCE = "nikhilsinghmus/image2reverb#37"
ERROR = ""
CAUSE = "detach"
SHOULD_TRAIN = ["net.g.0.weight", "net.g.2.weight"]


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.ModuleDict({
            "g": nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 10)),
            "d": nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)),
        })

    def judge(self, spec):
        return self.net["d"](spec)

    def training_step(self, z, real, optimizer_idx):
        fake = torch.tanh(self.net["g"](z))
        if optimizer_idx == 0:
            return self.generator_loss(fake)
        score_real, score_fake = self.judge(real), self.judge(fake.detach())
        return F.mse_loss(score_real, torch.ones_like(score_real)) + score_fake.pow(2).mean()

    def generator_loss(self, fake):
        score = self.judge(fake.detach())  # CUT
        return F.mse_loss(score, torch.ones_like(score))


class FixedGan(Gan):
    def generator_loss(self, fake):
        score = self.judge(fake)
        return F.mse_loss(score, torch.ones_like(score))


def _program(cls):
    torch.manual_seed(0)
    gan, z, real = cls(), torch.randn(5, 6), torch.randn(5, 10)
    return gan, lambda: gan.training_step(z, real, optimizer_idx=0)


def make():
    return _program(Gan)


def make_fixed():
    return _program(FixedGan)
