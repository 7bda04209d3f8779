"""Programs that lose the gradient by `double_backward`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, cut, pair, small

# -- errors that backward raises --------------------------------------------------------------------------------------


@cut("double_backward")
def a_hidden_state_carried_over_in_a_list() -> Built:
    model, x = pair(cell=nn.GRUCell(4, 4)), batch()
    kept = [torch.zeros(6, 4)]

    def step() -> torch.Tensor:
        kept[0] = model["cell"](x, kept[0])  # CUT
        return model["outer"](model["inner"](kept[0])).sum()

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def a_hidden_state_kept_by_the_model() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(4, 4), nn.Linear(4, 1)
            self.state = torch.zeros(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            new = self.cell(x, self.state)
            self.state = new  # CUT
            return self.out(new).sum()

    model, x = Model(), batch()
    model(x).backward()
    model.zero_grad()
    return model, lambda: model(x)


@cut("double_backward")
def a_running_mean_of_losses_with_its_graph() -> Built:
    model, x = small(), batch()
    total = [torch.zeros(())]

    def step() -> torch.Tensor:
        total[0] = 0.9 * total[0] + model(x).pow(2).mean()  # CUT
        return total[0]

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def features_computed_once_before_the_loop() -> Built:
    model, x = pair(), batch()
    features = model["inner"](x).tanh()  # CUT

    def step() -> torch.Tensor:
        return model["outer"](features).sum()

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def centres_that_move_with_the_features() -> Built:
    model, x = pair(), batch()
    centres: dict[str, torch.Tensor] = {}

    def moved(features: torch.Tensor) -> None:
        centres["all"] = 0.9 * centres["all"] + 0.1 * features.mean(0)  # CUT

    def step() -> torch.Tensor:
        features = model["inner"](x)
        loss = (features - centres["all"]).pow(2).mean() + model["outer"](features).mean()
        moved(features)
        return loss

    centres["all"] = torch.zeros(4)
    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def a_table_that_a_holder_was_filled_with_before_the_steps() -> Built:
    class Holder:
        table: Any = None

        def fill(self, module: nn.Module, given: torch.Tensor) -> None:
            self.table = module(given)

    model, x, holder = pair(), batch(), Holder()
    holder.fill(model["inner"], x)  # CUT

    def step() -> torch.Tensor:
        return model["outer"](holder.table).sum()

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def a_buffer_that_takes_whatever_it_is_handed() -> Built:
    class Buffer:
        def __init__(self) -> None:
            self.rows: list[Any] = []

        def put_in(self, *row: Any) -> None:
            self.rows.append(row)

    model, x, buffer = pair(), batch(), Buffer()

    def step() -> torch.Tensor:
        buffer.put_in(model["inner"](x), 1.0)  # CUT
        return model["outer"](torch.stack([row[0] for row in buffer.rows])).sum()

    step().backward()
    model.zero_grad()
    return model, step


# -- several backwards in a step --------------------------------------------------------------------------------------


@cut("double_backward")
def a_fake_that_the_discriminators_loss_did_not_let_go() -> Built:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.0)

    def step() -> torch.Tensor:
        fake = model["inner"](x).tanh()
        real = F.softplus(-model["outer"](x)).mean()
        wrong = F.softplus(model["outer"](fake)).mean()  # CUT
        (real + wrong).backward()
        optimizer.step()
        return F.softplus(-model["outer"](fake)).mean()

    return model, step


@cut("double_backward")
def two_losses_of_the_same_features_one_after_the_other() -> Built:
    model, x = pair(), batch()

    def step() -> torch.Tensor:
        features = model["inner"](x).tanh()
        first = model["outer"](features).pow(2).mean()
        second = features.pow(2).mean()
        first.backward()  # CUT
        second.backward()
        return first

    return model, step


@cut("double_backward")
def a_state_of_an_lstm_kept_by_the_model() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.out = nn.LSTM(4, 4), nn.Linear(4, 1)
            self.hidden: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out, self.hidden = self.lstm(x, self.hidden)  # CUT
            return self.out(out).sum()

    model, x = Model(), batch()
    model(x).backward()
    model.zero_grad()
    return model, lambda: model(x)


@cut("double_backward")
def a_memory_written_in_place_over_several_steps() -> Built:
    model, x = pair(), batch()
    memory = [torch.zeros(6, 4)]

    def remember(code: torch.Tensor) -> None:
        memory[0] = 0.5 * memory[0] + 0.5 * code  # CUT

    def step() -> torch.Tensor:
        remember(model["inner"](x).tanh())
        return model["outer"](memory[0]).pow(2).sum()

    step().backward()
    model.zero_grad()
    return model, step


@cut("double_backward")
def a_loss_list_that_is_never_emptied() -> Built:
    model, x = small(), batch()
    losses: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        losses.append(model(x).pow(2).mean())  # CUT
        return torch.stack(losses).sum()

    step().backward()
    model.zero_grad()
    return model, step


# -- the loss itself, from before the step ----------------------------------------------------------------------------


@cut("double_backward")
def a_loss_that_went_backward_before_the_step() -> Built:
    model, x = small(), batch()
    loss = model(x).pow(2).mean()
    loss.backward()
    model.zero_grad()

    def latest() -> torch.Tensor:
        return loss  # CUT

    return model, lambda: latest()
