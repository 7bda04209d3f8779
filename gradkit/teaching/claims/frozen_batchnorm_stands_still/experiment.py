import torch
from torch import nn

BELIEVED = {
    "weight_stands_still": True,
    "running_mean_stands_still_in_train": True,
    "running_mean_stands_still_in_eval": True,
}


def observe():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(3).requires_grad_(False)
    weight, mean = norm.weight.clone(), norm.running_mean.clone()
    norm.eval()(torch.randn(8, 3) + 5)
    seen = {"running_mean_stands_still_in_eval": torch.equal(norm.running_mean, mean)}
    norm.train()(torch.randn(8, 3) + 5)
    seen["running_mean_stands_still_in_train"] = torch.equal(norm.running_mean, mean)
    seen["weight_stands_still"] = torch.equal(norm.weight, weight)
    return seen
