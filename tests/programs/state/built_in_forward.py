"""Programs whose fault, or what looks like one, is `built_in_forward` and stands outside of the step."""

from __future__ import annotations

import copy

import torch
from torch import nn

from tests.programs.shared import Built, batch, faulty, pair, small, sound

# -- layers and parameters that the step makes ----------------------------------------------------------------------


@faulty("built_in_forward")
def a_layer_built_in_forward() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Linear(4, 1)(self.body(x)).sum()  # CUT

    model, x = Net(), batch()
    return model, lambda: model(x)


@faulty("built_in_forward")
def two_layers_built_by_a_helper_of_forward() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def project(self, x: torch.Tensor, width: int) -> torch.Tensor:
            layer = nn.Sequential(nn.Linear(x.shape[-1], width), nn.ReLU(), nn.Linear(width, 1))  # CUT
            return layer(x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.project(self.body(x), 3).sum()

    model, x = Net(), batch()

    def step() -> torch.Tensor:
        loss = model(x)
        loss.backward()
        return loss

    return model, step


@sound
def a_latent_made_and_optimised_in_the_step() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        latent = nn.Parameter(torch.zeros(6, 4))
        optimizer = torch.optim.SGD([latent], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (model["inner"](latent) - x).pow(2).mean().backward()
            optimizer.step()
        model.zero_grad()
        return model["outer"](model["inner"](latent)).sum()

    return model, step


@sound
def a_latent_moved_by_hand_along_its_gradient() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        latent = nn.Parameter(torch.zeros(6, 4))
        (slope,) = torch.autograd.grad((model["inner"](latent) - x).pow(2).mean(), latent)
        return model["outer"](model["inner"](latent - slope)).sum()

    return model, step


@sound
def a_layer_built_in_forward_that_has_nothing_to_learn() -> Built:
    model, x = small(), batch()
    return model, lambda: nn.MSELoss()(nn.Dropout(0.0)(model(x)), torch.ones(6, 1))


@sound
def a_constant_layer_built_in_the_step() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        blur = nn.Linear(4, 4, bias=False).requires_grad_(False)
        return model["outer"](blur(model["inner"](x))).sum()

    return model, step


@sound
def a_copy_of_the_model_adapted_in_the_step() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        twin = copy.deepcopy(model)
        return (twin(x) - model(x)).pow(2).sum() + model(x).sum()

    return model, step


@sound
def a_prompt_tuned_by_hand_inside_forward() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
            (slope,) = torch.autograd.grad(self.body(x + first).sum(), first)
            self.body(x + second).sum().backward()
            return self.body(x + first - slope + second - second.grad).sum()

    model, x = Net(), batch()
    return model, lambda: model(x)
