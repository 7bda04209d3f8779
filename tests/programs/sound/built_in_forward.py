"""Sound programs that look like `built_in_forward` and are not."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, small, sound

# -- gradients that are exactly zero, and rightly so ------------------------------------------------------------------


@sound
def a_perturbation_that_an_inner_optimizer_trains() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            delta = nn.Parameter(torch.zeros_like(x))
            inner = torch.optim.SGD([delta], lr=0.1)
            for _ in range(2):
                inner.zero_grad()
                (-self.net(x + delta)).sum().backward()
                inner.step()
            return self.net(x + delta).pow(2).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)


@sound
def a_parameter_that_the_first_forward_registers() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 1)
            self.register_parameter("gain", None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.gain is None:
                self.gain = nn.Parameter(torch.ones(x.shape[-1]))
            return self.out(x * self.gain).sum()

    model, x = Model(), batch()
    return model, lambda: model(x)
