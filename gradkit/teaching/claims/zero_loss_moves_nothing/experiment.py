import torch
from torch import nn

OPTIMIZERS = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1),
    "SGD_with_momentum": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "SGD_with_weight_decay": lambda weights: torch.optim.SGD(weights, lr=0.1, weight_decay=0.01),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.1),
}
BELIEVED = dict.fromkeys(OPTIMIZERS, True)


def moved_by_a_zero_step(build, skip=False):
    torch.manual_seed(0)
    model, batch = nn.Linear(3, 1), torch.randn(8, 3)
    optimizer = build(model.parameters())
    for zero in (False, False, False, True):
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        (model(batch).square().mean() * (0.0 if zero else 1.0)).backward()
        if not (zero and skip):
            optimizer.step()
    return float((model.weight - before).abs().max())


def observe():
    seen = {name: moved_by_a_zero_step(build) == 0 for name, build in OPTIMIZERS.items()}
    seen["Adam_moved_by"] = float(f"{moved_by_a_zero_step(OPTIMIZERS['Adam']):.1e}")
    seen["Adam_with_the_step_skipped"] = moved_by_a_zero_step(OPTIMIZERS["Adam"], skip=True)
    return seen
