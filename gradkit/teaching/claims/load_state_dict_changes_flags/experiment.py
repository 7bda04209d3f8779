import torch
from torch import nn

BELIEVED = {"frozen_weight_is_thawed": True, "optimizer_has_lost_the_weight": True}


def observe():
    saved = nn.Linear(3, 1).state_dict()
    model = nn.Linear(3, 1)
    model.weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.load_state_dict(saved)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return {
        "frozen_weight_is_thawed": model.weight.requires_grad,
        "optimizer_has_lost_the_weight": id(model.weight) not in held,
        "numbers_are_the_saved_ones": torch.equal(model.weight, saved["weight"]),
    }
