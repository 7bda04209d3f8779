from torch import nn

BELIEVED = {"weight_is_frozen": True, "weight_is_unfrozen": True}


def observe():
    layer = nn.Linear(3, 1)
    layer.requires_grad = False
    seen = {"weight_is_frozen": not layer.weight.requires_grad}
    layer = nn.Linear(3, 1).requires_grad_(False)
    layer.requires_grad = True
    seen["weight_is_unfrozen"] = layer.weight.requires_grad
    seen["weight_is_unfrozen_by_the_method"] = layer.requires_grad_(True).weight.requires_grad
    return seen
