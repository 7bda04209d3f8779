import torch
import torch.nn as nn

TITLE = "a no_grad forward earlier in the same autocast region (torch 2.13 keeps the history of cached casts)"
SOURCE = "pytorch/pytorch#112583 and #165068"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = None


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    x, y = torch.randn(5, 6), torch.randint(0, 2, (5,))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                hard = model(x).argmax(-1)
            out = model(x)
        return nn.functional.cross_entropy(out.float(), torch.where(hard == y, y, y))
    return model, step
