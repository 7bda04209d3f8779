"""A gradient that stays exactly zero is a finding, with the reason; one that comes back after a step is meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.types import Report
from gradkit.witness.listening import listening

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(6, 4, generator=GENERATOR), torch.randn(6, 3, generator=GENERATOR)


class LowRank(nn.Module):
    def __init__(self, zero_down: bool) -> None:
        super().__init__()
        self.base = nn.Linear(4, 3).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, 4))
        self.up = nn.Parameter(torch.randn(3, 2))
        if zero_down:
            nn.init.zeros_(self.down)
        nn.init.zeros_(self.up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + (x @ self.down.t()) @ self.up.t()
        return out


class Gated(nn.Module):
    def __init__(self, trained: bool) -> None:
        super().__init__()
        self.skip, self.branch = nn.Linear(4, 3), nn.Linear(4, 3)
        if trained:
            self.gate = nn.Parameter(torch.zeros(3))
        else:
            self.register_buffer("gate", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.skip(x) + self.gate * self.branch(x)
        return out


class Silent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(4, 5), nn.Linear(5, 3)
        nn.init.constant_(self.enter.bias, -40.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.leave(F.relu(self.enter(x)))
        return out


class Bounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        nn.init.constant_(self.layer.bias, 99.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).clamp(0, 1)


class ZeroLast(nn.Module):
    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)
        nn.init.zeros_(self.head.weight)
        self.head.weight.requires_grad_(not frozen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.tanh(self.body(x)))
        return out


def diagnosed(build: Callable[[], nn.Module], *, seen: bool = False) -> Report:
    torch.manual_seed(0)
    if seen:
        with listening():
            model = build()
    else:
        model = build()
    return gradkit.diagnose(lambda: F.mse_loss(model(X), Y), model=model)


def told(report: Report) -> list[tuple[str, str, str]]:
    return [
        (one.cause, one.variant, one.location.text.strip() if one.location is not None else "")
        for one in report.findings
    ]


@pytest.mark.parametrize(
    ("build", "variant", "line"),
    [
        (lambda: LowRank(zero_down=True), "deadlock", "nn.init.zeros_(self.down)"),
        (lambda: Gated(trained=False), "held", 'self.register_buffer("gate", torch.zeros(3))'),
        (Silent, "silenced", "nn.init.constant_(self.enter.bias, -40.0)"),
        (Bounded, "silenced", "nn.init.constant_(self.layer.bias, 99.0)"),
        (lambda: ZeroLast(frozen=True), "held", "nn.init.zeros_(self.head.weight)"),
    ],
    ids=["both_factors", "gate_in_a_buffer", "dead_relu", "saturated_clamp", "frozen_zero_head"],
)
def test_what_holds_a_gradient_at_zero_is_named_with_the_line_that_set_it(
    build: Callable[[], nn.Module], variant: str, line: str
) -> None:
    assert told(diagnosed(build, seen=True)) == [("zero_gradient", variant, line)]


def test_units_that_may_only_be_silent_for_this_batch_are_told_and_not_accused_in_one_step() -> None:
    report = diagnosed(Silent)
    assert report.healthy
    assert "zero_inactive" in {one.why for one in report.harmless}


@pytest.mark.parametrize(
    "build",
    [lambda: LowRank(zero_down=False), lambda: Gated(trained=True), lambda: ZeroLast(frozen=False)],
    ids=["zero_second_factor", "trained_gate", "zero_head"],
)
def test_a_zero_that_the_next_step_leaves_is_acquitted_by_name(build: Callable[[], nn.Module]) -> None:
    report = diagnosed(build)
    assert report.healthy
    assert "wakes" in {one.why for one in report.harmless}


def test_a_target_that_is_the_output_itself_is_found() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)

    def step() -> torch.Tensor:
        out = model(X)
        return F.mse_loss(out, out.detach())

    assert [one.variant for one in gradkit.diagnose(step, model=model).findings] == ["itself"]


def test_a_hinge_that_holds_for_the_whole_batch_is_no_fault() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    report = gradkit.diagnose(lambda: F.relu(model(X) - 50).mean(), model=model)
    assert report.healthy


def test_a_mask_of_zeros_is_the_batches_matter_in_a_single_step() -> None:
    torch.manual_seed(0)
    model, mask = nn.Linear(4, 3), torch.zeros(6, 1)
    report = gradkit.diagnose(lambda: (mask * (model(X) - Y).square()).mean(), model=model)
    assert report.healthy
    assert report.barren


def test_nothing_is_changed_by_the_steps_that_are_taken_to_see_whether_a_gradient_comes_back() -> None:
    torch.manual_seed(0)
    model = Gated(trained=True)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    state = torch.get_rng_state()
    gradkit.diagnose(lambda: F.mse_loss(model(X), Y), model=model)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


class ZeroPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 3)
        self.down = nn.Parameter(torch.zeros(4, 2))
        self.up = nn.Parameter(torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + x @ self.down @ self.up
        return out


class ZeroLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.skip = nn.Linear(4, 3)
        nn.init.zeros_(self.up.weight)
        nn.init.constant_(self.down.weight, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.skip(x) + self.up(self.down(x))
        return out


class GatedZeroBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.skip, self.branch = nn.Linear(4, 3), nn.Linear(4, 3)
        nn.init.zeros_(self.branch.weight)
        nn.init.zeros_(self.branch.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.skip(x) + self.gate.tanh() * self.branch(x)
        return out


class TwoZeroPairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = ZeroPair()
        self.gate, self.widen = nn.Parameter(torch.zeros(3)), nn.Linear(4, 3)
        self.widen.weight.data.zero_()
        self.widen.bias.data.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.first(x) + self.gate * self.widen(x)
        return out


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (ZeroPair, "self.down = nn.Parameter(torch.zeros(4, 2))"),
        (ZeroLinears, "nn.init.constant_(self.down.weight, 0)"),
        (GatedZeroBranch, "nn.init.zeros_(self.branch.weight)"),
    ],
    ids=["low_rank_pair", "two_linears", "gated_branch"],
)
def test_of_two_factors_that_hold_each_other_at_zero_the_one_applied_first_is_named(
    build: Callable[[], nn.Module], line: str
) -> None:
    assert told(diagnosed(build)) == [("zero_gradient", "deadlock", line)]


def nothing(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


def little(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * 1e-3)


def filled(*shape: int) -> nn.Parameter:
    made = nn.Parameter(torch.empty(*shape))
    nn.init.zeros_(made)
    return made


class Handed(nn.Module):
    def __init__(self, make: Callable[..., nn.Parameter]) -> None:
        super().__init__()
        self.base, self.make = nn.Linear(4, 3), make
        self.down = make(4, 2)
        self.up = self.make(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + x @ self.down @ self.up
        return out


class Filled(Handed):
    def __init__(self) -> None:
        super().__init__(little)
        self.down, self.up = filled(4, 2), filled(2, 3)


class ByMethod(Handed):
    def __init__(self) -> None:
        super().__init__(little)
        self.down, self.up = self.start(4, 2), self.start(2, 3)

    def start(self, *shape: int) -> nn.Parameter:
        made = torch.zeros(*shape)
        return nn.Parameter(made)


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (lambda: Handed(nothing), "return nn.Parameter(torch.zeros(*shape))"),
        (Filled, "nn.init.zeros_(made)"),
        (ByMethod, "made = torch.zeros(*shape)"),
    ],
    ids=["handed_over", "filled", "method"],
)
def test_the_line_in_a_helper_that_makes_both_factors_zero_is_named_once(
    build: Callable[[], nn.Module], line: str
) -> None:
    assert told(diagnosed(build)) == [("zero_gradient", "deadlock", line)]
    assert not any(note.kind == "zero_too" for note in diagnosed(build).findings[0].notes)


def test_a_helper_that_does_not_make_zeros_leaves_no_finding() -> None:
    assert diagnosed(lambda: Handed(little)).healthy


def test_each_pair_that_holds_itself_at_zero_is_named_apart() -> None:
    assert [text for _, _, text in told(diagnosed(TwoZeroPairs))] == [
        "self.down = nn.Parameter(torch.zeros(4, 2))",
        "self.widen.weight.data.zero_()",
    ]


def test_a_pair_at_zero_is_found_where_only_its_second_factor_was_asked_for() -> None:
    torch.manual_seed(0)
    model = ZeroPair()
    report = gradkit.diagnose(lambda: F.mse_loss(model(X), Y), model=model, should_train=["up"])
    assert told(report) == [("zero_gradient", "deadlock", "self.down = nn.Parameter(torch.zeros(4, 2))")]
    assert report.findings[0].parameters == ("up",)


def test_a_frozen_pair_at_zero_is_nobodys_fault() -> None:
    model = ZeroPair()
    model.down.requires_grad_(False)
    model.up.requires_grad_(False)
    assert gradkit.diagnose(lambda: F.mse_loss(model(X), Y), model=model).healthy


class Ends(nn.Module):
    def __init__(self, end: Callable[[torch.Tensor], torch.Tensor], shift: float) -> None:
        super().__init__()
        self.layer, self.end, self.shift = nn.Linear(4, 3), end, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.layer(x) + self.shift)


@pytest.mark.parametrize(
    ("end", "shift"),
    [
        (F.relu, -8.0),
        (nn.ReLU(inplace=True), -8.0),
        (lambda out: out.clamp(0, 1), 9.0),
        (torch.sigmoid, 60.0),
        (torch.tanh, -40.0),
        (F.gelu, -40.0),
        (F.silu, -150.0),
        (F.softplus, -150.0),
        (F.elu, -150.0),
        (F.hardsigmoid, 20.0),
    ],
    ids=["relu", "relu_in_place", "clamp", "sigmoid", "tanh", "gelu", "silu", "softplus", "elu", "hardsigmoid"],
)
def test_a_last_function_far_from_its_slope_for_every_example_is_named(
    end: Callable[[torch.Tensor], torch.Tensor], shift: float
) -> None:
    [(cause, variant, _)] = told(diagnosed(lambda: Ends(end, shift)))
    assert (cause, variant) == ("zero_gradient", "extinct")


@pytest.mark.parametrize(
    "step",
    [
        lambda model: F.mse_loss(model(X[:1, :]), Y[:1, :]),
        lambda model: F.relu(0.1 - model(X)).mean() + 0.5,
        lambda model: (model(X) * 0).clamp(1, 2).mean() + (Y - 0.5).square().mean(),
    ],
    ids=["one_example", "a_hinge_and_a_constant", "no_target"],
)
def test_where_all_is_flat_without_a_target_or_for_few_examples_nobody_is_accused(
    step: Callable[[nn.Module], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    model = Ends(F.relu, 9.0)
    with torch.no_grad():
        model.layer.weight.mul_(0.01)
    assert gradkit.diagnose(lambda: step(model), model=model).healthy


def test_a_last_relu_whose_inputs_lie_near_its_slope_may_do_otherwise_for_another_batch() -> None:
    torch.manual_seed(0)
    model, x = Ends(F.relu, 0.0), torch.randn(99, 4)
    below = x[(model.layer(x) < 0).all(1)]
    assert len(below) > 4
    report = gradkit.diagnose(lambda: F.mse_loss(model(below), below[:, :3] + 9), model=model)
    assert report.healthy
    assert "zero_inactive" in {one.why for one in report.harmless}


class Scaled(nn.Module):
    def __init__(self, start: list[float], bound: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.scale, self.bound = nn.Linear(4, 3), nn.Parameter(torch.tensor(start)), bound

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.bound(self.scale)
        out: torch.Tensor = self.layer(x) * scale + scale
        return out


@pytest.mark.parametrize(
    ("start", "bound"),
    [
        ([1e-3], lambda scale: scale.clamp_min(1e-2).clamp_max(1.0)),
        ([3.0, 4.0, 5.0], lambda scale: torch.clamp(scale, 0.0, 1.0)),
        ([-0.5], lambda scale: F.relu(scale) + 1),
        ([-3.0, -2.0, -1.5], lambda scale: F.hardtanh(scale.exp().log())),
        ([4.0], lambda scale: scale.clone().clamp_(max=2.0)),
        ([0.1], lambda scale: torch.maximum(scale, torch.tensor(1.0))),
    ],
    ids=["below", "above", "relu", "hardtanh", "in_place", "maximum"],
)
def test_a_parameter_that_starts_outside_of_its_own_bounds_is_named_at_the_bound(
    start: list[float], bound: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    report = diagnosed(lambda: Scaled(start, bound))
    assert [(one.cause, one.variant, one.parameters) for one in report.findings] == [
        ("zero_gradient", "beyond", ("scale",))
    ]
    assert report.findings[0].location is not None
    assert "scale" in report.findings[0].location.text


@pytest.mark.parametrize(
    ("start", "bound"),
    [
        ([0.5], lambda scale: scale.clamp(1e-2, 1.0)),
        ([0.5, 4.0, -3.0], lambda scale: scale.clamp(1e-2, 1.0)),
        ([-0.5, 0.5, -1.0], F.relu),
        ([4.61], lambda scale: scale.clamp(max=4.605)),
        ([-0.5], lambda scale: F.relu(scale + torch.rand(1))),
        ([-0.5], lambda scale: F.relu(scale - X.mean().abs())),
    ],
    ids=["inside", "some_inside", "some_open", "just_stepped_over", "with_noise", "with_the_batch"],
)
def test_a_parameter_that_is_in_its_bounds_or_may_come_back_is_left_alone(
    start: list[float], bound: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    assert diagnosed(lambda: Scaled(start, bound)).healthy


def test_a_penalty_on_a_parameter_that_is_satisfied_is_no_bound() -> None:
    torch.manual_seed(0)
    model = Scaled([0.5], torch.detach)
    step = lambda: F.mse_loss(model.layer(X), Y) + F.relu(-model.scale).sum()  # noqa: E731
    assert gradkit.diagnose(step, model=model).healthy


class Between(nn.Module):
    """A layer, something that may be flat there, and a layer that learns on."""

    def __init__(self, flat: Callable[[torch.Tensor], torch.Tensor], width: int = 3) -> None:
        super().__init__()
        self.layer, self.flat, self.head = nn.Linear(4, 4), flat, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.flat(self.layer(x)))
        return out


IMAGE = torch.rand(6, 3, 4, 4, generator=GENERATOR)


def sampled(out: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(IMAGE, out[:, None, None, :2] + 9, align_corners=False).flatten(1)


@pytest.mark.parametrize(
    ("flat", "width", "why"),
    [
        (lambda out: torch.fake_quantize_per_tensor_affine(out + 9, 0.01, 0, 0, 255), 4, "zero_clamped"),
        (lambda out: F.softshrink(out, 50.0), 4, "zero_outside"),
        (lambda out: F.hardshrink(out, 50.0), 4, "zero_outside"),
        (lambda out: torch.fmod(X, out + 50), 4, "zero_outside"),
        (lambda out: torch.exp(out - 200), 4, "zero_outside"),
        (sampled, 3, "zero_outside"),
        (lambda out: F.mish(out - 200), 4, "zero_inactive"),
    ],
    ids=["fake_quantize", "softshrink", "hardshrink", "fmod", "exp", "grid_sample", "mish"],
)
def test_what_has_no_slope_for_this_batch_is_told_in_one_step_and_not_accused(
    flat: Callable[[torch.Tensor], torch.Tensor], width: int, why: str
) -> None:
    report = diagnosed(lambda: Between(flat, width))
    assert report.healthy
    assert why in {one.why for one in report.harmless}


def test_gates_of_a_recurrent_net_that_are_shut_for_this_batch_are_told() -> None:
    torch.manual_seed(0)
    net = nn.LSTM(2, 5, batch_first=True)
    times = 1e9 + torch.rand(6, 4, 2)
    report = gradkit.diagnose(lambda: net(times)[0].square().mean() + 1, model=net)
    assert ("zero_clamped", "lstm") in {(one.why, one.call) for one in report.harmless}


def test_a_recurrent_net_that_is_given_zeros_is_not_called_saturated() -> None:
    torch.manual_seed(0)
    net = nn.LSTM(3, 4)
    report = gradkit.diagnose(lambda: (net(torch.zeros(5, 2, 3))[0] - 1).square().mean(), model=net)
    assert report.healthy
    assert not report.harmless


def test_a_kernel_too_narrow_for_its_inputs_is_named_where_it_becomes_0() -> None:
    torch.manual_seed(0)
    model = nn.ParameterDict({"centres": torch.randn(5, 4)})
    far = 40 + 40 * torch.rand(20, 4)

    def step() -> torch.Tensor:
        near = torch.exp(-(far[:, None] - model["centres"]).square().sum(-1))
        return F.mse_loss(near, torch.rand(20, 5))

    [(cause, variant, line)] = told(gradkit.diagnose(step, model=model))
    assert (cause, variant) == ("zero_gradient", "underflow")
    assert "torch.exp(" in line


def test_a_batch_that_a_mask_shuts_out_before_an_exponential_is_no_fault() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    step = lambda: F.mse_loss(torch.exp(model(X) - 1e9), Y)  # noqa: E731
    assert gradkit.diagnose(step, model=model).healthy


class Actor(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.body, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
        self.scale = scale

    def forward(self, x: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
        out = self.out(torch.relu(self.body(x * self.scale)))
        return 2 * torch.tanh(out if temperature == 1 else out / temperature)


STATES = torch.randn(16, 4, generator=GENERATOR)


def test_actions_that_are_far_out_for_every_state_are_named_where_they_saturate() -> None:
    torch.manual_seed(0)
    actor, wish = Actor(1e5), torch.randn(2, 2)
    report = gradkit.diagnose(lambda: (actor(STATES) @ wish).tanh().mean(), model=actor)
    [(cause, variant, line)] = told(report)
    assert (cause, variant) == ("zero_gradient", "saturated")
    assert "torch.tanh(" in line


@pytest.mark.parametrize(
    ("scale", "loss"),
    [
        (1e5, lambda net: -(net(STATES) * net(STATES).detach()).mean()),
        (1e5, lambda net: net(STATES).sum(1).tanh().mean() + sum(p.square().sum() for p in net.parameters())),
        (1e5, lambda net: net(STATES[:4]).sum(1).tanh().mean()),
        (5.0, lambda net: net(STATES).sum(1).tanh().mean()),
        (1.0, lambda net: net(STATES, 1e-6).sum(1).tanh().mean()),
    ],
    ids=["where_the_loss_wants_them", "weights_that_move", "few", "some_inside", "a_temperature_at_its_end"],
)
def test_actions_at_their_limits_are_left_alone(scale: float, loss: Callable[[nn.Module], torch.Tensor]) -> None:
    torch.manual_seed(0)
    actor = Actor(scale)
    assert gradkit.diagnose(lambda: loss(actor), model=actor).healthy


def test_what_a_mask_shuts_out_is_not_far_out_by_itself() -> None:
    torch.manual_seed(0)
    actor, side = Actor(1.0), torch.tensor([1e6, -1e6])
    step = lambda: torch.tanh(actor.out(actor.body(STATES)) + side).prod(1).mean() + 3  # noqa: E731
    assert gradkit.diagnose(step, model=actor).healthy
