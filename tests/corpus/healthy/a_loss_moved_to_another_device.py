import torch
import torch.nn as nn

TITLE = "loss is computed on .cpu().double() copies and moved back: the report says this cuts the graph, it does not"
SOURCE = "LianpoWang/DFPPNet#25"
ERROR = ""
CAUSE = "healthy"


class Phase(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1)
        self.heads = nn.ModuleList([nn.Conv2d(6, 1, 1) for _ in range(3)])

    def forward(self, x):
        f = torch.relu(self.stem(x))
        return [h(f) for h in self.heads]


def make():
    torch.manual_seed(0)
    model, x, y = Phase(), torch.rand(2, 1, 6, 6), torch.rand(2, 1, 6, 6)
    history = []

    def step():
        restored = model(x)
        losses = torch.stack([(r.cpu().double() - y.double()).pow(2).mean() for r in restored])
        loss = losses.sum().to(x.dtype).to(x.device)
        history.append(loss.detach().item())
        return loss
    return model, step
