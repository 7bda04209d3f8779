"""Programs whose line is known, and whose plainest cure may do harm; each beside the program as it was meant.

A function ``name`` makes the wrong program, ``name_fixed`` the right one, with the same weights: the model, the step,
and the optimizer that the program has. Tests write the offered change into a copy of this file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass
class Judged:
    """``step`` is run once before its gradients are compared, if ``runs_before`` says so."""

    model: nn.Module
    step: Callable[[], Any]
    optimizer: torch.optim.Optimizer | None = None


def batch(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (6, 4)), generator=torch.Generator().manual_seed(1))


def seeded(build: Callable[[], nn.Module]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


# -- a straight-through estimator whose loss stands at the wrong place ------------------------------------------------


class Quantizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.book, self.decoder = nn.Linear(4, 4), nn.Embedding(5, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x)
        emb = self.book(torch.cdist(z, self.book.weight).argmin(1))
        q = z + (emb - z).detach()
        return F.mse_loss(self.decoder(q), x) + F.mse_loss(q, z.detach())


class QuantizerFixed(Quantizer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x)
        emb = self.book(torch.cdist(z, self.book.weight).argmin(1))
        q = z + (emb - z).detach()
        return F.mse_loss(self.decoder(q), x) + F.mse_loss(emb, z.detach())


def straight_through(kind: type[nn.Module] = Quantizer) -> Judged:
    model, x = seeded(kind), batch()
    return Judged(model, lambda: model(x))


def straight_through_fixed() -> Judged:
    return straight_through(QuantizerFixed)


# -- a critic and a generator that share what was generated -----------------------------------------------------------


def _players() -> nn.ModuleDict:
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    generator = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 4))
    return nn.ModuleDict({"critic": critic, "generator": generator})


def generated_once() -> Judged:
    model, real, noise = seeded(_players), batch(6, 4), batch(6, 3)
    critic, generator = model["critic"], model["generator"]
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        of_critic.zero_grad()
        of_generator.zero_grad()
        fake = generator(noise)
        judged = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
        judged.backward()
        of_critic.step()
        fooled = F.softplus(-critic(fake)).mean()
        fooled.backward()
        of_generator.step()
        return fooled

    return Judged(model, step)


def generated_once_fixed() -> Judged:
    model, real, noise = seeded(_players), batch(6, 4), batch(6, 3)
    critic, generator = model["critic"], model["generator"]
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        of_critic.zero_grad()
        of_generator.zero_grad()
        fake = generator(noise)
        judged = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        judged.backward()
        of_critic.step()
        fooled = F.softplus(-critic(fake)).mean()
        fooled.backward()
        of_generator.step()
        return fooled

    return Judged(model, step)


# -- features of a stem that trains, computed once before the loop ----------------------------------------------------


def _stem() -> nn.ModuleDict:
    return nn.ModuleDict({"stem": nn.Linear(4, 4), "head": nn.Linear(4, 1)})


def features_before_the_loop() -> Judged:
    model, x = seeded(_stem), batch()
    features = model["stem"](x).tanh()

    def step() -> torch.Tensor:
        return model["head"](features).square().mean()

    step().backward()
    model.zero_grad()
    return Judged(model, step, torch.optim.SGD(model.parameters(), lr=0.01))


def features_before_the_loop_fixed() -> Judged:
    model, x = seeded(_stem), batch()

    def step() -> torch.Tensor:
        features = model["stem"](x).tanh()
        return model["head"](features).square().mean()

    return Judged(model, step, torch.optim.SGD(model.parameters(), lr=0.01))


# -- a store that hands back the copy that it keeps -------------------------------------------------------------------


class Store:
    def __init__(self) -> None:
        self.pages: dict[int, torch.Tensor] = {}

    def put(self, key: int, memory: torch.Tensor) -> torch.Tensor:
        self.pages[key] = memory.detach()
        return self.pages[key]


class StoreFixed(Store):
    def put(self, key: int, memory: torch.Tensor) -> torch.Tensor:
        self.pages[key] = memory.detach()
        return memory


def handed_back(kind: type[Store] = Store) -> Judged:
    model, x, store = seeded(_stem), batch(), kind()
    return Judged(model, lambda: model["head"](store.put(len(store.pages), model["stem"](x))).square().mean())


def handed_back_fixed() -> Judged:
    return handed_back(StoreFixed)


# -- a target network that is a copy, and was not frozen --------------------------------------------------------------


def _values() -> nn.ModuleDict:
    values = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return nn.ModuleDict({"online": values, "target": copy.deepcopy(values)})


def a_target_that_is_a_copy() -> Judged:
    model, state, after = seeded(_values), batch(), batch(6, 4) * 2
    action, reward = torch.tensor([[0], [1], [0], [1], [1], [0]]), torch.linspace(-1, 1, 6)

    def step() -> torch.Tensor:
        with torch.no_grad():
            wanted = reward + 0.9 * model["target"](after).max(1).values
        return F.smooth_l1_loss(model["online"](state).gather(1, action).squeeze(1), wanted)

    return Judged(model, step, torch.optim.Adam(model["online"].parameters()))


a_target_that_is_a_copy_fixed = a_target_that_is_a_copy


# -- a block round what is frozen and what trains ---------------------------------------------------------------------


def _frozen_encoder() -> nn.ModuleDict:
    model = nn.ModuleDict({"encoder": nn.Linear(4, 4), "adapter": nn.Linear(4, 4), "head": nn.Linear(4, 1)})
    model["encoder"].requires_grad_(False)
    return model


def a_block_round_frozen_and_trained() -> Judged:
    model, x = seeded(_frozen_encoder), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():
            code = model["encoder"](x)
            code = model["adapter"](code)
        return model["head"](code).square().mean()

    return Judged(model, step)


def a_block_round_frozen_and_trained_fixed() -> Judged:
    model, x = seeded(_frozen_encoder), batch()

    def step() -> torch.Tensor:
        with torch.no_grad():
            code = model["encoder"](x)
        code = model["adapter"](code)
        return model["head"](code).square().mean()

    return Judged(model, step)


# -- an attribute in which the code is kept, and from which it is used ------------------------------------------------


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.code = self.inner(x).tanh().detach()
        return self.outer(self.code).square().mean()


class KeepingFixed(Keeping):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        code = self.inner(x).tanh()
        self.code = code.detach()
        return self.outer(code).square().mean()


def kept_in_an_attribute(kind: type[nn.Module] = Keeping) -> Judged:
    model, x = seeded(kind), batch()
    return Judged(model, lambda: model(x))


def kept_in_an_attribute_fixed() -> Judged:
    return kept_in_an_attribute(KeepingFixed)


# -- a method with a decorator ----------------------------------------------------------------------------------------


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)

    @torch.no_grad()
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.encode(x)).square().mean()


class DecoratedFixed(Decorated):
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).tanh()


def a_decorated_method(kind: type[nn.Module] = Decorated) -> Judged:
    model, x = seeded(kind), batch()
    return Judged(model, lambda: model(x))


def a_decorated_method_fixed() -> Judged:
    return a_decorated_method(DecoratedFixed)


# -- a teacher and a student in one block -----------------------------------------------------------------------------


def _school() -> nn.ModuleDict:
    return nn.ModuleDict({"teacher": nn.Linear(4, 3), "student": nn.Linear(4, 4), "head": nn.Linear(4, 3)})


def a_block_round_teacher_and_student() -> Judged:
    model, x = seeded(_school), batch()
    learns = [*model["student"].parameters(), *model["head"].parameters()]

    def step() -> torch.Tensor:
        with torch.no_grad():
            code = model["student"](x).tanh()
            taught = model["teacher"](x)
        return F.mse_loss(model["head"](code), taught)

    return Judged(model, step, torch.optim.SGD(learns, lr=0.1))


def a_block_round_teacher_and_student_fixed() -> Judged:
    model, x = seeded(_school), batch()
    learns = [*model["student"].parameters(), *model["head"].parameters()]

    def step() -> torch.Tensor:
        code = model["student"](x).tanh()
        with torch.no_grad():
            taught = model["teacher"](x)
        return F.mse_loss(model["head"](code), taught)

    return Judged(model, step, torch.optim.SGD(learns, lr=0.1))


# -- a state that is carried from step to step ------------------------------------------------------------------------


class Carrying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(4, 5), nn.Linear(5, 1)
        self.state = torch.zeros(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.cell(x, self.state)
        return self.head(self.state).square().mean()


class CarryingFixed(Carrying):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.cell(x, self.state)
        self.state = state.detach()
        return self.head(state).square().mean()


def a_carried_state(kind: type[nn.Module] = Carrying) -> Judged:
    model, x = seeded(kind), batch()
    model(x).backward()
    model.zero_grad()
    return Judged(model, lambda: model(x))


def a_carried_state_fixed() -> Judged:
    return a_carried_state(CarryingFixed)


# -- a detach in a helper ---------------------------------------------------------------------------------------------


def _scaled(value: torch.Tensor) -> torch.Tensor:
    return value.detach() / 2


def _scaled_fixed(value: torch.Tensor) -> torch.Tensor:
    return value / 2


def detached_in_a_helper(helper: Callable[[torch.Tensor], torch.Tensor] = _scaled) -> Judged:
    model, x = seeded(_stem), batch()

    def step() -> torch.Tensor:
        return model["head"](helper(model["stem"](x))).square().mean()

    return Judged(model, step)


def detached_in_a_helper_fixed() -> Judged:
    return detached_in_a_helper(_scaled_fixed)


# -- a checkpoint that asks its inputs --------------------------------------------------------------------------------


def reentrant() -> Judged:
    model, x = seeded(_stem), batch()

    def step() -> torch.Tensor:
        code = checkpoint(model["stem"], x, use_reentrant=True)
        return model["head"](code).square().mean()

    return Judged(model, step)


def reentrant_fixed() -> Judged:
    model, x = seeded(_stem), batch()

    def step() -> torch.Tensor:
        code = checkpoint(model["stem"], x, use_reentrant=False)
        return model["head"](code).square().mean()

    return Judged(model, step)


NAMES = (
    "straight_through", "generated_once", "features_before_the_loop", "handed_back", "a_target_that_is_a_copy",
    "a_block_round_frozen_and_trained", "kept_in_an_attribute", "a_decorated_method",
    "a_block_round_teacher_and_student", "a_carried_state", "detached_in_a_helper", "reentrant",
)  # fmt: skip
