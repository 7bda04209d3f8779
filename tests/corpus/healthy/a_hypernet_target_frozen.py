import torch
import torch.nn as nn
from torch.func import functional_call

TITLE = "hyper-network: the target network's own parameters are frozen, generated weights carry the gradient"
SOURCE = "SSL92/hyperIQA#16"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["content.weight", "make_w.weight", "make_b.weight"]


class HyperIqa(nn.Module):
    def __init__(self, d=5):
        super().__init__()
        self.content, self.make_w, self.make_b = nn.Linear(8, d), nn.Linear(d, 3 * 4), nn.Linear(d, 3)
        self.target = nn.Linear(4, 3)
        for param in self.target.parameters():
            param.requires_grad = False

    def forward(self, image, local):
        code = torch.tanh(self.content(image))
        weights = {"weight": self.make_w(code).view(3, 4), "bias": self.make_b(code)}
        return functional_call(self.target, weights, (local,)).mean()


def make():
    torch.manual_seed(0)
    model, image, local = HyperIqa(), torch.randn(8), torch.randn(6, 4)
    return model, lambda: (model(image, local) - 0.7).abs()
