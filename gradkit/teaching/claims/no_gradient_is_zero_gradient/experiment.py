import torch

OPTIMIZERS = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1),
    "SGD_with_weight_decay": lambda weights: torch.optim.SGD(weights, lr=0.1, weight_decay=0.1),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.1),
}
BELIEVED = dict.fromkeys(OPTIMIZERS, True)


def stepped(build, gradient):
    weight = torch.ones(3, requires_grad=True)
    optimizer = build([weight])
    weight.grad = gradient
    optimizer.step()
    return weight


def observe():
    return {
        name: torch.equal(stepped(build, None), stepped(build, torch.zeros(3)))
        for name, build in OPTIMIZERS.items()
    }
