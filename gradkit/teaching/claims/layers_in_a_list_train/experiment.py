import torch
from torch import nn

BELIEVED = {"parameters_in_a_list": 2, "layer_in_a_list_moves": True}


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers, self.head = kind([nn.Linear(3, 3)]), nn.Linear(3, 1)

    def forward(self, batch):
        for layer in self.layers:
            batch = layer(batch)
        return self.head(batch)


def observe():
    net = Net(list)
    before = net.layers[0].weight.detach().clone()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(2, 3)).square().mean().backward()
    optimizer.step()
    return {
        "parameters_in_a_list": len(list(net.parameters())) - len(list(net.head.parameters())),
        "layer_in_a_list_moves": not torch.equal(net.layers[0].weight, before),
        "it_has_a_gradient": net.layers[0].weight.grad is not None,
        "parameters_in_a_ModuleList": len(list(Net(nn.ModuleList).parameters())) - len(list(net.head.parameters())),
    }
