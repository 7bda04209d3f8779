"""Programs that lose the gradient by `non_scalar`."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, cut, small

# -- the loss itself --------------------------------------------------------------------------------------------------


@cut("non_scalar")
def a_loss_without_reduction() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        return F.mse_loss(model(x), torch.ones(6, 1), reduction="none")  # CUT

    return model, step


class Losing(nn.Module):
    """Computes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).pow(2).mean()


class Replicas:
    """Runs a module on the parts of a batch and gathers what comes back."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.gathered([self.module(part) for part in x.chunk(2)])

    def gathered(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([part[None] for part in parts])


class ReplicasAsAModule(nn.Module):
    """The same, as a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.module(part) for part in x.chunk(2)])


@cut("non_scalar")
def losses_of_replicas_that_a_wrapper_gathers() -> Built:
    model, x = Losing(), batch()
    parallel = Replicas(model)

    def step() -> torch.Tensor:
        return parallel(x)  # CUT

    return model, step


@cut("non_scalar")
def losses_of_replicas_that_a_module_gathers() -> Built:
    model, x = ReplicasAsAModule(Losing()), batch()

    def step() -> torch.Tensor:
        return model(x)  # CUT

    return model, step


@cut("non_scalar")
def losses_of_two_heads_that_the_model_itself_stacks() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.criterion = nn.Linear(4, 1), nn.Linear(4, 1), nn.MSELoss()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            losses = [self.criterion(head(x), x[:, :1]) for head in (self.one, self.other)]
            return torch.stack(losses)  # CUT

    model, x = Model(), batch()
    return model, lambda: model(x)


@cut("non_scalar")
def losses_of_parts_that_the_step_itself_stacks() -> Built:
    model, x = Losing(), batch()

    def step() -> torch.Tensor:
        return torch.stack([model(part) for part in x.chunk(2)])  # CUT

    return model, step


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("non_scalar")
def a_gradient_asked_of_many_elements() -> Built:
    model, x = small(), batch().requires_grad_()

    def step() -> torch.Tensor:
        (slope,) = torch.autograd.grad(model(x), x, create_graph=True)  # CUT
        return slope.pow(2).sum()

    return model, step


# -- a sum ------------------------------------------------------------------------------------------------------------


@cut("non_scalar")
def a_term_of_many_elements_beside_one_that_is_a_number() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        fit = F.mse_loss(model(x), torch.ones(6, 1))
        size = F.l1_loss(model(x), torch.zeros(6, 1), reduction="none")  # CUT
        return fit + 0.1 * size

    return model, step


@cut("non_scalar")
def a_sum_of_terms_of_many_elements_that_one_criterion_returns() -> Built:
    model, x = small(), batch()

    def hinge(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (one - other + 0.05).clamp(min=0)  # CUT

    def step() -> torch.Tensor:
        scores = [model(x * factor) for factor in (1, 2, 3)]
        return sum((hinge(*two) for two in itertools.pairwise(scores)), torch.zeros(()))

    return model, step


@cut("non_scalar")
def a_model_whose_output_is_scaled_and_taken_for_a_loss() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        return model(x) * 0.5  # CUT

    return model, step


@cut("non_scalar")
def a_term_that_a_function_hands_over_without_its_mean() -> Built:
    model, x = small(), batch()

    def entropy(values: torch.Tensor) -> torch.Tensor:
        return -values  # CUT

    def step() -> torch.Tensor:
        values = F.softplus(model(x))
        return values.mean() + 0.1 * entropy(values)

    return model, step
