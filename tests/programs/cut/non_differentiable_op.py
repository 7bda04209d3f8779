"""Programs that lose the gradient by `non_differentiable_op`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import LABELS, Built, _one_worker, batch, cut, pair

# -- new tensors, integers, operations without derivative -------------------------------------------------------------


@cut("non_differentiable_op")
def a_choice_by_argmax() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        choice = model["inner"](x).argmax(-1)  # CUT
        return model["outer"](F.one_hot(choice, 4).float()).sum()

    return model, step


@cut("non_differentiable_op")
def a_threshold() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        mask = (model["inner"](x) > 0).float()  # CUT
        return model["outer"](mask).sum()

    return model, step


@cut("non_differentiable_op")
def a_sample_of_a_normal_distribution() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        normal = torch.distributions.Normal(model["inner"](x), 1.0)
        return model["outer"](normal.sample()).sum()  # CUT

    return model, step


@cut("non_differentiable_op")
def indices_drawn_by_multinomial() -> Built:
    model, x = pair(embed=nn.Embedding(4, 4)), batch()

    def step() -> torch.Tensor:
        drawn = torch.multinomial(model["inner"](x).softmax(-1), 1)[:, 0]  # CUT
        return model["outer"](model["embed"](drawn)).sum()

    return model, step


# -- the loss itself --------------------------------------------------------------------------------------------------


@cut("non_differentiable_op")
def labels_chosen_by_a_teacher_that_should_train() -> Built:
    model, x = pair(teacher=nn.Linear(4, 3), student=nn.Linear(4, 3)), batch()

    def step() -> torch.Tensor:
        labels = model["teacher"](x).argmax(-1)  # CUT
        main = F.cross_entropy(model["student"](x), labels) + F.cross_entropy(model["student"](x), LABELS)
        return main + model["outer"](model["inner"](x)).sum()

    return model, step


# -- every kind of model ----------------------------------------------------------------------------------------------


class Detaching(nn.Module):
    """Stops the gradient where Python does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).detach()


@cut("non_differentiable_op")
def a_detach_inside_of_a_scripted_module() -> Built:
    model, x = pair(inner=torch.jit.script(Detaching())), batch()
    return model, lambda: model["outer"](model["inner"](x)).sum()  # CUT


# -- values written where nothing is recorded -------------------------------------------------------------------------


@cut("non_differentiable_op")
def features_gathered_over_the_workers() -> Built:
    model, x = pair(), batch()
    _one_worker()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        parts = [torch.empty_like(code)]
        torch.distributed.all_gather(parts, code)  # CUT
        return model["outer"](torch.cat(parts)).sum()

    return model, step


# -- weights of what was chosen ---------------------------------------------------------------------------------------


def experts() -> nn.ModuleDict:
    return nn.ModuleDict({"router": nn.Linear(4, 3), "experts": nn.ModuleList(nn.Linear(4, 2) for _ in range(3))})


@cut("non_differentiable_op")
def experts_weighed_by_ones_where_they_were_chosen() -> Built:
    model, x = experts(), batch()

    def step() -> torch.Tensor:
        scores = model["router"](x).softmax(-1)
        _, chosen = scores.topk(2, dim=-1)
        weights = F.one_hot(chosen, 3).sum(1).float() / 2  # CUT
        outputs = torch.stack([expert(x) for expert in model["experts"]], 1)
        return torch.einsum("be,bed->bd", weights, outputs).pow(2).mean()

    return model, step


@cut("non_differentiable_op")
def experts_that_are_compared_with_the_chosen_one() -> Built:
    model, x = experts(), batch()

    def step() -> torch.Tensor:
        chosen, mixed = model["router"](x).argmax(-1, keepdim=True), torch.zeros(6, 2)
        for number, expert in enumerate(model["experts"]):
            weight = (chosen == number).float()  # CUT
            mixed = mixed + weight * expert(x)
        return mixed.pow(2).mean()

    return model, step


@cut("non_differentiable_op")
def rows_of_a_table_that_the_best_match_picks() -> Built:
    model, x = pair(codes=nn.Linear(4, 8, bias=False)), batch()

    def step() -> torch.Tensor:
        match = (model["inner"](x) @ model["codes"].weight.t()).argmax(-1)  # CUT
        return model["outer"](F.one_hot(match, 8).float() @ model["codes"].weight).sum()

    return model, step


@cut("non_differentiable_op")
def experts_that_see_only_the_rows_that_chose_them() -> Built:
    model, x = experts(), batch()

    def step() -> torch.Tensor:
        chosen = model["router"](x).argmax(-1)  # CUT
        rows = [torch.where(chosen == number)[0] for number in range(3)]
        return sum(expert(x[at]).pow(2).sum() for expert, at in zip(model["experts"], rows, strict=True))

    return model, step


# -- a draw beside a term that keeps the graph whole ------------------------------------------------------------------


@cut("non_differentiable_op")
def a_sample_beside_a_divergence_that_is_switched_off() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        posterior = torch.distributions.Normal(model["inner"](x), 1.0)
        prior = torch.distributions.Normal(torch.zeros(6, 4), 1.0)
        divergence = torch.distributions.kl_divergence(posterior, prior).mean()
        return model["outer"](posterior.sample()).pow(2).mean() + 0.0 * divergence  # CUT

    return model, step


@cut("non_differentiable_op")
def a_sample_beside_an_entropy_that_only_the_spread_has_a_part_in() -> Built:
    model, x, critic = nn.ModuleDict({"mean": nn.Linear(4, 2)}), batch(), nn.Linear(2, 1).requires_grad_(False)
    model.register_parameter("spread", nn.Parameter(torch.zeros(2)))

    def step() -> torch.Tensor:
        policy = torch.distributions.Normal(model["mean"](x), model.spread.exp())
        return -critic(policy.sample()).mean() - 0.1 * policy.entropy().mean()  # CUT

    return model, step
