import torch
from torch import nn

BELIEVED = {"frozen_layer_moves_without_filter": True, "result_differs_without_filter": True}


def trained(filtered):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 1))
    before = model[0].weight.clone()
    wanted = [p for p in model.parameters() if p.requires_grad] if filtered else model.parameters()
    optimizer = torch.optim.AdamW(wanted, lr=0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()
    return not torch.equal(model[0].weight, before), model[1].weight


def observe():
    moved, weight = trained(filtered=False)
    return {
        "frozen_layer_moves_without_filter": moved,
        "result_differs_without_filter": not torch.equal(weight, trained(filtered=True)[1]),
    }
