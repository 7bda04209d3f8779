import torch
import torch.nn as nn

TITLE = "GradScaler(enabled=False) and autocast(enabled=False) left in a CPU run: everything passes through"
SOURCE = "karpathy/nanoGPT#106"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = None


def make():
    torch.manual_seed(0)
    model, x, y = nn.Linear(6, 2), torch.randn(5, 6), torch.randint(0, 2, (5,))
    scaler = torch.amp.GradScaler("cuda", enabled=False)

    def step():
        with torch.autocast("cpu", enabled=False):
            loss = nn.functional.cross_entropy(model(x), y)
        return scaler.scale(loss)
    return model, step
