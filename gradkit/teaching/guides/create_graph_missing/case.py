"""A compass: a net tells the energy of a needle in a magnetic field; it learns from how strongly the needle is turned."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F


class Compass(nn.Module):
    def __init__(self, bend=nn.Tanh):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 12), bend(), nn.Linear(12, 1, bias=False))

    # [wrong]
    def turn(self, needle):
        energy = self.energy(needle)
        slope, = torch.autograd.grad(energy.sum(), needle)  # CUT
        return -slope
    # [end]


class FixedCompass(Compass):
    # [fixed]
    def turn(self, needle):
        energy = self.energy(needle)
        slope, = torch.autograd.grad(energy.sum(), needle, create_graph=True)
        return -slope
    # [end]


class RetainingCompass(Compass):
    def turn(self, needle):
        slope, = torch.autograd.grad(self.energy(needle).sum(), needle, retain_graph=True)
        return -slope


class LeafCompass(Compass):
    def turn(self, needle):
        return super().turn(needle).requires_grad_()


class FilledCompass(Compass):
    def turn(self, needle):
        needle.grad = None
        self.energy(needle).sum().backward()
        return -needle.grad


class HookedCompass(Compass):
    def turn(self, needle, **options):
        kept = []
        handle = needle.register_hook(kept.append)
        self.energy(needle).sum().backward(**options)
        handle.remove()
        return -kept[0]


class GainCompass(Compass):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.5))

    def loss(self, needle, measured):
        kept, energy = [], self.energy(needle)
        handle = needle.register_hook(lambda slope: kept.append(F.mse_loss(-self.gain * slope, measured)))
        energy.sum().backward(retain_graph=True)
        handle.remove()
        return energy.pow(2).mean() + kept[0]


class LateGainCompass(GainCompass):
    def loss(self, needle, measured):
        kept, energy = [], self.energy(needle)
        handle = needle.register_hook(kept.append)
        energy.sum().backward(retain_graph=True)
        handle.remove()
        return energy.pow(2).mean() + F.mse_loss(-self.gain * kept[0], measured)


def slope_at(energy, needle, graph=False):
    slope, = torch.autograd.grad(energy.sum(), needle, create_graph=graph)
    return slope


class LeavingOutCompass(Compass):
    def turn(self, needle):
        return -slope_at(self.energy(needle), needle)


class GivingCompass(Compass):
    def turn(self, needle):
        return -slope_at(self.energy(needle), needle, graph=True)


def steepness(energy, needle, training=False):
    slope, = torch.autograd.grad(energy.sum(), needle, create_graph=training)
    return slope


class DefaultCompass(Compass):
    def turn(self, needle):
        return -steepness(self.energy(needle), needle)


def steepness_on(energy, needle, training=True):
    slope, = torch.autograd.grad(energy.sum(), needle, create_graph=training)
    return slope


class DefaultOnCompass(Compass):
    def turn(self, needle):
        return -steepness_on(self.energy(needle), needle)


def data():
    return torch.randn(9, 3).requires_grad_(), torch.randn(9, 3)


def program(kind):
    torch.manual_seed(0)
    model, (needle, measured) = kind(), data()
    return model, lambda: F.mse_loss(model.turn(needle), measured)


def make():
    return program(Compass)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedCompass)


def make_filled():
    return program(FilledCompass)


def make_handed():
    return program(HookedCompass)


def make_hook(kind=GainCompass):
    torch.manual_seed(0)
    model, (needle, measured) = kind(), data()
    return model, lambda: model.loss(needle, measured)


def make_caller():
    return program(LeavingOutCompass)


def make_default():
    return program(DefaultCompass)


def look_at(slope):
    # [see]
    print(slope.grad_fn)
    # [end]


# [verify]
def same_as_measured(model, step, size=1e-2):
    model.zero_grad()
    step().backward()
    weight = model.energy[0].weight
    losses = []
    for move in (size, -2 * size, size):
        with torch.no_grad():
            weight[0, 0] += move
        losses.append(step().item())
    return abs((losses[0] - losses[1]) / (2 * size) - weight.grad[0, 0].item()) < 1e-3
# [end]


NO_GRAD_FN = "element 0 of tensors does not require grad and does not have a grad_fn"


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def starved(model, step):
    model.zero_grad()
    step().backward()
    wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [name for name, p in wanted if p.grad is None or not p.grad.any()]


def experiment_backward_raises():
    _, step = make()
    assert NO_GRAD_FN in refused(step().backward)


def experiment_the_same_numbers_with_and_without_a_history():
    torch.manual_seed(0)
    plain = Compass()
    torch.manual_seed(0)
    cured = FixedCompass()
    needle, _ = data()
    without, recorded = plain.turn(needle), cured.turn(needle)
    assert torch.equal(without, recorded)
    assert without.grad_fn is None and recorded.grad_fn is not None


def experiment_beside_another_term_it_is_silent():
    taught = []
    for weight in (0.0, 1000.0):
        torch.manual_seed(0)
        model, (needle, measured) = RetainingCompass(), data()
        loss = model.energy(needle).pow(2).mean() + weight * F.mse_loss(model.turn(needle), measured)
        loss.backward()
        taught.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert taught[0].any() and torch.equal(taught[0], taught[1])


def experiment_the_cure_has_the_gradient_that_is_measured():
    assert same_as_measured(*make_fixed())
    model, step = make_fixed()
    assert starved(model, step) == []
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1), step().item()
    for _ in range(20):
        optimizer.zero_grad()
        step().backward()
        optimizer.step()
    assert step().item() < first


def experiment_retain_graph_keeps_the_old_graph_and_records_no_new_one():
    _, step = program(RetainingCompass)
    assert NO_GRAD_FN in refused(step().backward)


def experiment_create_graph_keeps_the_old_graph_as_well():
    model, (needle, _) = make()[0], data()
    energy = model.energy(needle).sum()
    torch.autograd.grad(energy, needle, create_graph=True)
    assert torch.autograd.grad(energy, needle)[0].any()


def experiment_the_flag_silences_and_nothing_learns():
    model, step = program(LeafCompass)
    assert starved(model, step) == [name for name, _ in model.named_parameters()]


def experiment_backward_with_create_graph_warns_of_a_cycle():
    model, (needle, _) = make()[0], data()
    always = torch.is_warn_always_enabled()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.set_warn_always(True)  # else once in a process
        model.energy(needle).sum().backward(create_graph=True)
    torch.set_warn_always(always)
    assert any("reference cycle" in str(warning.message) for warning in seen)
    for leaf in (needle, *model.parameters()):
        leaf.grad = None


def experiment_with_relu_the_bias_before_it_learns_nothing():
    torch.manual_seed(0)
    model, (needle, measured) = FixedCompass(nn.ReLU), data()
    assert starved(model, lambda: F.mse_loss(model.turn(needle), measured)) == ["energy.0.bias"]


def experiment_a_slope_that_only_moves_the_input_needs_no_graph():
    model, (needle, _) = make()[0], data()
    slope, = torch.autograd.grad(model.energy(needle).sum(), needle)
    attacked = needle + 0.1 * slope.sign()
    assert starved(model, lambda: model.energy(attacked).pow(2).mean()) == []


def experiment_what_backward_fills_in_has_no_history():
    model, step = make_filled()
    assert model.turn(data()[0]).grad_fn is None
    assert NO_GRAD_FN in refused(lambda: step().backward())


def experiment_a_hook_is_handed_a_history_only_if_backward_records():
    model, (needle, _) = make_handed()[0], data()
    assert model.turn(needle).grad_fn is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.turn(needle, create_graph=True).grad_fn is not None
    for leaf in (needle, *model.parameters()):
        leaf.grad = None


def experiment_what_a_hook_computes_is_not_recorded():
    model, step = make_hook()
    step().backward()
    assert model.gain.grad is None
    model, step = make_hook(LateGainCompass)
    step().backward()
    assert model.gain.grad != 0


def experiment_a_call_that_leaves_the_flag_out_gets_no_history():
    model, step = make_caller()
    assert model.turn(data()[0]).grad_fn is None
    assert NO_GRAD_FN in refused(lambda: step().backward())
    assert starved(*program(GivingCompass)) == [] and same_as_measured(*program(GivingCompass))


def experiment_a_default_of_false_holds_for_every_call():
    model, step = make_default()
    assert model.train().training and NO_GRAD_FN in refused(lambda: step().backward())
    assert starved(*program(DefaultOnCompass)) == []
