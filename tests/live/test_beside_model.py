"""Losses with weights of their own, and latents, that the optimizer does not hold although they are to learn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.core.records import Finding


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(2))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (torch.stack([a, b]) * (-self.log).exp() + self.log).sum()


class Margin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 4))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(F.normalize(h), F.normalize(self.weight)), y)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))


def a_learned_loss() -> None:
    model, loss_of = net(), Weighted()
    optimizer = torch.optim.Adam(model.parameters())  # BUILT
    for x in torch.randn(4, 6, 3):
        h = model(x)
        loss = loss_of(h.pow(2).mean(), (h - 1).abs().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def a_metric_loss() -> None:
    model, metric = net(), Margin()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # BUILT
    for x in torch.randn(4, 6, 3):
        loss = metric(model(x), torch.tensor([0, 1, 2, 0, 1, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def a_bare_weight() -> None:
    model, log_scale = net(), nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # BUILT
    for x in torch.randn(4, 6, 3):
        loss = F.cross_entropy(model(x) * log_scale.exp(), torch.tensor([0, 1, 2, 0, 1, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def found_of(program: Callable[[], object]) -> list[Finding]:
    with gradkit.watch(tell=lambda told: None) as watch:
        program()
    return [finding for report in watch.reports for finding in report.findings]


@pytest.mark.parametrize(
    ("program", "name"),
    [(a_learned_loss, "loss_of.log"), (a_metric_loss, "metric.weight"), (a_bare_weight, "log_scale")],
)
def test_what_was_made_to_learn_behind_the_model_is_told(program: Callable[[], None], name: str) -> None:
    (finding,) = found_of(program)
    assert (finding.cause, finding.parameters) == ("optimizer_mismatch", (name,))
    assert finding.location is not None
    assert finding.location.text.endswith("# BUILT")


# -- what stands beside a model and is not to learn -------------------------------------------------------------------


class Reservoir(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.w)


def trained(model: nn.Module, loss_of: Callable[[], torch.Tensor], and_then: Callable[[], object] = list) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        and_then()


def a_reservoir_before_a_readout() -> None:
    reservoir, readout, x = Reservoir(), nn.Linear(3, 1), torch.randn(6, 3)
    trained(readout, lambda: readout(reservoir(x)).pow(2).mean())


def points_before_a_model() -> None:
    points, model = nn.Parameter(torch.randn(6, 3)), net()
    trained(model, lambda: model(points).pow(2).mean())


def a_loss_of_layers() -> None:
    perceptual, model, x = net(), nn.Linear(3, 3), torch.randn(6, 3)
    trained(model, lambda: (perceptual(model(x)) - perceptual(x)).pow(2).mean())


def a_loss_that_was_loaded() -> None:
    metric, model, x = Margin(), net(), torch.randn(6, 3)
    metric.load_state_dict(Margin().state_dict())
    trained(model, lambda: metric(model(x), torch.zeros(6, dtype=torch.long)))


def a_loss_in_evaluation_mode() -> None:
    metric, model, x = Margin().eval(), net(), torch.randn(6, 3)
    trained(model, lambda: metric(model(x), torch.zeros(6, dtype=torch.long)))


def a_loss_that_is_stepped_by_hand() -> None:
    metric, model, x = Margin(), net(), torch.randn(6, 3)

    def step() -> None:
        for one in metric.parameters():
            given, one.grad = one.grad, None
            one.data -= 0.1 * given if given is not None else 0.0

    trained(model, lambda: metric(model(x), torch.zeros(6, dtype=torch.long)), step)


def a_loss_that_another_optimizer_holds() -> None:
    metric, model, x = Margin(), net(), torch.randn(6, 3)
    rarely = torch.optim.SGD(metric.parameters(), lr=0.1)
    trained(model, lambda: metric(model(x), torch.zeros(6, dtype=torch.long)), lambda: len(rarely.state))


def a_probe() -> None:
    probe, model, x = nn.Parameter(torch.zeros(1)), nn.Linear(3, 1), torch.randn(6, 3)
    trained(model, lambda: (model(x) + probe).pow(2).mean(), lambda: probe.grad)


def an_attack() -> None:
    metric, x = Margin(), torch.randn(6, 4)
    delta = torch.zeros_like(x, requires_grad=True)
    optimizer = torch.optim.Adam([delta], lr=0.01)
    for _ in range(4):
        loss = -metric(x + delta, torch.zeros(6, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


SOUND = [
    a_reservoir_before_a_readout, points_before_a_model, a_loss_of_layers, a_loss_that_was_loaded,
    a_loss_in_evaluation_mode, a_loss_that_is_stepped_by_hand, a_loss_that_another_optimizer_holds, a_probe, an_attack,
]  # fmt: skip


@pytest.mark.parametrize("program", SOUND, ids=lambda one: one.__name__)
def test_what_may_be_meant_as_it_is_is_left_alone(program: Callable[[], None]) -> None:
    assert found_of(program) == []


# -- latents that were made once more ---------------------------------------------------------------------------------


def inverted(made_anew: Callable[[torch.Tensor], torch.Tensor]) -> None:
    generator, target = net().requires_grad_(False), torch.randn(2, 4)
    z = torch.randn(2, 3, requires_grad=True)
    optimizer = torch.optim.SGD([z], lr=0.1)  # BUILT
    z = made_anew(z)
    for _ in range(4):
        optimizer.zero_grad()
        loss = (generator(z[:, :3]) - target).pow(2).mean()
        loss.backward()
        optimizer.step()


def test_a_latent_that_takes_the_place_of_the_optimizers_is_told_and_not_the_frozen_network() -> None:
    (finding,) = found_of(lambda: inverted(lambda z: z.clone().detach().requires_grad_()))
    assert (finding.cause, finding.parameters) == ("optimizer_mismatch", ("z",))
    assert finding.location is not None
    assert finding.location.text.endswith("# BUILT")


def test_a_frozen_network_is_not_accused_where_no_such_latent_is_known() -> None:
    assert found_of(lambda: inverted(lambda z: torch.cat([z, z], 1).detach().requires_grad_())) == []
