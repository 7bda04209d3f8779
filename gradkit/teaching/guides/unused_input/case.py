"""A guitar string: a net tells how far it is bent at a place and a time; how fast it moves is the slope along the time."""

import torch
from torch import nn
from torch.nn import functional as F


class String(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1, bias=False))

    # [wrong]
    def speed(self, points):
        time = points[:, 1:]
        bend = self.net(points)
        speed, = torch.autograd.grad(bend.sum(), time, create_graph=True)  # CUT
        return speed
    # [end]


class FixedString(String):
    # [fixed]
    def speed(self, points):
        bend = self.net(points)
        slopes, = torch.autograd.grad(bend.sum(), points, create_graph=True)
        return slopes[:, 1:]
    # [end]


class JoiningString(String):
    # [join]
    def speed(self, points):
        place, time = points[:, :1], points[:, 1:]
        bend = self.net(torch.cat([place, time], dim=1))
        speed, = torch.autograd.grad(bend.sum(), time, create_graph=True)
        return speed
    # [end]


class RestingString(String):
    def speed(self, points):
        time = points[:, 1:]
        bend = self.net(points)
        speed, = torch.autograd.grad(bend.sum(), time, create_graph=True, allow_unused=True, materialize_grads=True)
        return speed


class TwiceString(String):
    def time(self, points):
        return points[:, 1:]

    def speed(self, points):
        bend = self.net(torch.cat([points[:, :1], self.time(points)], dim=1))
        speed, = torch.autograd.grad(bend.sum(), self.time(points), create_graph=True)
        return speed


class DetachingString(FixedString):
    def speed(self, points):
        return super().speed(points.detach() / points.detach().amax(dim=0))


class LateString(String):
    def speed(self, points):
        bend = self.net(points)
        points.requires_grad_()
        slopes, = torch.autograd.grad(bend.sum(), points, create_graph=True)
        return slopes[:, 1:]


class EarlyString(LateString):
    def speed(self, points):
        return super().speed(points.requires_grad_())


def tuned(model, points, measured):
    loss = F.mse_loss(model.net(points), measured)
    weights = list(model.net.parameters())
    slopes = torch.autograd.grad(loss, weights, create_graph=True)
    fast = [weight - 0.1 * slope for weight, slope in zip(weights, slopes)]
    names = [name for name, _ in model.net.named_parameters()]
    return F.mse_loss(torch.func.functional_call(model.net, dict(zip(names, fast)), points), measured)


def program(kind):
    torch.manual_seed(0)
    model, points, measured = kind(), torch.rand(9, 2).requires_grad_(), torch.randn(9, 1)
    return model, lambda: F.mse_loss(model.speed(points), measured)


def make():
    return program(String)


FAILS = "step raises: appears to not have been used in the graph"


def make_fixed():
    return program(FixedString)


def make_again():
    return program(TwiceString)


def drawn(kind):
    torch.manual_seed(0)
    model, measured = kind(), torch.randn(9, 1)

    def step():
        points = torch.rand(9, 2)
        return F.mse_loss(model.speed(points), measured)

    return model, step


def make_plain():
    return drawn(FixedString)


def make_lost():
    return program(DetachingString)


def make_late():
    return drawn(LateString)


def make_frozen(frozen=True):
    torch.manual_seed(0)
    model, points, measured = String(), some_points(), torch.randn(9, 1)
    model.net[0].requires_grad_(not frozen)
    return model, lambda: tuned(model, points, measured)


# [see]
def leads_to(value, result):
    seen, todo = set(), [result.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
    return value.grad_fn in seen or any(getattr(node, "variable", None) is value for node in seen)
# [end]


# [verify]
def same_as_measured(model, points, step=1e-3):
    later = points.detach() + torch.tensor([0.0, step])
    earlier = points.detach() - torch.tensor([0.0, step])
    return torch.allclose(model.speed(points), (model.net(later) - model.net(earlier)) / (2 * step), atol=1e-3)
# [end]


UNUSED = "appears to not have been used in the graph"
PLAIN = "One of the differentiated Tensors does not require grad"


def some_points():
    return torch.rand(9, 2).requires_grad_()


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def gradients(model, step):
    model.zero_grad()
    step().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def experiment_the_step_raises():
    _, step = make()
    assert UNUSED in refused(step)


def experiment_the_slice_has_a_history_and_no_future():
    model, points = make()[0], some_points()
    time = points[:, 1:]
    assert time.grad_fn is not None
    assert leads_to(points, model.net(points)) and not leads_to(time, model.net(points))


def experiment_every_slice_is_a_new_tensor():
    points = some_points()
    assert points[:, 1:] is not points[:, 1:]
    assert points[:, 1:].grad_fn is not points[:, 1:].grad_fn


def experiment_the_walk_tells_them_apart():
    model, points = make()[0], some_points()
    place, time = points[:, :1], points[:, 1:]
    bend = model.net(torch.cat([place, time], dim=1))
    assert leads_to(time, bend) and leads_to(points, bend)
    assert not leads_to(points[:, 1:], bend)


def experiment_the_cure_gives_the_speed_that_is_measured():
    model, _ = make_fixed()
    assert same_as_measured(model, some_points())


def experiment_a_net_that_is_fed_from_the_slice_gives_the_same_speed():
    for mine, cured in zip(gradients(*program(JoiningString)), gradients(*make_fixed())):
        assert mine.any() and torch.allclose(mine, cured, atol=1e-6)


def experiment_allow_unused_hands_out_none():
    model, points = make()[0], some_points()
    assert torch.autograd.grad(model.net(points).sum(), points[:, 1:], allow_unused=True) == (None,)


def experiment_zeros_in_its_place_teach_that_the_string_is_at_rest():
    model, step = program(RestingString)
    assert not model.speed(some_points()).any()
    step().backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def experiment_neither_flag_brings_it_into_the_graph():
    model, points = make()[0], some_points()
    time = points[:, 1:].requires_grad_()
    assert UNUSED in refused(lambda: torch.autograd.grad(model.net(points).sum(), time, retain_graph=True))


def experiment_a_copy_that_is_made_afterwards_is_as_foreign():
    model, points = make()[0], some_points()
    bend = model.net(points)
    for copied in (points.clone(), points.detach().requires_grad_(), points.to(torch.float64)):
        assert UNUSED in refused(lambda: torch.autograd.grad(bend.sum(), copied, retain_graph=True))


def experiment_where_a_part_may_rest_none_is_the_truth():
    model, spare, points = make()[0], nn.Linear(2, 1), some_points()
    wanted = [*model.parameters(), *spare.parameters()]
    found = torch.autograd.grad(model.net(points).sum(), wanted, allow_unused=True)
    assert [slope is None for slope in found] == [False, False, False, True, True]


def experiment_what_is_computed_once_more_is_another_tensor():
    model, step = make_again()
    points = some_points()
    assert torch.equal(model.time(points), model.time(points))
    assert UNUSED in refused(step)
    assert gradients(*program(JoiningString))[0].any()


def experiment_points_that_were_never_told_have_no_gradient():
    model, step = make_plain()
    assert PLAIN in refused(step)
    assert refused(lambda: model.speed(torch.rand(9, 2).requires_grad_())) == ""


def experiment_what_was_told_loses_it_by_detach():
    model, step = make_lost()
    assert PLAIN in refused(step)
    scaled = some_points().detach() / 2
    assert not scaled.requires_grad
    assert refused(lambda: FixedString.speed(model, scaled.requires_grad_())) == ""


def experiment_told_after_the_net_has_run_is_too_late():
    _, step = make_late()
    assert UNUSED in refused(step)
    model, step = drawn(EarlyString)
    assert all(slope.any() for slope in gradients(model, step))


def experiment_one_frozen_parameter_refuses_for_all():
    model, step = make_frozen()
    assert PLAIN in refused(step)
    points = some_points()
    thawed = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(thawed) == 1 and torch.autograd.grad(model.net(points).sum(), thawed)[0].any()
    assert all(slope.any() for slope in gradients(*make_frozen(frozen=False)))


def experiment_with_a_frozen_net_nothing_has_a_history():
    for make_wrong in (make_plain, make_late):
        model, step = make_wrong()
        model.requires_grad_(False)
        assert "element 0 of tensors does not require grad" in refused(step)
    assert refused(lambda: FixedString.speed(model, torch.rand(9, 2).requires_grad_())) == ""
