import torch
from torch import nn

BELIEVED = dict.fromkeys(["before_the_forward_pass", "after_the_step", "between_backward_and_step"], True)


def trained(place):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        if place == "before_the_forward_pass":
            optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean()
        if place == "before_backward":
            optimizer.zero_grad()
        loss.backward()
        if place == "between_backward_and_step":
            optimizer.zero_grad()
        optimizer.step()
        if place == "after_the_step":
            optimizer.zero_grad()
    return model.weight


def observe():
    right = trained("before_backward")
    return {place: not torch.equal(trained(place), right) for place in BELIEVED}
