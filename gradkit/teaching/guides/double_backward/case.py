"""A glacier: week after week a cell reads the weather, remembers how much snow lies there, and tells the melt water."""

import torch
from torch import nn
from torch.nn import functional as F


class Glacier(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.melt = nn.GRUCell(5, 8), nn.Linear(8, 1)
        self.snow = torch.zeros(3, 8)

    # [wrong]
    def forward(self, weather):
        self.snow = self.cell(weather, self.snow)  # CUT
        return self.melt(self.snow)
    # [end]


class FixedGlacier(Glacier):
    # [fixed]
    def forward(self, weather):
        snow = self.cell(weather, self.snow)
        self.snow = snow.detach()
        return self.melt(snow)
    # [end]


class DroppingGlacier(Glacier):
    def forward(self, weather):
        self.snow = self.cell(weather, self.snow)
        self.snow.detach()
        return self.melt(self.snow)


def program(kind, weeks=1):
    torch.manual_seed(0)
    model, weather, water = kind(), torch.randn(3, 5), torch.rand(3, 1)

    def step():
        return F.mse_loss(model(weather), water)

    for _ in range(weeks):
        step().backward()
    model.zero_grad()
    return model, step


def make():
    return program(Glacier)


FAILS = "raises: backward through the graph a second time"


def make_fixed():
    return program(FixedGlacier)


def week_by_week(model, month, water):
    snow = torch.zeros(3, 8)
    for weather in month:
        new = model.cell(weather, snow)
        loss = F.mse_loss(model.melt(new), water)
        loss.backward()
        snow = new
    return loss.detach()


def week_by_week_cut(model, month, water):
    snow = torch.zeros(3, 8)
    for weather in month:
        new = model.cell(weather, snow)
        loss = F.mse_loss(model.melt(new), water)
        loss.backward()
        snow = new.detach()
    return loss.detach()


def whole_month(model, month, water):
    snow, losses = torch.zeros(3, 8), []
    for weather in month:
        snow = model.cell(weather, snow)
        losses.append(F.mse_loss(model.melt(snow), water))
    sum(losses).backward()
    return losses[-1].detach()


def make_carried(weeks=week_by_week):
    torch.manual_seed(0)
    model, month, water = Glacier(), torch.randn(4, 3, 5), torch.rand(3, 1)
    return model, lambda: weeks(model, month, water)


# [see]
def kept_with_history(model):
    return [f"{path}.{name}".lstrip(".") for path, module in model.named_modules()
            for name, value in vars(module).items() if isinstance(value, torch.Tensor) and value.grad_fn is not None]
# [end]


# [verify]
def nodes_behind(loss):
    seen, todo = set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
    return len(seen)
# [end]


def month(model, step):
    # [weeks]
    loss = sum(step() for week in range(4))
    loss.backward()
    model.snow = model.snow.detach()
    # [end]


TWICE = "Trying to backward through the graph a second time"


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def experiment_the_first_week_learns_and_the_second_raises():
    model, step = program(Glacier, weeks=0)
    step().backward()
    assert model.cell.weight_ih.grad.any()
    assert TWICE in refused(step().backward)


def experiment_backward_throws_away_what_it_has_used():
    cold = torch.tensor(-2.0, requires_grad=True)
    snow = cold.exp()
    assert snow.grad_fn._saved_result == snow
    snow.backward()
    assert TWICE in refused(lambda: snow.grad_fn._saved_result)


def experiment_the_second_loss_reaches_back_into_the_first_week():
    model, step = program(Glacier, weeks=0)
    first = step()
    week_one = nodes_behind(first)
    assert nodes_behind(step()) > week_one


def experiment_the_carried_tensor_is_found():
    for maker, found in [(make, ["snow"]), (make_fixed, [])]:
        model, step = maker()
        step()
        assert kept_with_history(model) == found


def experiment_the_cure_keeps_the_numbers_and_the_graph_stays_small():
    model, step = program(FixedGlacier, weeks=0)
    sizes, snows = [], [model.snow]
    for _ in range(5):
        loss = step()
        loss.backward()
        sizes.append(nodes_behind(loss))
        snows.append(model.snow)
    assert len(set(sizes)) == 1
    assert all(not torch.equal(before, after) for before, after in zip(snows, snows[1:]))


def experiment_weeks_that_belong_together_go_backward_once():
    model, step = program(Glacier, weeks=0)
    for _ in range(3):
        month(model, step)
    assert model.cell.weight_hh.grad.any()


def experiment_retain_graph_silences_and_every_week_costs_more():
    model, step = program(Glacier, weeks=0)
    sizes = []
    for _ in range(5):
        loss = step()
        loss.backward(retain_graph=True)
        sizes.append(nodes_behind(loss))
    growth = [after - before for before, after in zip(sizes, sizes[1:])]
    assert min(growth) > 0 and growth[1] == growth[2] == growth[3]


def experiment_with_retain_graph_the_optimizer_brings_the_next_error():
    model, step = program(Glacier, weeks=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    errors = []
    for _ in range(3):
        errors.append(refused(lambda: step().backward(retain_graph=True)))
        optimizer.step()
    assert errors[:2] == ["", ""] and "has been modified by an inplace operation" in errors[2]


def experiment_two_losses_of_one_pass_are_added_up():
    model, step = program(Glacier, weeks=0)
    weather = torch.randn(3, 5)
    water = model(weather)
    water.mean().backward(retain_graph=True)
    water.pow(2).mean().backward()
    apart = gradient(model)
    model.zero_grad()
    model.snow = torch.zeros(3, 8)
    water = model(weather)
    (water.mean() + water.pow(2).mean()).backward()
    assert torch.allclose(gradient(model), apart, atol=1e-6)


def experiment_a_detach_whose_result_is_dropped_does_nothing():
    _, step = program(DroppingGlacier)
    assert TWICE in refused(step().backward)


def experiment_zero_grad_does_not_empty_the_graph():
    model, step = make()
    model.zero_grad(set_to_none=True)
    assert TWICE in refused(step().backward)


def experiment_a_graph_that_saves_nothing_does_not_raise():
    parts = torch.ones(3, requires_grad=True)
    total = (parts + parts).sum()
    total.backward()
    total.backward()
    assert parts.grad.tolist() == [4.0, 4.0, 4.0]


def experiment_a_backward_in_every_pass_needs_a_memory_without_history():
    assert TWICE in refused(make_carried()[1])
    taught = []
    for weeks in (week_by_week_cut, whole_month):
        model, step = make_carried(weeks)
        step()
        taught.append(gradient(model))
    assert all(slope.any() for slope in taught) and not torch.allclose(*taught)


def experiment_what_is_computed_before_the_loop_belongs_in_the_step():
    torch.manual_seed(0)
    gauge, melt, weather = nn.Linear(5, 8), nn.Linear(8, 1), torch.randn(3, 5)
    seen = torch.tanh(gauge(weather))
    melt(seen).mean().backward()
    assert TWICE in refused(melt(seen).mean().backward)
    for again, learns in [(seen.detach(), False), (torch.tanh(gauge(weather)), True)]:
        gauge.zero_grad()
        melt(again).mean().backward()
        assert (gauge.weight.grad is not None) == learns


def experiment_the_discriminator_gets_the_detached_picture_and_the_generator_the_other():
    torch.manual_seed(0)
    drawer, judge, noise, real = nn.Linear(4, 8), nn.Linear(8, 1), torch.randn(16, 4), torch.randn(16, 8)

    def taught(detached_for_the_judge):
        drawer.zero_grad()
        fake = drawer(noise)
        judged, judged_again = (fake.detach(), fake) if detached_for_the_judge else (fake, fake.detach())
        (F.softplus(-judge(real)) + F.softplus(judge(judged))).mean().backward()
        F.softplus(-judge(judged_again)).mean().backward()
        return drawer.weight.grad.flatten()

    fake = drawer(noise)
    (own,) = torch.autograd.grad(F.softplus(-judge(fake)).mean(), drawer.weight)
    assert torch.allclose(taught(True), own.flatten())
    assert torch.cosine_similarity(taught(False), own.flatten(), dim=0) < -0.9
