"""A railway: a net shapes a hill, an engineer built a ramp; passengers feel how the slope of each changes."""

import torch
from torch import nn


def slope_of(height, place):
    slope, = torch.autograd.grad(height.sum(), place, create_graph=True)
    return slope


class Railway(nn.Module):
    def __init__(self):
        super().__init__()
        self.hill = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1, bias=False))

    def pieces(self, place):
        return [self.hill(place), 0.02 * place]

    # [wrong]
    def bend(self, height, place):
        slope = slope_of(height, place)
        return slope_of(slope, place)  # CUT
    # [end]

    def forward(self, place):
        return torch.stack([self.bend(height, place) for height in self.pieces(place)])


class FixedRailway(Railway):
    # [fixed]
    def bend(self, height, place):
        slope = slope_of(height, place)
        if not slope.requires_grad:
            return torch.zeros_like(place)
        return slope_of(slope, place)
    # [end]


class JoinedRailway(Railway):
    def forward(self, place):
        # [join]
        height = sum(self.pieces(place))
        bend = slope_of(slope_of(height, place), place)
        # [end]
        return bend[None]


def data():
    return torch.linspace(-1, 1, 11)[:, None].requires_grad_()


def program(kind):
    torch.manual_seed(0)
    model, place = kind(), data()
    return model, lambda: (model(place).sum(dim=0) - 0.1).pow(2).mean()


def make():
    return program(Railway)


FAILS = "step raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(FixedRailway)


def smallest():
    # [smallest]
    place = torch.ones(1, requires_grad=True)
    slope, = torch.autograd.grad(2 * place, place, create_graph=True)
    print(torch.__version__, slope, slope.requires_grad)
    torch.autograd.grad(slope, place)
    # [end]


# [verify]
def same_as_measured(model, place, step=1e-2):
    with torch.no_grad():
        before, here, behind = (sum(model.pieces(place + move)) for move in (-step, 0, step))
    return torch.allclose(model(place).sum(dim=0), (before - 2 * here + behind) / step**2, atol=1e-2)
# [end]


NO_GRAD_FN = "element 0 of tensors does not require grad and does not have a grad_fn"
UNUSED = "appears to not have been used in the graph"


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def gradients(kind):
    model, step = program(kind)
    step().backward()
    return [parameter.grad for parameter in model.parameters()]


def experiment_the_step_raises():
    _, step = make()
    assert NO_GRAD_FN in refused(step)


def experiment_the_slope_of_a_straight_piece_is_right_and_has_no_history():
    model, place = make()[0], data()
    hill, ramp = (slope_of(height, place) for height in model.pieces(place))
    assert hill.requires_grad and not ramp.requires_grad
    assert torch.allclose(ramp, torch.full_like(place, 0.02))


def experiment_recording_is_on_and_nothing_is_cut():
    model, place = make()[0], data()
    assert torch.is_grad_enabled() and place.requires_grad
    assert all(height.grad_fn is not None for height in model.pieces(place))


def experiment_four_lines_without_any_model_raise_the_same():
    assert NO_GRAD_FN in refused(smallest)


def experiment_a_curve_in_the_same_lines_does_not():
    place = torch.ones(1, requires_grad=True)
    assert slope_of(slope_of(place.pow(2), place), place) == 2


def experiment_another_door_of_the_library_answers_zero():
    def ramp(place):
        return 0.02 * place

    assert torch.func.grad(torch.func.grad(ramp))(torch.tensor(1.0)) == 0


def experiment_the_cure_gives_the_bend_that_is_measured():
    (model, _), place = make_fixed(), data()
    assert same_as_measured(model, place)
    assert not model.bend(0.02 * place, place).any()


def experiment_pieces_that_are_added_up_first_give_the_same_gradients():
    for mine, cured in zip(gradients(JoinedRailway), gradients(FixedRailway)):
        assert mine.any() and torch.allclose(mine, cured, atol=1e-6)


def experiment_no_flag_of_grad_helps():
    place = data()
    slope = slope_of(0.02 * place, place)
    assert NO_GRAD_FN in refused(lambda: torch.autograd.grad(slope.sum(), place, allow_unused=True))
    assert NO_GRAD_FN in refused(lambda: torch.autograd.grad(slope.sum(), place, materialize_grads=True))


def experiment_requires_grad_on_the_slope_only_changes_the_error():
    place = data()
    slope = slope_of(0.02 * place, place).requires_grad_()
    assert UNUSED in refused(lambda: torch.autograd.grad(slope.sum(), place))


def experiment_a_steepness_that_is_learned_raises_another_error():
    place, steep = data(), torch.tensor(0.02, requires_grad=True)
    slope = slope_of(steep * place, place)
    assert slope.requires_grad and UNUSED in refused(lambda: slope_of(slope, place))
    bend, = torch.autograd.grad(slope.sum(), place, materialize_grads=True)
    assert not bend.any()


def experiment_a_slope_cut_by_detach_raises_the_same_on_a_curve():
    place = data()
    slope = slope_of(place.pow(2), place).detach()
    assert NO_GRAD_FN in refused(lambda: slope_of(slope, place))


def experiment_a_recurrent_net_in_eval_mode_depends_on_the_device():
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        net = nn.LSTM(2, 3).to(device).eval()
        out = net(torch.randn(4, 1, 2, device=device))[0]
        told = refused(out.sum().backward)
        assert told == ("" if device == "cpu" else "cudnn RNN backward can only be called in training mode")
        with torch.backends.cudnn.flags(enabled=False):
            net(torch.randn(4, 1, 2, device=device))[0].sum().backward()
