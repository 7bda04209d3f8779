"""Programs whose fault, or what looks like one, is `unregistered_parameters` and stands outside of the step."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.shared import Built, batch, faulty, small, sound, step_of

# -- layers that no parameter list knows of -------------------------------------------------------------------------


@faulty("unregistered_parameters")
def layers_appended_to_a_list_one_by_one() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers: list[nn.Module] = []  # CUT
            self.layers.append(nn.Linear(4, 4))
            self.layers.append(nn.Linear(4, 1))

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
            self.blocks: dict[str, nn.Module] = {}  # CUT
            for name in ("a", "b"):
                block = Block()
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
            self.scales = []  # CUT
            for _ in range(2):
                self.scales.append(nn.Parameter(torch.ones(4)))
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
