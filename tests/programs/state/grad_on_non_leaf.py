"""Programs whose fault, or what looks like one, is `grad_on_non_leaf` and stands outside of the step."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, faulty, step_of

# -- leaves that were lost ------------------------------------------------------------------------------------------


@faulty("grad_on_non_leaf")
def a_latent_that_is_scaled_after_it_asked_for_a_gradient() -> Built:
    class Search(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = nn.Linear(4, 4).requires_grad_(False)
            self.latent = torch.randn(1, 4, requires_grad=True) * 0.1  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.decoder(self.latent) - x).pow(2).mean()

    model, x = Search(), batch()
    return model, step_of(lambda: model(x), should_train=["latent"])


@faulty("grad_on_non_leaf")
def a_latent_that_a_method_scales_before_it_hands_it_over() -> Built:
    class Search(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = nn.Linear(4, 4).requires_grad_(False)
            self.latent = self.start()

        def start(self) -> torch.Tensor:
            noise = torch.randn(1, 4, requires_grad=True)
            return noise * 0.1  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.decoder(self.latent) - x).pow(2).mean()

    model, x = Search(), batch()[:1]
    return model, step_of(lambda: model(x), should_train=["latent"])


@faulty("grad_on_non_leaf")
def a_latent_that_is_moved_by_a_later_method() -> Built:
    class Search(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = nn.Linear(4, 4).requires_grad_(False)
            self.latent = torch.randn(1, 4, requires_grad=True)
            self.place()

        def place(self) -> None:
            self.latent = self.latent.view(4)[None]  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.decoder(self.latent) - x).pow(2).mean()

    model, x = Search(), batch()
    return model, step_of(lambda: model(x), should_train=["latent"])
