import torch
import torch.nn as nn

TITLE = "outputs are written into torch.zeros buffers with copy_ and slices under grad mode: autograd follows them"
SOURCE = "LaurentMazare/tch-rs#865"
ERROR = ""
CAUSE = "healthy"


class PackedHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.box, self.cls = nn.Linear(5, 4), nn.Linear(5, 3)

    def forward(self, x, pad_to=8):
        out = torch.zeros(pad_to, 7)
        out[: len(x), :4] = self.box(x)
        out[: len(x), 4:].copy_(self.cls(x))
        padding = torch.zeros(2, 7, requires_grad=False)
        return torch.cat([out, padding])


def make():
    torch.manual_seed(0)
    model, x, y = PackedHeads(), torch.randn(6, 5), torch.randn(10, 7)
    return model, lambda: (model(x) - y).pow(2).mean()
