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


# -- kept in an attribute by an earlier pass, and read by a line of its own -------------------------------------------


class Cached(nn.Module):
    """Keeps a table that it computes from its weights; ``looked_up`` says how."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)
        self.cached_rows: Any = None

    def looked_up(self, rows: int) -> torch.Tensor:
        raise NotImplementedError

    def computed(self, rows: int) -> torch.Tensor:
        return torch.tanh(self.inner(torch.ones(rows, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(x * self.looked_up(len(x))).sum()


def _two_passes(model: nn.Module) -> Built:
    first, second = batch(), batch()

    def step() -> torch.Tensor:
        for part in (first,):
            (model(part) / 2).backward()
        return model(second) / 2

    return model, step


@cut("double_backward")
def a_table_that_is_kept_on_a_condition_and_read_by_an_earlier_line() -> Built:
    class Model(Cached):
        def looked_up(self, rows: int, offset: int = 0) -> torch.Tensor:
            if self.cached_rows is not None and offset + rows <= len(self.cached_rows):
                return self.cached_rows[offset : offset + rows]
            made = self.computed(rows)
            if offset == 0:
                self.cached_rows = made  # CUT
            return made

    return _two_passes(Model())


@cut("double_backward")
def a_table_that_another_method_keeps() -> Built:
    class Model(Cached):
        def put_into_the_cache(self, made: torch.Tensor) -> None:
            self.cached_rows = made  # CUT

        def looked_up(self, rows: int) -> torch.Tensor:
            if self.cached_rows is None:
                made = self.computed(rows)
                self.put_into_the_cache(made)
                return made
            return self.cached_rows * 1.0

    return _two_passes(Model())


@cut("double_backward")
def a_table_in_a_dictionary_by_its_size_that_a_local_name_stands_for() -> Built:
    class Model(Cached):
        def __init__(self) -> None:
            super().__init__()
            self.tables: dict[int, torch.Tensor] = {}

        def looked_up(self, rows: int) -> torch.Tensor:
            if rows in self.tables:
                found = self.tables[rows]
                return found[:rows]
            made = self.computed(rows)
            self.tables[rows] = made  # CUT
            return made

    return _two_passes(Model())


@cut("double_backward")
def two_losses_of_features_that_a_model_has_put_away_for_a_look() -> Built:
    class Model(Cached):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cached_rows = self.inner(x).tanh()
            return self.cached_rows

    model, x = Model(), batch()

    def step() -> torch.Tensor:
        features = model(x)
        model.outer(features).sum().backward()
        return model.outer(features).square().sum()  # CUT

    return model, step


@cut("double_backward")
def two_losses_of_what_a_model_has_put_away_in_the_same_pass() -> Built:
    class Model(Cached):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cached_rows = self.inner(x).tanh()
            return self.cached_rows

    model, x = Model(), batch()

    def step() -> torch.Tensor:
        model(x)
        model.outer(model.cached_rows).sum().backward()
        return model.outer(model.cached_rows).square().sum()  # CUT

    return model, step


@cut("double_backward")
def a_table_that_is_filled_by_one_method_and_read_by_another_in_a_loop() -> Built:
    class Model(Cached):
        def compute_rows(self, rows: int) -> None:
            self.cached_rows = self.computed(rows)  # CUT

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.cached_rows is None:
                self.compute_rows(len(x))
            return self.outer(x * self.rows_of(len(x))).sum()

        def rows_of(self, rows: int) -> torch.Tensor:
            table = self.cached_rows
            return table[:rows]

    model, parts = Model(), [batch(), batch()]

    def step() -> None:
        for part in parts:
            model(part).backward()

    return model, step


class _Scaled(nn.Module):
    """A scale that must be positive: its exponent learns, and the scale itself is worked out from it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.set_up()

    def set_up(self) -> None:
        self.scale = self.log_scale.exp()  # CUT

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.layer(x) * self.scale
        return scaled


@cut("double_backward", within=_Scaled)
def a_scale_worked_out_once_for_a_step_of_several_updates() -> Built:
    model, x = _Scaled(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        return model(x).sum()

    return model, step


@cut("double_backward", within=_Scaled)
def a_scale_worked_out_once_whose_gradient_is_asked_for_before_the_loss() -> Built:
    model, x = _Scaled(), batch()

    def step() -> torch.Tensor:
        loss = model(x).sum()
        slopes = torch.autograd.grad(loss, list(model.parameters()))  # CUT
        return model(x).sum() + sum(one.square().sum() for one in slopes)

    return model, step


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (v,) = ctx.saved_tensors
        return grad / (10 * v.abs() + 1) ** 2


@cut("double_backward")
def spikes_computed_once_before_the_loop() -> Built:
    model, x = pair(), batch()
    spikes = _Spike.apply(model["inner"](x))  # CUT

    def step() -> torch.Tensor:
        return model["outer"](spikes).sum()

    step().backward()
    model.zero_grad()
    return model, step


class _Spiking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.state = nn.Linear(4, 4), torch.zeros(())

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        state, out = self.state, []
        for x in xs.split(2):
            state = _Spike.apply(self.layer(x) + 0.5 * state)
            out.append(state)
        self.state = state  # CUT
        return torch.stack(out)


@cut("double_backward", within=_Spiking)
def spikes_that_a_layer_carries_from_one_batch_to_the_next() -> Built:
    model, x = _Spiking(), batch()

    def step() -> torch.Tensor:
        model(x).sum().backward()
        return model(x).sum()

    return model, step
