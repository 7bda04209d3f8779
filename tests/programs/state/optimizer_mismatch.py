"""Programs whose fault, or what looks like one, is `optimizer_mismatch` and stands outside of the step."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tests.programs.shared import Built, batch, faulty, pair, small, sound, step_of

# -- optimizers -----------------------------------------------------------------------------------------------------


@sound
def an_object_that_holds_two_optimizers() -> Built:
    class Both:
        def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
            self.optimizers = optimizers

        @property
        def param_groups(self) -> list[Any]:
            return [group for one in self.optimizers for group in one.param_groups]

        def step(self) -> None:
            for one in self.optimizers:
                one.step()

    model, x = pair(), batch()
    both = Both(torch.optim.SGD(model["inner"].parameters(), 0.1, 0.9), torch.optim.AdamW(model["outer"].parameters()))
    return model, step_of(lambda: model["outer"](model["inner"](x)).sum(), optimizer=both)


@faulty("optimizer_mismatch")
def a_head_put_in_place_after_the_optimizer() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # CUT
    model["outer"] = nn.Linear(4, 2)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        return model["outer"](model["inner"](x)).sum()

    return model, step


@faulty("optimizer_mismatch")
def an_optimizer_of_a_model_that_was_then_copied() -> Built:
    class Trainer:
        def __init__(self, model: nn.Module) -> None:
            self.other = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=1.0)
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.25)  # CUT
            self.model = copy.deepcopy(model)

        def loss(self) -> torch.Tensor:
            self.optimizer.zero_grad()
            return self.model(x).sum()

    x = batch()
    trainer = Trainer(small())
    return trainer.model, trainer.loss


@faulty("optimizer_mismatch")
def an_optimizer_of_picked_parameters() -> Built:
    model, x = pair(), batch()
    chosen = [p for name, p in model.named_parameters() if "bias" not in name]  # CUT
    optimizer = torch.optim.SGD(chosen, lr=0.1)
    return model, step_of(lambda: model["outer"](model["inner"](x)).sum(), optimizer=optimizer)


@faulty("optimizer_mismatch")
def an_optimizer_that_lacks_the_head() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["inner"].parameters(), lr=0.1)  # CUT
    return model, step_of(lambda: model["outer"](model["inner"](x)).sum(), optimizer=optimizer)


@faulty("optimizer_mismatch")
def an_optimizer_that_lacks_the_small_layer_between_two() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 8)), batch()
    parts = [*model[0].parameters(), *model[2].parameters()]
    optimizer = torch.optim.SGD(parts, lr=0.1)  # CUT
    return model, step_of(lambda: model(x).sum(), optimizer=optimizer)


class LowRank(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, 1), nn.Linear(1, base.out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


@faulty("optimizer_mismatch")
def adapters_of_frozen_layers_that_no_optimizer_was_told_of() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 9), nn.Linear(9, 2)), batch()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)  # CUT
    model[0], model[1] = LowRank(model[0]), LowRank(model[1])
    return model, step_of(lambda: model(x).sum(), optimizer=optimizer)


@sound
def a_head_that_a_setting_leaves_out() -> Built:
    model, x, locked = pair(outer=nn.Linear(4, 1)), batch(), True

    def configured() -> torch.optim.Optimizer:
        parameters = list(model["inner"].parameters())
        if not locked:
            parameters += list(model.outer.parameters())
        return torch.optim.NAdam(parameters, lr=0.1)

    return model, step_of(lambda: model["outer"](model["inner"](x)).sum(), optimizer=configured())


@sound
def a_linear_probe_on_a_body_that_nobody_froze() -> Built:
    model, x = pair(), batch()
    model["inner"].eval()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.1)
    return model, step_of(lambda: model["outer"](model["inner"](x)).sum(), optimizer=optimizer)


@sound
def layers_before_and_behind_a_body_in_evaluation_mode() -> Built:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 8)), batch()
    model[1].eval()
    optimizer = torch.optim.SGD([*model[0].parameters(), *model[2].parameters()], lr=0.1)
    return model, step_of(lambda: model(x).sum(), optimizer=optimizer)


@sound
def a_prompt_in_front_of_a_larger_model() -> Built:
    model, x = pair(), batch()
    model.register_parameter("prompt", nn.Parameter(torch.zeros(1)))
    optimizer = torch.optim.SGD([model.prompt], lr=0.1)
    return model, step_of(lambda: model["outer"](model["inner"](x + model.prompt)).sum(), optimizer=optimizer)


@sound
def biases_alone_in_the_optimizer() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD([model["inner"].bias, model["outer"].bias], lr=0.1)
    return model, step_of(lambda: model["outer"](model["inner"](x)).sum(), optimizer=optimizer)


@sound
def a_picture_that_is_fitted_through_a_model() -> Built:
    model, x = pair(), batch().requires_grad_()
    optimizer = torch.optim.SGD([x], lr=0.1)
    return model, step_of(lambda: model["outer"](model["inner"](x)).pow(2).sum(), optimizer=optimizer)


OPTIMIZERS: dict[str, torch.optim.Optimizer] = {}


@sound
def a_critic_that_an_optimizer_elsewhere_trains() -> Built:
    model, z = pair(), batch()
    OPTIMIZERS["critic"] = torch.optim.SGD(model["outer"].parameters(), lr=0.1)
    optimizer = torch.optim.SGD(model["inner"].parameters(), lr=0.1)
    return model, step_of(lambda: model["outer"](model["inner"](z)).sum(), optimizer=optimizer)


@faulty("optimizer_mismatch")
def a_scale_made_by_the_first_forward_of_a_step_that_trains_itself() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "scale"):
                self.scale = nn.Parameter(torch.ones(x.shape[1]))
            return self.out(x * self.scale).sum()

    model, x = Net(), batch()
    optimizer = torch.optim.Adam(model.parameters())  # CUT

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


@sound
def two_optimizers_that_hold_everything_together() -> Built:
    model, x = pair(), batch()
    first = torch.optim.SGD(model["inner"].parameters(), lr=0.1)
    second = torch.optim.Adam(model["outer"].parameters())

    def step() -> torch.Tensor:
        first.zero_grad()
        second.zero_grad()
        return model["outer"](model["inner"](x)).sum()

    return model, step_of(step, optimizer=first, others=[second])


@sound
def an_optimizer_in_sight_that_trains_the_head_only() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        return model["outer"](model["inner"](x)).sum()

    return model, step


@sound
def the_optimizer_of_a_discriminator_in_the_step_of_the_generator() -> Built:
    generator, critic, x = small(), nn.Linear(1, 1), batch()
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        return critic(generator(x)).sum()

    return generator, step


@sound
def an_optimizer_of_an_online_network_beside_its_target() -> Built:
    model, x = small(), batch()
    target = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        return (model(x) - target(x)).pow(2).sum()

    return model, step


@sound
def a_parameter_made_by_the_step_and_added_to_the_optimizer() -> Built:
    model, x = nn.Linear(4, 1), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        if not hasattr(model, "scale"):
            model.scale = nn.Parameter(torch.ones(4))
            optimizer.add_param_group({"params": [model.scale]})
        return model(x * model.scale).sum()

    return model, step_of(step, optimizer=optimizer)


# -- chosen by a name -----------------------------------------------------------------------------------------------


def unfreeze_only(model: nn.Module, part: str) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = part in name


@sound
def a_name_that_one_part_of_the_model_has() -> Built:
    model, x = pair(), batch()
    unfreeze_only(model, "outer")
    return model, lambda: model["outer"](model["inner"](x)).sum()


# -- in a step that goes on -------------------------------------------------------------------------------------------


@faulty("optimizer_mismatch")
def an_optimizer_of_the_teacher() -> Built:
    student, teacher, x = small(), small(), batch()
    optimizer = torch.optim.Adam(teacher.parameters())  # CUT

    def step() -> None:
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        (student(x) - wanted).pow(2).mean().backward()
        optimizer.step()

    return student, step


@faulty("optimizer_mismatch")
def an_optimizer_of_a_generator_that_was_counted_first() -> Built:
    model, x = small(), batch()
    params = filter(lambda p: p.requires_grad, model[-1].parameters())  # CUT
    assert sum(p.numel() for p in params) > 0
    optimizer = torch.optim.Adam([{"params": model[0].parameters()}, {"params": params}])
    return model, step_of(lambda: model(x).pow(2).mean(), optimizer=optimizer)


@faulty("optimizer_mismatch")
def an_optimizer_of_groups_that_leave_a_part_out_together() -> Built:
    model, x = pair(), batch()
    model["gain"] = nn.Linear(1, 1)
    groups = [{"params": [p for p in model["inner"].parameters() if p.requires_grad]}]
    groups += [{"params": model["outer"].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)  # CUT
    return model, step_of(lambda: model["gain"](model["outer"](model["inner"](x))).sum(), optimizer=optimizer)
