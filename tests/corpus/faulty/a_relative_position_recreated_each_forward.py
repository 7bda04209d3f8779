import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "relative-position embeddings of an attention layer are drawn again in every forward, as new Parameters"
SOURCE = "leaderj1001/Stand-Alone-Self-Attention#2"
ERROR = ""
CAUSE = "params_replaced"
SHOULD_TRAIN = ["rel_h", "rel_w"]


class LocalAttention(nn.Module):
    def __init__(self, c=6, k=3):
        super().__init__()
        self.c, self.k = c, k
        self.q, self.kv = nn.Conv2d(c, c, 1), nn.Conv2d(c, 2 * c, 1)
        self.rel_h = nn.Parameter(torch.randn(c // 2, k, 1))
        self.rel_w = nn.Parameter(torch.randn(c // 2, 1, k))

    def relative(self):
        rel_h = nn.Parameter(torch.randn(self.c // 2, self.k, 1))  # CUT
        rel_w = nn.Parameter(torch.randn(self.c // 2, 1, self.k))  # CUT
        return torch.cat([rel_h.expand(-1, -1, self.k), rel_w.expand(-1, self.k, -1)])

    def forward(self, x):
        n, c, h, w = x.shape
        k, v = (F.unfold(t, self.k, padding=1).view(n, c, self.k ** 2, h * w) for t in self.kv(x).chunk(2, 1))
        k = k + self.relative().view(1, c, self.k ** 2, 1)
        attn = (self.q(x).view(n, c, 1, h * w) * k).sum(1, keepdim=True).softmax(2)
        return (attn * v).sum(2).view(n, c, h, w)


class FixedAttention(LocalAttention):
    def relative(self):
        return torch.cat([self.rel_h.expand(-1, -1, self.k), self.rel_w.expand(-1, self.k, -1)])


def _program(cls):
    torch.manual_seed(0)
    model, x, y = cls(), torch.randn(2, 6, 5, 5), torch.randn(2, 6, 5, 5)
    return model, lambda: F.mse_loss(model(x), y)


def make():
    return _program(LocalAttention)


def make_fixed():
    return _program(FixedAttention)
