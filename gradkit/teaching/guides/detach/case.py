"""Sea ice: an autoencoder squeezes satellite pictures; the code was detached for the log, and then used."""

import torch
from torch import nn


class IceMap(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(36, 6), nn.Linear(6, 36)

    # [wrong]
    def forward(self, pictures):
        code = torch.tanh(self.encoder(pictures)).detach()  # CUT
        self.logged = code.mean(dim=0)
        return self.decoder(code)
    # [end]


class FixedIceMap(IceMap):
    # [fixed]
    def forward(self, pictures):
        code = torch.tanh(self.encoder(pictures))
        self.logged = code.detach().mean(dim=0)
        return self.decoder(code)
    # [end]


def program(kind):
    torch.manual_seed(0)
    model, pictures = kind(), torch.rand(10, 36)
    return model, lambda: (model(pictures) - pictures).pow(2).mean()


def make():
    return program(IceMap)


FAILS = "partial"


def make_fixed():
    return program(FixedIceMap)


# [see]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


# [verify]
def moved(model, step):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    step().backward()
    optimizer.step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


def experiment_the_loss_falls_but_the_encoder_never_moves():
    model, step = make()
    encoder, first = model.encoder.weight.clone(), step().item()
    for _ in range(20):
        moved(model, step)
    assert step().item() < first and torch.equal(model.encoder.weight, encoder)


def experiment_with_nothing_trainable_behind_it_backward_raises():
    model, step = make()
    model.decoder.requires_grad_(False)
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_same_numbers_without_a_past():
    model, _ = make()
    code = model.encoder(torch.rand(2, 36))
    assert torch.equal(code, code.detach())
    assert code.grad_fn is not None and code.detach().grad_fn is None


def experiment_the_encoder_is_starved():
    assert starved(*make()) == ["encoder.weight", "encoder.bias"]


def experiment_the_cure_moves_every_weight_and_logs_a_tensor_without_a_graph():
    model, step = make_fixed()
    assert moved(model, step) == [name for name, _ in model.named_parameters()]
    assert model.logged.grad_fn is None


def experiment_requires_grad_after_detach_makes_a_new_leaf():
    model, _ = make()
    code = model.encoder(torch.rand(2, 36)).detach().requires_grad_(True)
    model.decoder(code).sum().backward()
    assert code.grad is not None and model.encoder.weight.grad is None


def experiment_clone_alone_keeps_the_graph():
    model, _ = make()
    assert model.encoder(torch.rand(2, 36)).clone().grad_fn is not None


def experiment_detached_targets_are_right():
    model, _ = make_fixed()
    pictures = torch.rand(2, 36)
    (model(pictures) - model(pictures + 0.1).detach()).pow(2).mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def experiment_a_discriminator_a_window_and_straight_through_detach_and_all_learn():
    torch.manual_seed(0)
    drawer, judge, cell, gate = nn.Linear(4, 6), nn.Linear(6, 1), nn.GRUCell(6, 6), nn.Linear(6, 1)
    fake = drawer(torch.randn(8, 4))
    judge(fake.detach()).square().mean().backward()
    assert judge.weight.grad.any() and drawer.weight.grad is None
    (judge(fake) - 1).square().mean().backward()
    assert drawer.weight.grad.any()
    memory = torch.zeros(8, 6)
    for window in torch.randn(3, 8, 6):
        memory = cell(window, memory.detach())
        memory.square().mean().backward()
    soft = torch.sigmoid(gate(torch.randn(8, 6)))
    (soft + (soft.round() - soft).detach()).sum().backward()
    assert all(p.grad.any() for part in (cell, gate) for p in part.parameters())
