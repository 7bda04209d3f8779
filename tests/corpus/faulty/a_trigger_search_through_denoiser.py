import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "delta.grad is None: the perturbation goes through a diffusion denoiser that runs in no_grad"
SOURCE = "locuslab/smoothinv#1"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "no_grad_block"


class Denoiser:
    def __init__(self, net, sigma):
        self.net, self.sigma = net, sigma

    def one_shot(self, noisy, t):
        return noisy - t * self.net(noisy)

    def __call__(self, x):
        noisy = x + self.sigma * torch.randn_like(x)
        with torch.no_grad():  # CUT
            return self.one_shot(noisy, self.sigma)


class FixedDenoiser(Denoiser):
    def __call__(self, x):
        with torch.enable_grad():
            return self.one_shot(x + self.sigma * torch.randn_like(x), self.sigma)


class Synthesis(nn.Module):
    def __init__(self, denoiser, classifier):
        super().__init__()
        self.delta = nn.Parameter(torch.zeros(1, 3, 6, 6))
        object.__setattr__(self, "pipeline", lambda x: classifier(denoiser(x).flatten(1)))

    def forward(self, images, target):
        return F.cross_entropy(self.pipeline(images + self.delta), target)


def _program(denoiser_class):
    torch.manual_seed(0)
    denoiser = denoiser_class(nn.Conv2d(3, 3, 3, padding=1).requires_grad_(False), 0.25)
    model = Synthesis(denoiser, nn.Linear(108, 4).requires_grad_(False))
    images, target = torch.rand(3, 3, 6, 6), torch.full((3,), 2)
    return model, lambda: model(images, target)


def make():
    return _program(Denoiser)


def make_fixed():
    return _program(FixedDenoiser)
