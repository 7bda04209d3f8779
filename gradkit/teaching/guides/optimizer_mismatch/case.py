"""Tremors: a net that knows three kinds of earthquake is given a fourth; its optimizer was built one line too early."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Tremors(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear, self.kind = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, waves):
        return self.kind(torch.tanh(self.ear(waves)))


def build():
    # [wrong]
    model = Tremors()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # CUT
    model.kind = nn.Linear(8, 4)
    # [end]
    return model, optimizer


def build_fixed():
    # [fixed]
    model = Tremors()
    model.kind = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # [end]
    return model, optimizer


def build_joined():
    model, optimizer = build()
    # [join]
    optimizer.add_param_group({"params": model.kind.parameters()})
    # [end]
    return model, optimizer


class Stations(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Tremors()
        self.online.kind = nn.Linear(8, 4)
        self.target = copy.deepcopy(self.online)

    def forward(self, waves):
        return self.target(waves)


class FixedStations(Stations):
    def forward(self, waves):
        return self.online(waves)


def build_asked_copy(kind=Stations):
    model = kind()
    return model, torch.optim.SGD(model.online.parameters(), lr=0.1)


def build_held_copies():
    model, _ = build_fixed()
    copies = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    return model, torch.optim.SGD(copies, lr=0.1)


def build_used_up():
    model, _ = build_fixed()
    parameters = (parameter for parameter in model.parameters() if parameter.requires_grad)
    counted = sum(parameter.numel() for parameter in parameters)
    return model, torch.optim.SGD([{"params": parameters}], lr=0.1 if counted else 0.0)


def program(build):
    torch.manual_seed(0)
    model, optimizer = build()
    waves, kinds = torch.randn(10, 12), torch.randint(0, 4, (10,))

    def step():
        return F.cross_entropy(model(waves), kinds)

    step.optimizer = optimizer
    return model, step


def make():
    return program(build)


FAILS = "unmoved"


def make_fixed():
    return program(build_fixed)


def make_asked_copy():
    return program(build_asked_copy)


def make_held_copies():
    return program(build_held_copies)


def make_used_up():
    return program(build_used_up)


# [see]
def strangers(model, optimizer):
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held]
# [end]


# [verify]
def moved(model, step):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    step.optimizer.zero_grad()
    step().backward()
    step.optimizer.step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


EAR, KIND = ["ear.weight", "ear.bias"], ["kind.weight", "kind.bias"]


def experiment_the_gradient_arrives_and_the_weights_stay():
    model, step = make()
    first = step().item()
    for _ in range(20):
        assert moved(model, step) == EAR
        assert model.kind.weight.grad.abs().sum() > 0
    assert step().item() < first


def experiment_zero_grad_passes_the_stranger_over():
    model, step = make()
    step().backward()
    first = model.kind.weight.grad.clone()
    step.optimizer.zero_grad()
    assert model.ear.weight.grad is None
    step().backward()
    assert torch.allclose(model.kind.weight.grad, 2 * first)


def experiment_with_a_scaler_the_optimizer_of_another_model_raises():
    model, step = make_fixed()
    other = torch.optim.SGD(Tremors().parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(step()).backward()
    try:
        scaler.step(other)
    except AssertionError as error:
        assert "No inf checks were recorded for this optimizer" in str(error)
    else:
        raise AssertionError("the scaler stepped")


def experiment_the_optimizer_still_holds_the_old_layer():
    model, step = make()
    mine = {id(p) for p in model.parameters()}
    lost = [p for group in step.optimizer.param_groups for p in group["params"] if id(p) not in mine]
    assert [tuple(p.shape) for p in lost] == [(3, 8), (3,)]


def experiment_a_copy_and_a_filter_make_strangers():
    model, step = make_fixed()
    assert strangers(copy.deepcopy(model), step.optimizer) == EAR + KIND
    kept = [parameter for name, parameter in model.named_parameters() if "weight" in name]
    assert strangers(model, torch.optim.SGD(kept, lr=0.1)) == ["ear.bias", "kind.bias"]


def experiment_the_strangers_are_listed():
    model, step = make()
    assert strangers(model, step.optimizer) == KIND


def experiment_a_group_that_is_added_trains_too():
    assert moved(*program(build_joined)) == EAR + KIND


def experiment_the_cure_moves_every_weight():
    model, step = make_fixed()
    assert strangers(model, step.optimizer) == []
    assert moved(model, step) == EAR + KIND


def experiment_no_learning_rate_reaches_a_stranger():
    model, step = make()
    step.optimizer.param_groups[0]["lr"] = 100.0
    assert moved(model, step) == EAR


def experiment_loading_and_casting_keep_the_parameters():
    model, step = make_fixed()
    model.load_state_dict(Tremors().state_dict() | copy.deepcopy(model.kind.state_dict(prefix="kind.")))
    assert strangers(model.double(), step.optimizer) == []


def experiment_loading_with_assign_replaces_them():
    model, step = make_fixed()
    model.load_state_dict(model.state_dict(), assign=True)
    assert strangers(model, step.optimizer) == EAR + KIND


def experiment_a_loss_by_the_copy_moves_nothing():
    model, step = make_asked_copy()
    assert moved(model, step) == []
    assert model.target.ear.weight.grad is not None and model.online.ear.weight.grad is None
    assert moved(*program(lambda: build_asked_copy(FixedStations))) == [f"online.{name}" for name in EAR + KIND]


def experiment_an_optimizer_of_copies_moves_nothing():
    model, step = make_held_copies()
    assert strangers(model, step.optimizer) == EAR + KIND
    assert moved(model, step) == []


def experiment_a_generator_that_was_gone_through_leaves_an_empty_group():
    model, step = make_used_up()
    assert step.optimizer.param_groups[0]["params"] == []
    assert moved(model, step) == []


def experiment_adam_refuses_sparse_gradients_and_sparse_adam_dense_ones():
    def steps(optimizer, sparse):
        table = nn.EmbeddingBag(20, 4, sparse=sparse)
        table(torch.zeros(2, 3, dtype=torch.long)).sum().backward()
        try:
            optimizer(table.parameters()).step()
        except RuntimeError as error:
            return str(error)
        return ""

    assert "does not support sparse gradients" in steps(torch.optim.Adam, sparse=True)
    assert "does not support dense gradients" in steps(torch.optim.SparseAdam, sparse=False)
    assert steps(torch.optim.Adam, sparse=False) == steps(torch.optim.SparseAdam, sparse=True) == ""
