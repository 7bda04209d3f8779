import torch
from torch.distributions import Bernoulli, Normal
from torch.nn.functional import gumbel_softmax

BELIEVED = dict.fromkeys(
    ["Normal_sample", "Normal_rsample", "Bernoulli_sample", "torch_bernoulli", "gumbel_softmax"], False
)


def observe():
    torch.manual_seed(0)
    weight = torch.tensor([0.3, 0.6], requires_grad=True)
    return {
        "Normal_sample": Normal(weight, 1.0).sample().requires_grad,
        "Normal_rsample": Normal(weight, 1.0).rsample().requires_grad,
        "Bernoulli_sample": Bernoulli(weight).sample().requires_grad,
        "torch_bernoulli": torch.bernoulli(weight).requires_grad,
        "gumbel_softmax": gumbel_softmax(weight, hard=True).requires_grad,
    }
