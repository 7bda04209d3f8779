"""A bakery: how far a dough rises is learned from its recipe; the first layer is made where its width is known."""

import torch
from torch import nn


class Bakery(nn.Module):
    # [wrong]
    def __init__(self):
        super().__init__()
        self.oven = nn.Linear(8, 1)

    def forward(self, recipes):
        mix = nn.Linear(recipes.shape[1], 8)  # CUT
        return self.oven(torch.relu(mix(recipes)))
    # [end]


class FixedBakery(nn.Module):
    # [fixed]
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(5, 8)
        self.oven = nn.Linear(8, 1)

    def forward(self, recipes):
        return self.oven(torch.relu(self.mix(recipes)))
    # [end]


class LazyBakery(FixedBakery):
    def __init__(self):
        super().__init__()
        # [lazy]
        self.mix = nn.LazyLinear(8)
        # [end]


class SeededBakery(Bakery):
    def forward(self, recipes):
        torch.manual_seed(7)
        return super().forward(recipes)


class LateBakery(Bakery):
    def forward(self, recipes):
        if not hasattr(self, "mix"):
            self.mix = nn.Linear(recipes.shape[1], 8)
        return self.oven(torch.relu(self.mix(recipes)))


class PlainBakery(FixedBakery):
    def forward(self, recipes):
        return self.oven(nn.ReLU()(self.mix(recipes)))


class DroppingBakery(FixedBakery):
    def forward(self, recipes):
        return self.oven(nn.Dropout(0.5)(torch.relu(self.mix(recipes))))


def program(kind):
    torch.manual_seed(0)
    model, recipes, rise = kind(), torch.randn(12, 5), torch.rand(12, 1)
    return model, lambda: (model(recipes) - rise).pow(2).mean()


def make():
    return program(Bakery)


FAILS = "rebuilt"


def make_fixed():
    return program(FixedBakery)


# [see]
def strangers(model, loss):
    mine, seen, todo, found = {id(p) for p in model.parameters()}, set(), [loss.grad_fn], []
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
            if hasattr(node, "variable") and id(node.variable) not in mine:
                found.append(tuple(node.variable.shape))
    return sorted(found)
# [end]


# [verify]
def same_answer_twice(model, recipes):
    model.eval()
    return torch.equal(model(recipes), model(recipes))


def moved(model, step):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    step().backward()
    optimizer.step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


MIX, OVEN = ["mix.weight", "mix.bias"], ["oven.weight", "oven.bias"]


def train(model, step, steps=200):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        step().backward()
        optimizer.step()
    return step().item()


def experiment_backward_runs_and_every_named_parameter_learns():
    model, step = make()
    assert moved(model, step) == OVEN == [name for name, _ in model.named_parameters()]


def experiment_the_same_batch_gets_another_answer_each_time():
    model, _ = make()
    assert not same_answer_twice(model, torch.randn(3, 5))
    assert same_answer_twice(make_fixed()[0], torch.randn(3, 5))


def experiment_a_layer_that_is_kept_learns_more():
    assert train(*make_fixed()) < train(*make()) / 2


def experiment_the_gradient_goes_to_a_layer_that_nobody_keeps():
    model, step = make()
    first, second = step(), step()
    assert strangers(model, first) == strangers(model, second) == [(8,), (8, 5)]
    leaves = [weight_behind(loss) for loss in (first, second)]
    first.backward()
    assert leaves[0].grad.any() and leaves[0] is not leaves[1] and not torch.equal(*leaves)


def weight_behind(loss):
    todo = [loss.grad_fn]
    while todo:
        node = todo.pop()
        if hasattr(node, "variable") and tuple(node.variable.shape) == (8, 5):
            return node.variable
        todo += [parent for parent, _ in node.next_functions if parent is not None]
    raise AssertionError("no such weight")


def experiment_saving_and_casting_do_not_know_it():
    model, _ = make()
    assert list(model.state_dict()) == OVEN
    try:
        model.double()(torch.randn(3, 5).double())
    except RuntimeError as error:
        assert "must have the same dtype" in str(error)
    else:
        raise AssertionError("it ran")


def experiment_the_strangers_are_found():
    for maker, found in [(make, [(8,), (8, 5)]), (make_fixed, [])]:
        model, step = maker()
        assert strangers(model, step()) == found


def experiment_a_lazy_layer_finds_its_width_by_itself():
    model, step = program(LazyBakery)
    step()
    assert tuple(model.mix.weight.shape) == (8, 5)
    assert moved(model, step) == MIX + OVEN


def experiment_the_cure_moves_every_weight():
    model, step = make_fixed()
    assert moved(model, step) == MIX + OVEN
    assert strangers(model, step()) == []


def experiment_a_fixed_seed_makes_it_repeat_and_not_learn():
    model, step = program(SeededBakery)
    assert same_answer_twice(model, torch.randn(3, 5))
    assert moved(model, step) == OVEN and strangers(model, step()) == [(8,), (8, 5)]


def experiment_built_once_in_forward_it_comes_too_late_for_the_optimizer():
    model, step = program(LateBakery)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        step().backward()
        optimizer.step()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert model.mix.weight.grad.any() and id(model.mix.weight) not in held
    assert strangers(model, step()) == []


def experiment_modules_without_weights_may_be_built_in_forward():
    model, step = program(PlainBakery)
    assert moved(model, step) == MIX + OVEN
    assert not [*nn.ReLU().parameters(), *nn.MSELoss().parameters()]
    assert all(list(layer.parameters()) for layer in (nn.PReLU(), nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3])))


def experiment_a_dropout_built_in_forward_does_not_hear_eval():
    model, _ = program(DroppingBakery)
    torch.manual_seed(0)
    assert not same_answer_twice(model, torch.randn(3, 5))
