"""A step that freezes one player of two while the other takes its turn, as the generator's step of a GAN does."""

from __future__ import annotations

import torch
from torch import nn

import gradkit

Z = torch.linspace(-1, 1, 12).view(4, 3)


class Players(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = nn.Linear(3, 4), nn.Linear(4, 1)

    def turn(self) -> torch.Tensor:
        self.critic.requires_grad_(False)
        return -self.critic(self.generator(Z)).mean()


def test_a_player_that_the_step_freezes_and_its_optimizer_does_not_hold_is_not_accused() -> None:
    model = Players()
    optimizer = torch.optim.Adam(model.generator.parameters())
    report = gradkit.diagnose(model.turn, model=model, optimizer=optimizer)
    assert not report.findings
    assert set(report.meant.apart) == {"critic.weight", "critic.bias"}
    assert all(p.requires_grad for p in model.critic.parameters())


def test_what_the_step_freezes_though_its_optimizer_holds_it_is_accused() -> None:
    model = Players()
    optimizer = torch.optim.Adam(model.parameters())
    found = gradkit.diagnose(model.turn, model=model, optimizer=optimizer).findings
    assert [one.cause for one in found] == ["frozen_all"]
