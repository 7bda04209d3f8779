"""Programs whose fault is not in the step: flags, optimizers, caches, hooks, and layers that nothing knows of.

A faulty program's lines that a right diagnosis names end in the mark. ``step.should_train`` and ``step.optimizer``,
where they are set, are handed to ``diagnose``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.cut_programs import MARK, Program
from tests.sound_programs import Built, batch, pair, small

FAULTY: dict[str, Program] = {}
SOUND: dict[str, Callable[[], Built]] = {}


def faulty(cause: str) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Enter a faulty program: its first finding has this cause, and its findings stand on the marked lines."""

    def enter(build: Callable[[], Built]) -> Callable[[], Built]:
        text, first = inspect.getsourcelines(build)
        lines = frozenset(first + i for i, line in enumerate(text) if line.rstrip().endswith(MARK))
        FAULTY[build.__name__] = Program(build, cause, lines, "")
        return build

    return enter


def sound(build: Callable[[], Built]) -> Callable[[], Built]:
    """Enter a sound program."""
    SOUND[build.__name__] = build
    return build


def step_of(run: Callable[[], Any], **given: Any) -> Callable[[], Any]:
    """A step, with what ``diagnose`` is to be told of it."""

    def step() -> Any:
        return run()

    vars(step).update(given)
    return step


# -- layers that no parameter list knows of -------------------------------------------------------------------------


@faulty("unregistered_parameters")
def layers_appended_to_a_list_one_by_one() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers: list[nn.Module] = []
            self.layers.append(nn.Linear(4, 4))  # CUT
            self.layers.append(nn.Linear(4, 1))  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x.sum()

    model, x = Net(), batch()
    return model, step_of(lambda: model(x), should_train=["layers.0.weight", "layers.1.weight"])


@faulty("unregistered_parameters")
def blocks_of_a_class_of_the_users_in_a_dictionary_filled_by_a_loop() -> Built:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.fc(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks: dict[str, nn.Module] = {}
            for name in ("a", "b"):
                block = Block()  # CUT
                self.blocks[name] = block
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.blocks["b"](self.blocks["a"](x))).sum()

    model, x = Net(), batch()
    wanted = ["blocks.a.fc.weight", "blocks.b.fc.bias", "out.weight"]
    return model, step_of(lambda: model(x), should_train=wanted)


@faulty("unregistered_parameters")
def layers_made_by_a_comprehension_in_a_helper_function() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = self.make_heads(3)
            self.body = nn.Linear(4, 4)

        @staticmethod
        def make_heads(count: int) -> tuple[nn.Module, ...]:
            heads = [nn.Linear(4, 1) for _ in range(count)]  # CUT
            return tuple(heads)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(head(self.body(x)).sum() for head in self.heads)

    model, x = Net(), batch()
    return model, step_of(lambda: model(x), should_train=["heads.0.weight", "heads.2.weight", "body.weight"])


@faulty("unregistered_parameters")
def a_layer_of_a_helper_that_is_no_module() -> Built:
    class Gate:
        def __init__(self) -> None:
            self.mix = nn.Linear(4, 4)  # CUT

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(self.mix(x)) * x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.out = Gate(), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.gate(x)).sum()

    model, x = Net(), batch()
    return model, step_of(lambda: model(x), should_train=["gate.mix.weight", "out.weight"])


@faulty("unregistered_parameters")
def parameters_in_a_plain_list() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = []
            for _ in range(2):
                self.scales.append(nn.Parameter(torch.ones(4)))  # CUT
            self.out = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(x * self.scales[0] + self.scales[1]).sum()

    model, x = Net(), batch()
    return model, step_of(lambda: model(x), should_train=["scales.0", "scales.1"])


@faulty("unregistered_parameters")
def layers_that_no_optimizer_of_the_models_parameters_can_hold() -> Built:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 2)
            self.experts = {0: nn.Linear(4, 1), 1: nn.Linear(4, 1)}  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = self.gate(x).softmax(-1)
            return sum(weights[:, [i]] * expert(x) for i, expert in self.experts.items())

    model, x = Mixture(), batch()
    optimizer = torch.optim.Adam(model.parameters())
    return model, step_of(lambda: model(x).sum(), optimizer=optimizer)


@faulty("unregistered_parameters")
def a_model_that_has_registered_nothing_at_all() -> Built:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(4, 4) for _ in range(2)]  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.relu(layer(x))
            return x

    model, x = Stack(), batch()
    return model, step_of(lambda: model(x).sum())


@faulty("unregistered_parameters")
def layers_in_a_list_of_a_block_of_the_model() -> Built:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)
            self.branches = (nn.Linear(4, 4), nn.Linear(4, 4))  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(sum(branch(x) for branch in self.branches))

    model, x = nn.Sequential(Block(), nn.Linear(4, 1)), batch()
    return model, step_of(lambda: model(x).sum())


class Hiding(nn.Module):
    """Holds another module in a list, where ``parameters()`` does not look."""

    def __init__(self, hidden: nn.Module) -> None:
        super().__init__()
        self.net, self.hidden = small(), [hidden]


@sound
def a_frozen_teacher_hidden_in_a_list() -> Built:
    model, x = Hiding(small().requires_grad_(False)), batch()
    return model, lambda: (model.net(x) - model.hidden[0](x)).pow(2).mean()


@sound
def a_teacher_hidden_in_a_list_that_records_nothing() -> Built:
    model, x = Hiding(small()), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():
            wanted = model.hidden[0](x)
        return (model.net(x) - wanted).pow(2).mean()

    return model, step


@sound
def a_teacher_hidden_in_a_list_whose_answer_is_detached() -> Built:
    model, x = Hiding(small()), batch()
    return model, lambda: (model.net(x) - model.hidden[0](x).detach()).pow(2).mean()


@sound
def a_judge_hidden_in_a_list_and_put_into_evaluation() -> Built:
    model, x = Hiding(nn.Linear(1, 3).eval()), batch()
    return model, lambda: model.hidden[0](model.net(x)).pow(2).mean()


@sound
def a_critic_hidden_in_a_list_that_another_optimizer_trains() -> Built:
    model, x = Hiding(nn.Linear(1, 1)), batch()
    actor = torch.optim.Adam(model.parameters())
    critic = torch.optim.Adam(model.hidden[0].parameters())
    return model, step_of(lambda: -model.hidden[0](model.net(x)).mean(), optimizer=actor, critic=critic)


@sound
def layers_hidden_in_a_list_that_the_optimizer_holds() -> Built:
    model, x = Hiding(nn.Linear(1, 1)), batch()
    optimizer = torch.optim.SGD([*model.parameters(), *model.hidden[0].parameters()], lr=0.1)
    return model, step_of(lambda: model.hidden[0](model.net(x)).mean(), optimizer=optimizer)


@sound
def another_model_that_the_model_knows_by_a_list_too() -> Built:
    head = nn.Linear(1, 1)
    model, x = Hiding(head), batch()
    return model, lambda: (model.hidden[0](model.net(x)) + head.weight.pow(2).sum()).mean()


@sound
def a_head_beside_the_model() -> Built:
    model, heads, x = small(), [nn.Linear(1, 1), nn.Linear(1, 1)], batch()
    return model, step_of(lambda: sum(head(model(x)).sum() for head in heads), model=model)


@sound
def weights_of_a_loss_that_are_no_part_of_the_model() -> Built:
    class Weighted:
        def __init__(self) -> None:
            self.scale = nn.Parameter(torch.zeros(()))

        def __call__(self, loss: torch.Tensor) -> torch.Tensor:
            return loss * torch.exp(-self.scale) + self.scale

    model, weighted, x = small(), Weighted(), batch()
    return model, lambda: weighted(model(x).pow(2).mean())


@sound
def a_table_that_is_tied_by_a_list() -> Built:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.shared = [self.table]

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.table(tokens) @ self.shared[0].weight.T

    model = Tied()
    return model, lambda: model(torch.tensor([0, 1])).sum()


@sound
def a_code_in_a_list_that_the_step_moves_by_hand() -> Built:
    class Search(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder, self.codes = nn.Linear(4, 4), [nn.Parameter(torch.zeros(4))]

    model, x = Search(), batch()

    def step() -> torch.Tensor:
        code = model.codes[0]
        loss = (model.decoder(code) - x).pow(2).mean()
        (gradient,) = torch.autograd.grad(loss, code, retain_graph=True)
        code.data -= 0.1 * gradient
        return loss

    return model, step


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
def an_optimizer_of_one_part() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.1)  # CUT
    return model, step_of(lambda: model["outer"](model["inner"](x)).sum(), optimizer=optimizer)


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


@faulty("built_in_forward")
def a_parameter_built_in_forward() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate = nn.Parameter(torch.ones(4))  # CUT
            return (self.body(x) * gate).sum()

    model, x = Net(), batch()
    return model, lambda: model(x)


@faulty("params_replaced")
def a_parameter_made_anew_in_every_forward() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scale = nn.Parameter(torch.rand(4))  # CUT
            return (self.body(x) * self.scale).sum()

    model, x = Net(), batch()
    return model, lambda: model(x)


@faulty("parameter_rewrap")
def weights_wrapped_in_a_parameter_by_a_hypernetwork() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        layer = nn.Linear(4, 4, bias=False)
        layer.weight = nn.Parameter(model["inner"](x)[:4])  # CUT
        return model["outer"](layer(x)).sum()

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


# -- chosen by a name -----------------------------------------------------------------------------------------------


def unfreeze_only(model: nn.Module, part: str) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = part in name


@sound
def a_name_that_one_part_of_the_model_has() -> Built:
    model, x = pair(), batch()
    unfreeze_only(model, "outer")
    return model, lambda: model["outer"](model["inner"](x)).sum()
