"""A clean bill tells what a helper froze: by the line in it, and by the names of whole parts. One line here freezes."""

from __future__ import annotations

import torch
from torch import nn

import gradkit
from gradkit.types import Report


class Mapper(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 6), nn.Linear(6, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return out


class Forecast(nn.Module):
    """Two parts whose last name is the same."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.ModuleDict({"data": Mapper(4, 5)})
        self.middle = nn.Linear(5, 5)
        self.decoder = nn.ModuleDict({"data": Mapper(5, 2)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.decoder["data"](torch.relu(self.middle(self.encoder["data"](x))))
        return out


class Freezer:
    def __init__(self, model: nn.Module, names: list[str]) -> None:
        self.model = model
        for name in names:
            self.freeze(name)

    def freeze(self, target: str) -> None:
        for path, module in self.model.named_modules():
            if path.split(".")[-1] == target:
                module.requires_grad_(False)  # HERE


def of(model: nn.Module) -> Report:
    Freezer(model, ["data"])
    return gradkit.diagnose(lambda: model(torch.ones(3, 4)).square().mean(), model=model)


def test_the_line_in_a_helper_that_freezes_is_told_and_not_its_call() -> None:
    report = of(Forecast())
    assert report.healthy
    (one,) = report.meant.frozen
    assert one.location.text.endswith("# HERE")
    assert {name.partition(".")[0] for name in one.parameters} == {"encoder", "decoder"}


def test_parts_that_are_frozen_as_a_whole_are_told_by_their_own_names() -> None:
    said = of(Forecast()).text("en")
    assert "encoder.*, decoder.* (" in said
