"""Sound programs that look like `cached_tensor` and are not."""

from __future__ import annotations

import copy
import functools
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import Built, batch, pair, small, sound

# -- what is kept from before the step, and may be --------------------------------------------------------------------


@sound
def masks_and_positions_kept_by_functools() -> Built:
    model, x = pair(), batch()

    @functools.lru_cache(maxsize=4)
    def positions(length: int, width: int) -> torch.Tensor:
        angles = torch.arange(length)[:, None] / 10 ** torch.linspace(0, 1, width)
        return angles.sin()

    @functools.cache
    def mask(length: int) -> torch.Tensor:
        return torch.ones(length, length).tril().log()

    positions(6, 4), mask(6)

    def step() -> torch.Tensor:
        code = model["inner"](x + positions(6, 4))
        weights = (code @ code.T + mask(6)).softmax(-1)
        return model["outer"](weights @ code).sum()

    return model, step


@sound
def rotary_tables_in_a_dictionary_of_an_object() -> Built:
    class Rotary:
        def __init__(self) -> None:
            self.tables: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

        @torch.no_grad()
        def of(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
            if length not in self.tables:
                angles = torch.arange(length)[:, None] * torch.ones(1, 4)
                self.tables[length] = angles.cos(), angles.sin()
            return self.tables[length]

    model, x, rotary = pair(), batch(), Rotary()

    def step() -> torch.Tensor:
        cos, sin = rotary.of(6)
        code = model["inner"](x)
        return model["outer"](code * cos + code.roll(2, -1) * sin).sum()

    step()
    return model, step


@sound
def features_of_a_frozen_layer_computed_once() -> Built:
    model, x = pair(), batch()
    model["inner"].requires_grad_(False)
    features: dict[str, torch.Tensor] = {}

    def encode() -> torch.Tensor:
        if not features:
            with torch.no_grad():
                features["x"] = model["inner"](x)
        return features["x"]

    encode()
    return model, lambda: model["outer"](encode()).sum()


@sound
def answers_of_a_teacher_computed_once() -> Built:
    model, teacher, x = small(), small(), batch()
    with torch.no_grad():
        answers = [teacher(row) for row in x]
    return model, lambda: F.mse_loss(model(x), torch.stack(answers))


@sound
def a_queue_of_keys_of_a_momentum_encoder() -> Built:
    model, x = small(), batch()
    slow = copy.deepcopy(model)
    queue = deque((torch.randn(1) for _ in range(4)), maxlen=4)

    def step() -> torch.Tensor:
        with torch.no_grad():
            for mine, theirs in zip(slow.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(theirs, alpha=0.1)
            keys = slow(x)
        query = model(x)
        positive, negative = query * keys, query * torch.cat(list(queue))
        queue.append(keys[0])
        return F.cross_entropy(torch.cat([positive, negative], 1), torch.zeros(6, dtype=torch.long))

    return model, step


@sound
def a_replay_buffer_with_values_of_an_earlier_policy() -> Built:
    model, x = pair(value=nn.Linear(4, 1)), batch()
    buffer: list[dict[str, torch.Tensor]] = []
    with torch.no_grad():
        for row in x:
            hidden = model["inner"](row)
            buffer.append({"state": row, "value": model["value"](hidden), "chance": model["outer"](hidden)})

    def step() -> torch.Tensor:
        states, values, chances = (torch.stack([one[key] for one in buffer]) for key in ("state", "value", "chance"))
        hidden = model["inner"](states)
        ratio = (model["outer"](hidden) - chances).exp()
        return (ratio * (1.0 - values)).mean() + (model["value"](hidden) - 1.0).pow(2).mean()

    return model, step


@sound
def keys_and_values_of_a_frozen_prefix() -> Built:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 8).requires_grad_(False)
            self.query, self.past = nn.Linear(4, 4), None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.past is None:
                self.past = self.body(torch.ones(3, 4)).chunk(2, -1)
            keys, values = (torch.cat([a, b]) for a, b in zip(self.past, self.body(x).chunk(2, -1), strict=True))
            return ((self.query(x) @ keys.T).softmax(-1) @ values).sum()

    model, x = Attention(), batch()
    model(x)
    return model, lambda: model(x)


@sound
def a_cache_that_is_thrown_away_where_gradients_are_needed() -> Built:
    model, x = pair(), batch()
    codes: dict[str, torch.Tensor] = {}

    def encode() -> torch.Tensor:
        if "x" not in codes or (torch.is_grad_enabled() and not codes["x"].requires_grad):
            codes["x"] = model["inner"](x)
        return codes["x"]

    with torch.no_grad():
        encode()
    return model, lambda: model["outer"](encode()).sum()


@sound
def a_cache_beside_the_way_that_learns() -> Built:
    model, x = pair(), batch()

    @functools.cache
    def centre() -> torch.Tensor:
        return model["inner"](x).mean(0)

    with torch.no_grad():
        centre()
    return model, lambda: model["outer"](model["inner"](x) - centre()).pow(2).mean()


@sound
def a_hook_that_moves_the_parameters_whose_gradients_have_come_before() -> Built:
    model, x = pair(), batch()

    def descend(grad: torch.Tensor) -> torch.Tensor:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-0.1)
                parameter.grad = None
        return grad

    for parameter in model.parameters():
        parameter.register_hook(descend)
    return model, lambda: model["outer"](model["inner"](x)).sum()
