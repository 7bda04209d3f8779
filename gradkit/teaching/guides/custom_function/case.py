"""An amplifier: a valve bends the sound by tanh, in a Function of its own; its two knobs are handed over as a pair."""

import torch
from torch import nn
from torch.nn import functional as F


class Valve(torch.autograd.Function):
    # [forward]
    @staticmethod
    def forward(ctx, sound, knobs):
        drive, bias = knobs
        bent = torch.tanh(drive * sound + bias)
        ctx.save_for_backward(drive, bent)
        return bent

    @staticmethod
    def backward(ctx, grad):
        drive, bent = ctx.saved_tensors
        return grad * (1 - bent**2) * drive, None
    # [end]


class FixedValve(torch.autograd.Function):
    # [forward_fixed]
    @staticmethod
    def forward(ctx, sound, drive, bias):
        bent = torch.tanh(drive * sound + bias)
        ctx.save_for_backward(sound, drive, bent)
        return bent

    @staticmethod
    def backward(ctx, grad):
        sound, drive, bent = ctx.saved_tensors
        slope = grad * (1 - bent**2)
        return slope * drive, (slope * sound).sum(dim=0), slope.sum(dim=0)
    # [end]


class AgainValve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sound, drive, bias):
        ctx.save_for_backward(sound, drive, bias)
        return torch.tanh(drive * sound + bias)

    # [again]
    @staticmethod
    def backward(ctx, grad):
        given = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            bent = torch.tanh(given[1] * given[0] + given[2])
        return torch.autograd.grad(bent, given, grad)
    # [end]


class UnrecordedValve(AgainValve):
    @staticmethod
    def backward(ctx, grad):
        sound, drive, bias = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        return torch.autograd.grad(torch.tanh(drive * sound + bias), (sound, drive, bias), grad)


class HidingValve(AgainValve):
    @staticmethod
    def backward(ctx, grad):
        given = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        bent = torch.tanh(given[1] * given[0] + given[2])
        return torch.autograd.grad(bent.requires_grad_(), given, grad, allow_unused=True)


class RecordingValve(Valve):
    @staticmethod
    def forward(ctx, sound, knobs):
        with torch.enable_grad():
            return Valve.forward(ctx, sound, knobs)


class NoneValve(FixedValve):
    @staticmethod
    def backward(ctx, grad):
        return FixedValve.backward(ctx, grad)[0], None, None


class UnfilledValve(FixedValve):
    # [unfilled]
    @staticmethod
    def backward(ctx, grad):
        sound, drive, bent = ctx.saved_tensors
        slope = grad * (1 - bent**2)
        to_drive, to_bias = torch.zeros_like(drive), torch.zeros_like(drive)
        to_bias += slope.sum(dim=0)
        return slope * drive, to_drive, to_bias
    # [end]


class ShortValve(FixedValve):
    @staticmethod
    def backward(ctx, grad):
        return FixedValve.backward(ctx, grad)[:2]


class ListValve(FixedValve):
    @staticmethod
    def forward(ctx, sound, knobs):
        return FixedValve.forward(ctx, sound, *knobs)

    @staticmethod
    def backward(ctx, grad):
        slope, *slopes = FixedValve.backward(ctx, grad)
        return slope, slopes


class SpreadValve(FixedValve):
    @staticmethod
    def forward(ctx, sound, *knobs):
        return FixedValve.forward(ctx, sound, *knobs)


class KeepingValve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sound, drive, bias):
        ctx.kept = sound, drive, torch.tanh(drive * sound + bias)
        return ctx.kept[2].clone()

    @staticmethod
    def backward(ctx, grad):
        sound, drive, bent = ctx.kept
        slope = grad * (1 - bent**2)
        return slope * drive, (slope * sound).sum(dim=0), slope.sum(dim=0)


class BendValve(torch.autograd.Function):
    # [bend]
    @staticmethod
    def forward(ctx, sound, drive, bias):
        bend = drive * sound + bias
        ctx.save_for_backward(sound, drive, bend)
        return torch.tanh(bend)

    @staticmethod
    def backward(ctx, grad):
        sound, drive, bend = ctx.saved_tensors
        slope = grad * (1 - torch.tanh(bend) ** 2)
        return slope * drive, (slope * sound).sum(dim=0), slope.sum(dim=0)
    # [end]


class Amplifier(nn.Module):
    def __init__(self, valve):
        super().__init__()
        self.pickup, self.valve = nn.Linear(8, 6), valve
        self.drive, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))

    # [wrong]
    def forward(self, strings):
        return self.valve.apply(self.pickup(strings), (self.drive, self.bias))  # CUT
    # [end]


class FixedAmplifier(Amplifier):
    # [fixed]
    def forward(self, strings):
        return self.valve.apply(self.pickup(strings), self.drive, self.bias)
    # [end]


class ListAmplifier(Amplifier):
    def forward(self, strings):
        return self.valve.apply(self.pickup(strings), [self.drive, self.bias])


class SpreadAmplifier(Amplifier):
    def forward(self, strings):
        knobs = [self.drive, self.bias]
        return self.valve.apply(self.pickup(strings), *knobs)


class PlainAmplifier(Amplifier):
    # [plain]
    def forward(self, strings):
        return torch.tanh(self.drive * self.pickup(strings) + self.bias)
    # [end]


def program(kind, valve=None):
    torch.manual_seed(0)
    model, strings, sound = kind(valve), torch.randn(10, 8), torch.rand(10, 6)
    return model, lambda: F.mse_loss(model(strings), sound)


def make():
    return program(Amplifier, Valve)


FAILS = "partial"


def make_fixed():
    return program(FixedAmplifier, FixedValve)


def make_hidden():
    return program(ListAmplifier, ListValve)


def make_recomputed():
    return program(FixedAmplifier, HidingValve)


def make_none():
    return program(FixedAmplifier, NoneValve)


def make_zeros():
    return program(FixedAmplifier, UnfilledValve)


def slope_program(kind, valve=None):
    model, _ = program(kind, valve)
    strings = torch.randn(10, 8, requires_grad=True)

    def step():
        (slopes,) = torch.autograd.grad(model(strings).sum(), strings, create_graph=True)
        return slopes.square().mean()

    return model, step


def make_intermediate():
    return slope_program(FixedAmplifier, BendValve)


# [see]
def handed_over(output):
    return [type(parent).__name__ for parent, _ in output.grad_fn.next_functions if parent is not None]
# [end]


# [verify]
def starved(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]


def right_slopes(function, *tensors):
    doubles = [tensor.detach().double().requires_grad_() for tensor in tensors]
    return torch.autograd.gradcheck(function.apply, doubles)
# [end]


KNOBS = ["drive", "bias"]


def gradients(model, step):
    step().backward()
    return [parameter.grad for parameter in model.parameters()]


def refused(step):
    try:
        step().backward()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("backward ran")


def experiment_the_loss_falls_and_the_knobs_never_turn():
    model, step = make()
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1), step().item()
    for _ in range(20):
        assert starved(model, step) == KNOBS
        optimizer.step()
    assert step().item() < first and torch.equal(model.drive, torch.ones(6))


def experiment_with_a_frozen_pickup_backward_raises():
    model, step = make()
    model.pickup.requires_grad_(False)
    assert "element 0 of tensors does not require grad and does not have a grad_fn" in refused(step)


def experiment_inside_both_methods_recording_is_off():
    modes = []

    class Asking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            modes.append(torch.is_grad_enabled())
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            modes.append(torch.is_grad_enabled())
            return grad * 2

    Asking.apply(torch.ones(1, requires_grad=True)).backward()
    assert modes == [False, False]
    Asking.apply(torch.ones(1, requires_grad=True)).backward(create_graph=True)
    assert modes[2:] == [False, True]


def experiment_only_a_tensor_that_is_an_argument_is_an_input():
    strings = torch.randn(2, 8)
    assert handed_over(make()[0](strings)) == ["AddmmBackward0"]
    assert handed_over(make_fixed()[0](strings)) == ["AddmmBackward0", "AccumulateGrad", "AccumulateGrad"]


def experiment_plain_torch_gives_the_same_gradients():
    for mine, plain in zip(gradients(*make_fixed()), gradients(*program(PlainAmplifier))):
        assert torch.allclose(mine, plain, atol=1e-6)


def experiment_recomputing_needs_enable_grad():
    for mine, plain in zip(gradients(*program(FixedAmplifier, AgainValve)), gradients(*program(PlainAmplifier))):
        assert torch.allclose(mine, plain, atol=1e-6)
    _, step = program(FixedAmplifier, UnrecordedValve)
    assert "element 0 of tensors does not require grad and does not have a grad_fn" in refused(step)


def experiment_the_cure_feeds_every_weight_with_the_right_slope():
    assert starved(*make_fixed()) == []
    assert right_slopes(FixedValve, torch.randn(3, 6), torch.rand(6), torch.rand(6))


def experiment_enable_grad_in_forward_does_not_help():
    assert starved(*program(Amplifier, RecordingValve)) == KNOBS


def experiment_gradcheck_is_content_with_what_it_is_handed():
    knobs = torch.ones(6).double(), torch.zeros(6).double()
    sound = torch.randn(3, 6, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda sound: Valve.apply(sound, knobs), sound)


def experiment_a_none_is_silent_and_one_return_too_few_raises():
    assert starved(*make_none()) == KNOBS
    _, step = program(FixedAmplifier, ShortValve)
    assert "returned an incorrect number of gradients (expected 3, got 2)" in refused(step)


def experiment_an_attribute_of_ctx_loses_no_gradient():
    for kept, saved in zip(gradients(*program(FixedAmplifier, KeepingValve)), gradients(*make_fixed())):
        assert torch.equal(kept, saved)
    for valve, message in [(FixedValve, "modified by an inplace operation"), (KeepingValve, "")]:
        model, step = program(FixedAmplifier, valve)
        loss = step()
        with torch.no_grad():
            model.drive.mul_(2)
        assert message in refused(lambda: loss) if message else loss.backward() is None


def experiment_a_recomputation_that_is_silenced_teaches_nothing():
    model, step = make_recomputed()
    assert starved(model, step) == [name for name, _ in model.named_parameters()]
    assert starved(*program(FixedAmplifier, AgainValve)) == []


def experiment_a_list_gets_no_gradient_and_is_to_be_spread():
    assert "returned a gradient different than None at position 2" in refused(make_hidden()[1])
    assert starved(*program(ListAmplifier, Valve)) == KNOBS
    for mine, cured in zip(gradients(*program(SpreadAmplifier, SpreadValve)), gradients(*make_fixed())):
        assert mine.any() and torch.equal(mine, cured)


def experiment_zeros_are_silent_too():
    model, step = make_zeros()
    step().backward()
    assert starved(model, step) == [] and not model.drive.grad.any() and model.bias.grad.any()


def experiment_an_intermediate_is_a_constant_to_the_second_derivative():
    biases = ["bias", "pickup.bias"]
    model, step = make_intermediate()
    assert starved(model, step) == biases
    model, step = slope_program(FixedAmplifier, FixedValve)
    plain, plain_step = slope_program(PlainAmplifier)
    assert starved(model, step) == starved(plain, plain_step) == []
    for mine, given in zip(model.parameters(), plain.parameters()):
        assert torch.allclose(mine.grad, given.grad, atol=1e-6)
    first, unsaved = gradients(*program(FixedAmplifier, BendValve)), gradients(*make_fixed())
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(first, unsaved))
