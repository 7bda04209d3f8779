import torch
from torch import nn

BELIEVED = {"two_losses_on_one_graph": True, "state_carried_over_steps": True}


def runs(program):
    try:
        program()
    except RuntimeError:
        return False
    return True


def two_losses():
    features = nn.Linear(3, 3)(torch.ones(2, 3)).tanh()
    features.sum().backward(retain_graph=True)
    features.square().sum().backward()


def carried_state(cut=False):
    cell, state = nn.RNNCell(3, 3), torch.zeros(2, 3)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    for _ in range(3):
        state = cell(torch.ones(2, 3), state.detach() if cut else state)
        state.sum().backward(retain_graph=not cut)
        optimizer.step()


def observe():
    return {
        "two_losses_on_one_graph": runs(two_losses),
        "state_carried_over_steps": runs(carried_state),
        "state_detached_between_steps": runs(lambda: carried_state(cut=True)),
    }
