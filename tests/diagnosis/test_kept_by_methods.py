"""Values kept with a history: by a method of one of two classes, in a tuple, a global, a registered buffer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from tests.programs.shared import Built, batch, cut, pair


def _two_passes(model: nn.Module) -> Built:
    first, second = batch(), batch()

    def step() -> torch.Tensor:
        model(first).square().mean().backward()
        loss: torch.Tensor = model(second).square().mean()
        return loss

    return model, step


def _one_pass_before(model: nn.Module) -> Built:
    x = batch()
    model(x).square().mean().backward()

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        return loss

    return model, step


@cut("double_backward")
def two_of_what_a_helper_returns_while_nothing_has_changed() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.cell = nn.Linear(4, 3), nn.Parameter(torch.randn(1, 3))
            self.grid = self.weight = self.known = None

        def computed(self) -> tuple[torch.Tensor, torch.Tensor]:
            grid = torch.arange(1.0, 6).unsqueeze(1) @ self.cell.exp()
            return grid, torch.exp(-grid.square().sum(1))

        def prepared(self) -> Any:
            if self.known is None or not torch.equal(self.known, self.cell):
                self.known = self.cell.detach().clone()
                self.grid, self.weight = self.computed()  # CUT
            return self.grid, self.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            grid, weight = self.prepared()
            return torch.cos(self.inner(x) @ grid.T) @ weight

    return _two_passes(Model())


class _Log:
    def __init__(self) -> None:
        self.values: list[float] = []

    def push(self, value: torch.Tensor) -> None:
        self.values.append(float(value.detach()))


@cut("double_backward")
def a_queue_beside_a_log_whose_methods_have_one_name() -> Built:
    class Queue:
        def __init__(self) -> None:
            self.items: list[torch.Tensor] = []

        def push(self, keys: torch.Tensor) -> None:
            self.items.append(keys)  # CUT

        def all(self) -> torch.Tensor:
            return torch.cat(self.items)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.queue, self.log = nn.Linear(4, 3), Queue(), _Log()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keys = self.body(x)
            out = keys @ self.queue.all().T if self.queue.items else keys
            self.log.push(keys.norm())
            self.queue.push(keys)
            return out

    return _two_passes(Model())


def _remembering(build: Callable[[nn.Module], Built]) -> Built:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.state = nn.GRUCell(4, 3), None

        def remember(self, state: Any) -> None:
            self.state = state

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.cell(x, self.state)
            return made

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.state = nn.GRUCell(3, 3), None

        def remember(self, state: Any) -> None:
            self.state = state.detach()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.cell(x, self.state)
            return made

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = Encoder(), Decoder()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.encoder(x)
            self.encoder.remember(hidden)
            out: torch.Tensor = self.decoder(hidden)
            self.decoder.remember(out)
            return out

    return build(Model())


_LATEST: torch.Tensor | None = None


@cut("double_backward")
def a_state_in_a_global() -> Built:
    global _LATEST
    _LATEST = None
    model = nn.GRUCell(4, 3)

    def advanced(x: torch.Tensor) -> torch.Tensor:
        global _LATEST
        hidden: torch.Tensor = model(x, _LATEST)
        _LATEST = hidden  # CUT
        return hidden

    x = batch()

    def step() -> torch.Tensor:
        advanced(x).square().mean().backward()
        return advanced(x).square().mean()

    return model, step


class Table(nn.Module):
    """Scales by a table of its own; ``table`` says how that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.embed = nn.Linear(4, 3), nn.Embedding(7, 3)
        self.made: dict[int, torch.Tensor] = {}

    def table(self, count: int) -> torch.Tensor:
        raise NotImplementedError

    def computed(self, count: int) -> torch.Tensor:
        return self.embed(torch.arange(count)).exp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.body(x)) * self.table(len(x))


@cut("double_backward")
def a_table_that_gets_two_names_at_once() -> Built:
    class Twice(Table):
        def table(self, count: int) -> torch.Tensor:
            found = self.made.get(count)
            if found is None:
                found = self.made[count] = self.embed(torch.arange(count)).exp()  # CUT
            return found

    return _two_passes(Twice())


@cut("double_backward")
def a_table_that_is_registered_as_a_buffer() -> Built:
    class Registered(Table):
        size = -1

        def table(self, count: int) -> Any:
            if self.size != count:
                self.size = count
                self.register_buffer("kept", self.embed(torch.arange(count)).exp(), persistent=False)  # CUT
            return self.kept

    return _one_pass_before(Registered())


@cut("double_backward")
def a_table_kept_on_the_function_that_makes_it() -> Built:
    def window(model: Table, count: int) -> Any:
        if getattr(window, "size", None) != count:
            window.size = count  # type: ignore[attr-defined]
            window.kept = model.computed(count)  # type: ignore[attr-defined]  # CUT
        return window.kept  # type: ignore[attr-defined]

    class OnFunction(Table):
        def table(self, count: int) -> Any:
            return window(self, count)

    return _one_pass_before(OnFunction())


@cut("double_backward")
def a_table_that_a_decorated_method_remembers() -> Built:
    class Remembering(Table):
        @functools.cache  # noqa: B019  # CUT
        def table(self, count: int) -> torch.Tensor:
            return self.computed(count)

    return _two_passes(Remembering())


@cut("double_backward")
def states_of_an_lstm_that_a_dictionary_is_updated_with() -> Built:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 3)
            self.memory: dict[str, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out, (h, c) = self.lstm(x, (self.memory["h"], self.memory["c"]) if self.memory else None)
            self.memory.update(h=h, c=c)  # CUT
            made: torch.Tensor = out
            return made

    return _two_passes(Model())


@cut("double_backward")
def an_object_whose_constructor_computes_and_which_is_kept() -> Built:
    class Basis:
        def __init__(self, lattice: torch.Tensor) -> None:
            self.lattice = lattice.detach().clone()
            self.inverse = torch.linalg.inv(lattice)
            self.volume = torch.linalg.det(lattice).abs()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.basis = nn.Linear(4, 3), None
            self.lattice = nn.Parameter(torch.eye(3) + 0.1 * torch.randn(3, 3))

        def current(self) -> Any:
            if self.basis is None or not torch.equal(self.basis.lattice, self.lattice):
                self.basis = Basis(self.lattice)  # CUT
            return self.basis

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            basis = self.current()
            made: torch.Tensor = self.body(x) @ basis.inverse / basis.volume
            return made

    return _two_passes(Model())


KEPT = [
    two_of_what_a_helper_returns_while_nothing_has_changed,
    a_queue_beside_a_log_whose_methods_have_one_name,
    a_state_in_a_global,
    a_table_that_gets_two_names_at_once,
    a_table_that_is_registered_as_a_buffer,
    a_table_kept_on_the_function_that_makes_it,
    a_table_that_a_decorated_method_remembers,
    states_of_an_lstm_that_a_dictionary_is_updated_with,
    an_object_whose_constructor_computes_and_which_is_kept,
]


@pytest.mark.parametrize("build", KEPT, ids=lambda one: one.__name__)
def test_the_line_that_keeps_a_value_with_its_history_is_named(build: Callable[[], Built]) -> None:
    torch.manual_seed(0)
    model, step = build()
    found = gradkit.diagnose(step, model=model).findings
    assert {one.cause for one in found} == {"double_backward"}
    assert {one.location.line for one in found if one.location is not None} == vars(build)["faulty"].lines


@pytest.mark.parametrize("build", [_two_passes, _one_pass_before], ids=["in one step", "from an earlier step"])
def test_of_two_classes_with_a_method_of_one_name_it_is_the_one_that_keeps(build: Callable[[nn.Module], Built]) -> None:
    torch.manual_seed(0)
    model, step = _remembering(build)
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.location is not None
    assert finding.location.function.endswith("Encoder.remember")


def test_a_log_of_numbers_beside_a_queue_that_lets_go_is_sound() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.log, self.queue = nn.Linear(4, 3), _Log(), torch.zeros(0, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keys = self.body(x)
            out: torch.Tensor = keys @ self.queue.T if len(self.queue) else keys
            self.log.push(keys.norm())
            self.queue = torch.cat([self.queue, keys.detach()])
            return out

    model, step = _two_passes(Model())
    assert gradkit.diagnose(step, model=model).healthy


def test_a_record_that_is_made_anew_in_each_pass_is_sound() -> None:
    @dataclass
    class Basis:
        weight: torch.Tensor

    model, x = pair(), batch()

    def loss() -> torch.Tensor:
        basis = Basis(model["inner"].weight.exp())
        made: torch.Tensor = model["outer"](model["inner"](x) @ basis.weight).square().mean()
        return made

    def step() -> torch.Tensor:
        loss().backward()
        return loss()

    assert gradkit.diagnose(step, model=model).healthy
