"""Values with a history that a helper keeps and hands out: the line that keeps them is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from tests.programs.shared import Built, batch, cut, pair


def _two_passes(model: nn.Module) -> Built:
    first, second = batch(), batch()

    def step() -> torch.Tensor:
        for part in (first,):
            (model(part) / 2).backward()
        return model(second) / 2

    return model, step


class Tables:
    """Keeps what a function makes, by a key; ``rows`` says how."""

    def __init__(self, make: Callable[[int], torch.Tensor]) -> None:
        self.make = make
        self.made: dict[Any, torch.Tensor] = {}

    def rows(self, count: int) -> torch.Tensor:
        raise NotImplementedError


class Asking(nn.Module):
    """Asks the tables that its class keeps; what they are made of is its own."""

    tables: type[Tables]

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)
        self.held = self.tables(lambda count: torch.tanh(self.inner(torch.ones(count, 4))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(x * self.held.rows(len(x))).sum()


@cut("double_backward")
def a_table_that_a_helper_keeps_under_a_key_and_returns() -> Built:
    class Keyed(Tables):
        def rows(self, count: int) -> torch.Tensor:
            key = ("rows", count)
            if key not in self.made:
                self.made[key] = self.make(count)  # CUT
            return self.made[key]

    class Model(Asking):
        tables = Keyed

    return _two_passes(Model())


@cut("double_backward")
def a_table_that_a_helper_gets_out_of_its_dictionary_by_a_local_name() -> Built:
    class Gotten(Tables):
        def rows(self, count: int) -> torch.Tensor:
            found = self.made.get(f"rows-{count}")
            if found is None:
                found = self.make(count)
                self.made[f"rows-{count}"] = found  # CUT
            return found

    class Model(Asking):
        tables = Gotten

    return _two_passes(Model())


@cut("double_backward")
def a_table_behind_a_property_that_two_updates_of_one_step_read() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)
            self.kept_basis: Any = None

        @property
        def basis(self) -> torch.Tensor:
            if self.kept_basis is None:
                self.kept_basis = self.inner.weight.T @ self.inner.weight  # CUT
            return self.kept_basis

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outer(x @ self.basis).square().mean()

    model, parts = Model(), [batch(), batch()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        for part in parts:
            loss: torch.Tensor = model(part)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    return model, step


@cut("double_backward")
def a_table_that_a_helper_of_a_helper_keeps() -> Built:
    class Nested(Tables):
        def entry(self, key: tuple[int, ...]) -> torch.Tensor:
            if key not in self.made:
                fresh = self.make(key[0])
                self.made[key] = fresh  # CUT
            return self.made[key]

        def rows(self, count: int) -> torch.Tensor:
            return self.entry((count, 4))

    class Model(Asking):
        tables = Nested

    return _two_passes(Model())


@cut("double_backward")
def a_condition_on_the_boundary_that_is_computed_once_for_all_updates() -> Built:
    class Boundary:
        def __init__(self, wanted: Callable[[torch.Tensor], torch.Tensor]) -> None:
            self.wanted, self.kept_values = wanted, {}  # type: ignore[var-annotated]

        def values(self, part: str, x: torch.Tensor) -> torch.Tensor:
            if part not in self.kept_values:
                self.kept_values[part] = self.wanted(x)  # CUT
            return self.kept_values[part]

        def error(self, part: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (y - self.values(part, x)).square().mean()

    model, x = pair(), batch()
    boundary = Boundary(lambda x: model["inner"](x).mean(1, keepdim=True))

    def losses() -> torch.Tensor:
        return boundary.error("train", x, model["outer"](x)) + model["outer"](x).square().mean()

    def step() -> torch.Tensor:
        for _ in range(2):
            model.zero_grad()
            losses().backward()
        return losses()

    return model, step


class Users(nn.Module):
    """Keeps what it has made of each user; ``memory`` says how."""

    memory: type[Any]

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.outer, self.held = nn.GRUCell(4, 3), nn.Linear(3, 1), self.memory()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        users = range(len(x))
        now = self.cell(x, self.held.read(users))
        self.keep(users, now)
        loss: torch.Tensor = self.outer(now).square().mean()
        return loss

    def keep(self, users: Any, now: torch.Tensor) -> None:
        self.held.put(users, now)


class _Rows:
    def __init__(self) -> None:
        self.rows: dict[int, torch.Tensor] = {}

    def read(self, users: Any) -> torch.Tensor:
        return torch.stack([self.rows.get(user, torch.zeros(3)) for user in users])


@cut("double_backward")
def rows_that_a_memory_keeps_one_by_one() -> Built:
    class Memory(_Rows):
        def put(self, users: Any, values: torch.Tensor) -> None:
            for user, value in zip(users, values, strict=True):
                self.rows[user] = value  # CUT

    class Model(Users):
        memory = Memory

    return _two_passes(Model())


@cut("double_backward")
def rows_that_a_memory_keeps_by_their_number() -> Built:
    class Memory(_Rows):
        def put_all(self, users: Any, values: torch.Tensor) -> None:
            known = values.clone()
            for at, user in enumerate(users):
                self.rows[user] = known[at]  # CUT

    class Model(Users):
        memory = Memory

        def keep(self, users: Any, now: torch.Tensor) -> None:
            self.held.put_all(users, now)

    return _two_passes(Model())


class Board:
    """What parts of a program leave for one another."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}

    def leave(self, key: str, value: Any) -> None:
        self.entries[key] = value

    def look_up(self, key: str) -> Any:
        return self.entries.get(key)


@cut("double_backward")
def a_state_left_on_a_board_that_takes_anything() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.outer, self.board = nn.GRUCell(4, 3), nn.Linear(3, 1), Board()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            now = self.cell(x, self.board.look_up("hidden"))
            self.board.leave("count", len(x))
            self.board.leave("hidden", now)  # CUT
            loss: torch.Tensor = self.outer(now).square().mean()
            return loss

    return _two_passes(Model())


@cut("double_backward")
def features_that_two_losses_share_beside_a_table_that_a_helper_keeps() -> Built:
    class Model(Asking):
        class tables(Tables):  # noqa: N801
            def rows(self, count: int) -> torch.Tensor:
                if count not in self.made:
                    self.made[count] = self.make(count).detach()
                return self.made[count]

    model, x = Model(), batch()

    def step() -> torch.Tensor:
        features = model.inner(x).tanh()
        (features * model.held.rows(len(x))).sum().backward()
        return model.outer(features * model.held.rows(len(x))).square().sum()  # CUT

    return model, step


KEPT = [
    a_table_that_a_helper_keeps_under_a_key_and_returns,
    a_table_that_a_helper_gets_out_of_its_dictionary_by_a_local_name,
    a_table_behind_a_property_that_two_updates_of_one_step_read,
    a_table_that_a_helper_of_a_helper_keeps,
    a_condition_on_the_boundary_that_is_computed_once_for_all_updates,
    rows_that_a_memory_keeps_one_by_one,
    rows_that_a_memory_keeps_by_their_number,
]


@pytest.mark.parametrize("build", KEPT, ids=lambda one: one.__name__)
def test_the_line_of_the_helper_that_keeps_a_value_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.proof) == ("double_backward", "proven")
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines


def test_where_what_keeps_takes_anything_the_line_that_hands_it_a_history_is_named() -> None:
    build = a_state_left_on_a_board_that_takes_anything
    torch.manual_seed(0)
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.proof) == ("double_backward", "proven")
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines


def test_what_is_used_twice_beside_a_helper_that_keeps_something_is_not_laid_to_the_helper() -> None:
    build = features_that_two_losses_share_beside_a_table_that_a_helper_keeps
    model, step = build()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.location is not None
    assert finding.location.line in vars(build)["faulty"].lines


def test_a_helper_that_keeps_values_without_a_history_is_sound() -> None:
    class Model(Asking):
        class tables(Tables):  # noqa: N801
            def rows(self, count: int) -> torch.Tensor:
                if count not in self.made:
                    self.made[count] = self.make(count).detach()
                return self.made[count]

    model, step = _two_passes(Model())
    wanted = ["outer.weight", "outer.bias"]
    assert gradkit.diagnose(step, model=model, should_train=wanted).healthy
