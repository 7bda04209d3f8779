"""Stage lights: an eye looks at the scene and sets four lamps, which know sixteen levels; so its answer is rounded."""

import torch
from torch import nn
from torch.nn import functional as F


class Lights(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.stage = nn.Linear(6, 4), nn.Linear(4, 3)

    # [wrong]
    def lamps(self, scene):
        return torch.round(torch.sigmoid(self.eye(scene)) * 15) / 15  # CUT
    # [end]

    def forward(self, scene):
        return self.stage(self.lamps(scene))


class FixedLights(Lights):
    # [fixed]
    def lamps(self, scene):
        smooth = torch.sigmoid(self.eye(scene))
        steps = torch.round(smooth * 15) / 15
        return smooth + (steps - smooth).detach()
    # [end]


class SmoothLights(Lights):
    def lamps(self, scene):
        return torch.sigmoid(self.eye(scene))


class DarkLights(SmoothLights):
    def glow(self, current):
        return torch.relu(current)

    def forward(self, scene):
        return self.glow(super().forward(scene) - 5)


class SoftLights(DarkLights):
    def glow(self, current):
        return F.softplus(current)


class LeakyLights(DarkLights):
    def glow(self, current):
        return F.leaky_relu(current)


class LitLights(DarkLights):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.stage.bias += 5


class DimmedLights(SmoothLights):
    def __init__(self, start=80.0):
        super().__init__()
        self.dimmer = nn.Parameter(torch.tensor(start))

    def dimmed(self):
        return self.dimmer.clamp(0.0, 1.0)

    def lamps(self, scene):
        return super().lamps(scene) * self.dimmed()


class StartedLights(DimmedLights):
    def __init__(self):
        super().__init__(0.8)


class PercentLights(DimmedLights):
    def dimmed(self):
        return self.dimmer.clamp(0.0, 100.0) / 100


class SigmoidLights(DimmedLights):
    def __init__(self):
        super().__init__(1.4)

    def dimmed(self):
        return torch.sigmoid(self.dimmer)


class RawLights(SmoothLights):
    def lamps(self, scene):
        return torch.tanh(self.eye(scene * 200_000))


class ScaledLights(RawLights):
    def lamps(self, scene):
        return super().lamps(scene / 200_000)


def program(kind):
    torch.manual_seed(0)
    model, scene, mood = kind(), torch.randn(12, 6), torch.rand(12, 3)
    return model, lambda: F.mse_loss(model(scene), mood)


def make():
    return program(Lights)


FAILS = "partial"


def make_fixed():
    return program(FixedLights)


def make_extinct():
    return program(DarkLights)


def make_beyond():
    return program(DimmedLights)


# [see]
def gradient_norms(model, step):
    model.zero_grad()
    step().backward()
    return {name: None if p.grad is None else p.grad.norm().item() for name, p in model.named_parameters()}
# [end]


# [nudge]
def answers(function, x, nudge=1e-3):
    return function(x) != function(x + nudge)
# [end]


# [verify]
def no_signal(model, step):
    model.zero_grad()
    step().backward()
    wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [name for name, p in wanted if p.grad is None or not p.grad.any()]
# [end]


EYE = ["eye.weight", "eye.bias"]


def experiment_the_loss_falls_and_the_eye_gets_exactly_zero():
    model, step = make()
    optimizer, first, eye = torch.optim.SGD(model.parameters(), lr=0.1), step().item(), model.eye.weight.clone()
    for _ in range(20):
        step().backward()
        assert model.eye.weight.grad is not None and not model.eye.weight.grad.any()
        optimizer.step()
        optimizer.zero_grad()
    assert step().item() < first and torch.equal(model.eye.weight, eye)


def experiment_alone_it_raises_no_error_either():
    model, step = make()
    model.stage.requires_grad_(False)
    step().backward()
    assert no_signal(model, step) == ["eye.weight", "eye.bias"]


def experiment_the_graph_is_whole():
    lamps = make()[0].lamps(torch.randn(2, 6))
    rounded = lamps.grad_fn.next_functions[0][0]
    assert rounded.name() == "RoundBackward0" and lamps.requires_grad


def experiment_a_staircase_is_flat_wherever_you_stand():
    for stairs in (torch.round, torch.floor, torch.ceil, torch.trunc, torch.sign, lambda x: x.div(1, rounding_mode="floor")):
        x = torch.tensor([-1.3, 0.2, 2.7], requires_grad=True)
        y = stairs(x)
        y.sum().backward()
        assert y.grad_fn is not None and not x.grad.any()
        assert not answers(stairs, x.detach()).any()


def experiment_drawing_with_bernoulli_is_flat_too():
    chance = torch.full((5,), 0.5, requires_grad=True)
    drawn = torch.bernoulli(chance)
    drawn.sum().backward()
    assert drawn.grad_fn is not None and not chance.grad.any()


def experiment_the_norms_are_zero_before_the_step():
    norms = gradient_norms(*make())
    assert norms["eye.weight"] == norms["eye.bias"] == 0.0
    assert norms["stage.weight"] > 0


def experiment_straight_through_is_stepped_forward_and_smooth_backward():
    fixed, stepped = make_fixed()[0], make()[0]
    scene = torch.randn(5, 6)
    assert torch.allclose(fixed.lamps(scene), stepped.lamps(scene), atol=1e-6)
    fixed.lamps(scene).sum().backward()
    smooth, _ = program(SmoothLights)
    smooth.lamps(scene).sum().backward()
    assert torch.allclose(fixed.eye.weight.grad, smooth.eye.weight.grad, atol=1e-6)


def experiment_a_hard_gumbel_draw_passes_gradient():
    wish = torch.zeros(3, 4, requires_grad=True)
    drawn = F.gumbel_softmax(wish, hard=True)
    assert torch.equal(drawn.detach().sum(dim=1), torch.ones(3)) and drawn.detach().max() == 1
    (drawn * torch.arange(4.0)).sum().backward()
    assert wish.grad.any()


def experiment_the_cure_gives_every_weight_a_signal():
    assert no_signal(*make_fixed()) == []


def experiment_where_every_label_is_ignored_the_loss_is_nan_and_the_gradient_zero():
    scores = torch.randn(4, 3, requires_grad=True)
    loss = F.cross_entropy(scores, torch.full((4,), -100))
    loss.backward()
    assert loss.isnan() and not scores.grad.any()


def experiment_weight_decay_moves_a_weight_that_learns_nothing():
    model, step = make()
    optimizer, eye = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01), model.eye.weight.clone()
    step().backward()
    optimizer.step()
    assert not model.eye.weight.grad.any() and torch.allclose(model.eye.weight, eye * 0.999)


def experiment_no_learning_rate_is_large_enough():
    model, step = make()
    optimizer, eye = torch.optim.SGD(model.parameters(), lr=1e6), model.eye.weight.clone()
    step().backward()
    optimizer.step()
    assert torch.equal(model.eye.weight, eye)


def experiment_lora_starts_with_a_zero_and_leaves_it():
    torch.manual_seed(0)
    down, up, x = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False), torch.randn(8, 6)
    nn.init.zeros_(up.weight)
    optimizer = torch.optim.SGD([*down.parameters(), *up.parameters()], lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        (up(down(x)) - x).pow(2).mean().backward()
        assert down.weight.grad.any() == (step > 0) and up.weight.grad.any()
        optimizer.step()


def experiment_a_kink_is_innocent_as_long_as_some_values_lie_where_there_is_a_slope():
    values = [-7.3, -0.6, 0.3, 2.7, 7.4]
    for function, where in [(torch.frac, values), (torch.abs, values), (torch.relu, values[2:]), (lambda x: x.clamp(0, 5), values[2:4])]:
        x = torch.tensor(values, requires_grad=True)
        function(x).sum().backward()
        assert x.detach()[x.grad != 0].tolist() == torch.tensor(where).tolist()
    unit, hidden = nn.Linear(6, 2), torch.randn(50, 6)
    with torch.no_grad():
        unit.bias.copy_(torch.tensor([0.0, -100.0]))
    torch.relu(unit(hidden)).sum().backward()
    assert unit.weight.grad[0].any() and not unit.weight.grad[1].any()


def experiment_two_zeros_hold_each_other():
    down, up, x = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False), torch.randn(8, 6)
    nn.init.zeros_(down.weight)
    nn.init.zeros_(up.weight)
    optimizer = torch.optim.SGD([*down.parameters(), *up.parameters()], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (up(down(x)) - x).pow(2).mean().backward()
        optimizer.step()
    assert not down.weight.any() and not up.weight.any()


def experiment_a_last_relu_below_zero_for_every_example_never_wakes():
    model, step = make_extinct()
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1), step().item()
    for _ in range(20):
        assert no_signal(model, step) == [*EYE, "stage.weight", "stage.bias"]
        optimizer.step()
    assert step().item() == first
    for kind in (SoftLights, LeakyLights, LitLights):
        assert no_signal(*program(kind)) == []


def experiment_a_parameter_beyond_its_own_bounds_never_comes_back():
    model, step = make_beyond()
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1), step().item()
    for _ in range(20):
        assert no_signal(model, step) == ["dimmer"]
        optimizer.step()
    assert step().item() < first and model.dimmer == 80
    for kind in (StartedLights, PercentLights, SigmoidLights):
        assert no_signal(*program(kind)) == []


def experiment_a_picture_sampled_at_the_nearest_pixel_is_flat_in_the_place():
    picture = torch.rand(1, 1, 5, 5, requires_grad=True)
    for mode, learns in [("nearest", False), ("bilinear", True)]:
        place = torch.tensor([[[[0.13, -0.41]]]], requires_grad=True)
        F.grid_sample(picture, place, mode=mode, align_corners=False).sum().backward()
        assert place.grad.any() == learns and picture.grad.any()


def experiment_inputs_that_are_far_too_large_leave_tanh_without_a_slope():
    assert torch.tanh(torch.tensor(10.0)) == 1
    assert no_signal(*program(RawLights)) == EYE
    assert no_signal(*program(ScaledLights)) == []
