"""Photographs: gain and gamma of a tone curve are learned, through pixels cast to the 0-255 integers of a file."""

import torch
from torch import nn


class ToneCurve(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.gamma = nn.Parameter(torch.tensor(0.8)), nn.Parameter(torch.tensor(1.3))

    # [wrong]
    def forward(self, photo):
        toned = 255 * (self.gain * photo) ** self.gamma
        pixels = toned.to(torch.uint8)  # CUT
        return pixels / 255
    # [end]


class FixedToneCurve(ToneCurve):
    # [fixed]
    def forward(self, photo):
        toned = 255 * (self.gain * photo) ** self.gamma
        return toned / 255

    @torch.no_grad()
    def save(self, photo):
        return (255 * self(photo)).round().to(torch.uint8)
    # [end]


# [straight]
def whole_numbers(toned):
    return toned + (toned.round() - toned).detach()
# [end]


def program(kind):
    torch.manual_seed(0)
    curve, photo = kind(), 0.1 + 0.9 * torch.rand(6, 6)
    return curve, lambda: (curve(photo) - photo.sqrt()).abs().mean()


def make():
    return program(ToneCurve)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedToneCurve)


def look_at(curve, photo):
    toned = 255 * curve.gain * photo
    # [see]
    print(toned.dtype, toned.requires_grad)
    print(toned.to(torch.uint8).dtype, toned.to(torch.uint8).requires_grad)
    # [end]
    return toned


# [verify]
def gradients(model, step):
    model.zero_grad()
    step().backward()
    return {name: parameter.grad.item() for name, parameter in model.named_parameters()}
# [end]


def message(attempt):
    try:
        attempt()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def experiment_backward_raises():
    _, step = make()
    assert "element 0 of tensors does not require grad" in message(lambda: step().backward())


def experiment_integers_can_not_require_grad():
    pixels = look_at(make()[0], torch.rand(2)).to(torch.uint8)
    assert not pixels.requires_grad
    assert "floating point" in message(lambda: pixels.requires_grad_(True))
    assert torch.zeros(2, dtype=torch.complex64, requires_grad=True).requires_grad


def experiment_the_cure_has_a_gradient_for_both_and_saves_integers():
    curve, step = make_fixed()
    assert all(gradient != 0 for gradient in gradients(curve, step).values())
    assert curve.save(torch.rand(2, 2)).dtype == torch.uint8


def experiment_straight_through_rounding_learns():
    toned = torch.tensor([0.4, 7.7], requires_grad=True)
    whole = whole_numbers(toned)
    assert torch.equal(whole, torch.tensor([0.0, 8.0]))
    whole.sum().backward()
    assert torch.equal(toned.grad, torch.ones(2))


def experiment_going_back_to_float_is_too_late():
    toned = look_at(make()[0], torch.rand(2))
    assert toned.long().float().grad_fn is None


def experiment_float_casts_keep_the_graph():
    toned = look_at(make()[0], torch.rand(2))
    assert all(cast.requires_grad for cast in (toned.half(), toned.bfloat16(), toned.double()))


def experiment_round_alone_cuts_nothing_but_gives_zero():
    toned = torch.tensor([0.4, 7.7], requires_grad=True)
    toned.round().sum().backward()
    assert torch.equal(toned.grad, torch.zeros(2))


def experiment_integer_inputs_and_labels_are_fine():
    table, label = nn.Embedding(9, 3), torch.tensor([2])
    nn.functional.cross_entropy(table(torch.tensor([4])), label).backward()
    assert table.weight.grad.abs().sum() > 0


class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, toned):
        return toned.round().to(torch.uint8)

    @staticmethod
    def backward(ctx, grad):
        return grad


class WholeFloats(Whole):
    @staticmethod
    def forward(ctx, toned):
        return toned.round()


def experiment_a_backward_of_ones_own_is_not_asked_for_integers():
    toned = look_at(make()[0], torch.rand(2))
    assert not Whole.apply(toned).requires_grad
    rounded = WholeFloats.apply(toned)
    assert rounded.requires_grad and torch.equal(rounded, toned.round())
