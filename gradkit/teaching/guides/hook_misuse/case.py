"""Whale song: an ear listens, a name is given; a hook was to soften loud gradients, and lets only loud ones through."""

import torch
from torch import nn
from torch.nn import functional as F


class Whales(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear, self.name = nn.Linear(12, 8), nn.Linear(8, 5)

    # [wrong]
    def listen(self, song):
        heard = torch.tanh(self.ear(song))
        if heard.requires_grad:
            heard.register_hook(lambda grad: grad * (grad.norm() > 1))  # CUT
        return heard
    # [end]

    def forward(self, song):
        return self.name(self.listen(song))


class FixedWhales(Whales):
    # [fixed]
    def listen(self, song):
        heard = torch.tanh(self.ear(song))
        if heard.requires_grad:
            heard.register_hook(lambda grad: grad / grad.norm().clamp(min=1))
        return heard
    # [end]


class PlainWhales(Whales):
    def listen(self, song):
        return torch.tanh(self.ear(song))


class ScaledWhales(PlainWhales):
    def __init__(self):
        super().__init__()
        self.ear = nn.Linear(12, 8, bias=False)

    def loudness(self, heard):
        return heard.pow(2).sum(dim=1, keepdim=True).sqrt()

    def listen(self, song):
        heard = super().listen(song)
        self.watch(heard)
        return heard / (self.loudness(heard) + 1e-6)

    def watch(self, heard):
        pass


class HidingWhales(ScaledWhales):
    def watch(self, heard):
        if heard.requires_grad:
            heard.register_hook(lambda grad: grad if grad.isfinite().all() else torch.zeros_like(grad))


class SteadyWhales(HidingWhales):
    def loudness(self, heard):
        return (heard.pow(2).sum(dim=1, keepdim=True) + 1e-12).sqrt()


def program(kind, silent=0):
    torch.manual_seed(0)
    model, songs, names = kind(), torch.randn(10, 12), torch.randint(0, 5, (10,))
    songs[:silent] = 0
    return model, lambda: F.cross_entropy(model(songs), names)


def make():
    return program(Whales)


FAILS = "partial"


def make_fixed():
    return program(FixedWhales)


def make_hidden():
    return program(HidingWhales, silent=1)


# [see]
def watch(value, seen):
    value.register_hook(lambda grad: seen.append(grad.norm().item()))
# [end]


# [log]
def log(seen):
    def hook(grad):
        seen.append(grad.norm().item())
    return hook
# [end]


# [verify]
def no_signal(model, step):
    model.zero_grad()
    step().backward()
    wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [name for name, p in wanted if p.grad is None or not p.grad.any()]
# [end]


EAR = ["ear.weight", "ear.bias"]


def gradient_with(hook, times=1):
    weight = nn.Parameter(torch.ones(3))
    for factor in range(1, times + 1):
        weight.grad = None
        value = weight * factor
        value.register_hook(hook)
        (value * factor).sum().backward()
    return weight.grad


def refused(run):
    try:
        run()
    except (RuntimeError, TypeError) as error:
        return str(error)
    raise AssertionError("it ran")


def experiment_the_loss_falls_and_the_ear_hears_nothing():
    model, step = make()
    optimizer, first, ear = torch.optim.SGD(model.parameters(), lr=0.1), step().item(), model.ear.weight.clone()
    for _ in range(20):
        assert no_signal(model, step) == EAR
        optimizer.step()
    assert step().item() < first and torch.equal(model.ear.weight, ear)


def experiment_another_shape_or_no_tensor_raises():
    assert "has changed the size of value" in refused(lambda: gradient_with(lambda grad: grad.norm()))
    assert "but hook returned 'float'" in refused(lambda: gradient_with(lambda grad: grad.norm().item()))


def experiment_what_a_hook_returns_goes_on_in_place_of_the_gradient():
    assert torch.equal(gradient_with(lambda grad: grad * 0), torch.zeros(3))
    assert torch.equal(gradient_with(lambda grad: grad * 5), torch.full((3,), 5.0))
    assert torch.equal(gradient_with(lambda grad: None), torch.ones(3))


def experiment_a_comparison_as_a_factor_is_nought_or_one():
    quiet, loud = torch.full((3,), 0.1), torch.full((3,), 9.0)
    hook = lambda grad: grad * (grad.norm() > 1)  # noqa: E731
    assert not hook(quiet).any() and torch.equal(hook(loud), loud)


def experiment_the_norm_before_and_after_the_hook():
    before, after = [], []
    heard = nn.Parameter(torch.ones(3)) * 1
    watch(heard, before)
    heard.register_hook(lambda grad: grad * (grad.norm() > 1))
    watch(heard, after)
    (heard * 0.1).sum().backward()
    assert before[0] > 0 and after == [0.0]


def experiment_the_cure_softens_and_silences_nothing():
    model, step = make_fixed()
    assert no_signal(model, step) == []
    soften = lambda grad: grad / grad.norm().clamp(min=1)  # noqa: E731
    assert torch.equal(soften(torch.full((3,), 0.1)), torch.full((3,), 0.1))
    assert torch.isclose(soften(torch.full((3,), 9.0)).norm(), torch.tensor(1.0))


def experiment_clipping_after_backward_needs_no_hook():
    model, step = program(PlainWhales)
    assert no_signal(model, step) == []
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    total = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    assert total <= 0.0101 and all(parameter.grad.any() for parameter in model.parameters())


def experiment_the_gradients_are_those_of_a_run_without_a_hook():
    for maker, same in [(make, False), (make_fixed, True)]:
        (model, step), (plain, plain_step) = maker(), program(PlainWhales)
        step().backward()
        plain_step().backward()
        assert torch.equal(model.ear.weight.grad, plain.ear.weight.grad) == same


def experiment_a_hook_that_returns_nothing_only_looks():
    seen = []
    assert torch.equal(gradient_with(log(seen)), torch.ones(3)) and len(seen) == 1


def experiment_setdefault_returns_the_first_gradient_for_ever():
    first = {}
    assert torch.equal(gradient_with(lambda grad: first.setdefault("grad", grad), times=1), torch.ones(3))
    first.clear()
    assert torch.equal(gradient_with(lambda grad: first.setdefault("grad", grad), times=3), torch.full((3,), 3.0))
    assert torch.equal(gradient_with(lambda grad: None, times=3), torch.full((3,), 9.0))


def experiment_editing_the_gradient_in_place_hits_the_neighbour():
    mine, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def silence(grad):
        grad.zero_()

    mine.register_hook(silence)
    ((mine + other) * 2).sum().backward()
    assert not mine.grad.any() and not other.grad.any()


def experiment_a_module_hook_runs_only_if_the_module_is_called():
    layer, calls = nn.Linear(3, 3), []
    layer.register_full_backward_hook(lambda *_: calls.append("called"))
    x = torch.ones(1, 3, requires_grad=True)
    layer.forward(x).sum().backward()
    assert calls == []
    layer(x).sum().backward()
    assert calls == ["called"]


def experiment_a_removed_hook_is_gone():
    heard = nn.Parameter(torch.ones(3)) * 1
    handle = heard.register_hook(lambda grad: grad * 0)
    heard.retain_grad()
    handle.remove()
    heard.sum().backward()
    assert heard.grad.all()


def experiment_zeros_in_the_place_of_nan_hide_one_silent_song():
    model, step = make_hidden()
    assert step().isfinite() and no_signal(model, step) == ["ear.weight"]
    bare, bare_step = program(ScaledWhales, silent=1)
    bare_step().backward()
    assert bare.ear.weight.grad.isnan().any() and bare.name.weight.grad.isfinite().all()
    assert no_signal(*program(HidingWhales)) == []
    steady, steady_step = program(SteadyWhales, silent=1)
    assert no_signal(steady, steady_step) == [] and steady.ear.weight.grad.isfinite().all()
