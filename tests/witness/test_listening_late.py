"""Once the first steps are made, what is rare is heard on: nothing that a step does, nor what happens all the time."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, StepLR

from gradkit.witness import listening as module
from gradkit.witness.histories import deeds_of
from gradkit.witness.listening import Listening, listening, paused
from tests.witness.test_listening import HOOKS, Recording, state, steps, touch

LATE = {nn.Parameter: {"requires_grad", "requires_grad_", "__deepcopy__"}, LRScheduler: {"__init__"},
        torch.optim.Optimizer: {"add_param_group", "__setstate__"}}  # fmt: skip


def trained() -> tuple[nn.Linear, torch.optim.Optimizer]:
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    steps(layer, optimizer, 2)
    return layer, optimizer


@pytest.fixture
def late() -> Iterator[Listening]:
    """Somebody listens late: an optimizer has made its steps."""
    heard = Listening(until_steps=2, then_late=True).open()
    trained()
    assert not heard.is_open
    yield heard
    heard.close()


def kinds(thing: object) -> list[str]:
    return [deed.kind for deed in deeds_of(thing)]


@pytest.mark.usefixtures("late")
def test_what_is_frozen_and_thawed_after_the_first_steps_is_heard() -> None:
    layer = nn.Linear(2, 1)
    layer.weight.requires_grad = False
    layer.requires_grad_(False)
    layer.weight.requires_grad_(True)
    assert kinds(layer.weight) == ["registered", "frozen", "frozen", "thawed"]
    (deed,) = [one for one in deeds_of(layer.bias) if one.kind == "frozen"]
    assert deed.chain[0][0] is test_what_is_frozen_and_thawed_after_the_first_steps_is_heard.__code__


@pytest.mark.usefixtures("late")
def test_copies_are_heard() -> None:
    made = copy.deepcopy(nn.Linear(2, 1).requires_grad_(False))
    assert kinds(made.weight) == ["copied"]
    assert [one.kind for one in deeds_of(made.weight)[0].before] == ["registered", "frozen"]


@pytest.mark.usefixtures("late")
def test_optimizers_their_groups_and_their_schedulers_are_heard() -> None:
    layer, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    optimizer.add_param_group({"params": other.parameters()})
    StepLR(optimizer, 1)
    assert kinds(optimizer) == ["built", "built", "scheduled"]
    assert kinds(other.weight)[-1] == "held"


@pytest.mark.usefixtures("late")
def test_what_takes_a_parameters_place_is_heard() -> None:
    layer = nn.Linear(2, 1)
    old = layer.weight
    layer.load_state_dict({name: one.clone() for name, one in layer.state_dict().items()}, assign=True)
    assert kinds(old)[-1] == "replaced"
    assert kinds(layer.weight) == ["registered"]


@pytest.mark.usefixtures("late")
def test_nothing_stands_on_what_a_step_calls() -> None:
    found = {}
    with paused():
        plain = {one: dict(vars(one)) for one in (torch.Tensor, *LATE)}
    for one, before in plain.items():
        there = vars(one)
        found[one] = {name for name in there if there[name] is not before.get(name)}
    assert found == {torch.Tensor: set(), **LATE}
    assert not HOOKS[2]


def test_all_is_put_back_at_the_end() -> None:
    before = state(), dict(vars(LRScheduler))
    with listening() as outer:
        heard = Listening(until_steps=2, then_late=True).open()
        trained()
        outer.close()
        assert vars(nn.Parameter) != before[0][1]
        heard.close()
    assert (state(), dict(vars(LRScheduler))) == before


@pytest.mark.usefixtures("late")
def test_who_listens_to_all_comes_first() -> None:
    layer = nn.Linear(2, 1)
    with listening():
        layer.requires_grad_(False)
        layer.weight.data.zero_()
        assert kinds(layer.weight) == ["registered", "frozen", "written"]
    layer.requires_grad_(True)
    assert kinds(layer.weight)[-1] == "thawed"


def test_it_may_listen_to_all_once_more(late: Listening) -> None:
    layer = nn.Linear(2, 1)
    late.open()
    layer.weight.data.zero_()
    assert kinds(layer.weight)[-1] == "written"
    trained()
    layer.weight.data.zero_()
    layer.requires_grad_(False)
    assert kinds(layer.weight) == ["registered", "written", "frozen"]


@pytest.mark.usefixtures("late")
def test_a_pause_hears_nothing_and_puts_all_back() -> None:
    layer = nn.Linear(2, 1)
    with paused():
        assert "requires_grad" not in vars(nn.Parameter)
        layer.requires_grad_(False)
    assert kinds(layer.weight) == ["registered"]


def test_what_is_not_rare_ends_it_and_who_did_it_last_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LATE", 40)
    before = state()
    heard = Listening(until_steps=2, then_late=True).open()
    still, flipped = nn.Linear(2, 1).requires_grad_(False), nn.Linear(2, 1)
    _, optimizer = trained()
    for _ in range(10):
        flipped.requires_grad_(False).requires_grad_(True)
    assert state() == before
    assert kinds(flipped.weight) == []
    assert kinds(still.weight) == ["registered", "frozen"]
    assert kinds(optimizer) == ["built"]
    heard.close()
    assert state() == before


@pytest.mark.usefixtures("late")
def test_what_is_read_and_asked_of_the_class_is_as_ever() -> None:
    weight: Any = nn.Parameter(torch.ones(2))
    whole: Any = nn.Parameter(torch.ones(2, dtype=torch.long), requires_grad=False)
    assert weight.requires_grad is True
    assert nn.Parameter.requires_grad_ is torch.Tensor.requires_grad_
    assert weight.requires_grad_(False) is weight
    with pytest.raises(RuntimeError):
        weight.requires_grad = "no"
    with pytest.raises(RuntimeError):
        whole.requires_grad_()


@pytest.mark.usefixtures("late")
def test_a_function_mode_is_called_with_the_functions_that_it_knows() -> None:
    def run() -> list[Any]:
        with Recording() as mode:
            touch(nn.Parameter(torch.ones(2), requires_grad=False))
        return mode.called

    with paused():
        plain = run()
    assert run() == plain


@pytest.mark.usefixtures("late")
def test_a_model_is_pickled_saved_and_copied_as_ever() -> None:
    layer = nn.Linear(2, 1)
    layer.bias.requires_grad = False
    saved = io.BytesIO()
    torch.save(layer, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    for one in (pickle.loads(pickle.dumps(layer)), loaded, copy.deepcopy(layer), copy.copy(layer)):
        assert type(one.weight) is nn.Parameter
        assert (one.weight.requires_grad, one.bias.requires_grad) == (True, False)
        assert torch.equal(one.weight, layer.weight)


@pytest.mark.usefixtures("late")
def test_a_compiled_step_that_thaws_and_freezes_is_compiled_to_the_same_graph() -> None:
    def run() -> list[Any]:
        torch._dynamo.reset()
        layer, graphs = nn.Linear(2, 1), list[Any]()

        def backend(graph: torch.fx.GraphModule, _: object) -> Any:
            graphs.append(graph.code)
            return graph.forward

        def step(x: torch.Tensor) -> torch.Tensor:
            scale = 2.0 if layer.weight.requires_grad else 3.0
            return layer(x) * scale + layer.bias.requires_grad

        with torch.compiler.set_stance("default"):
            torch.compile(step, backend=backend, fullgraph=True)(torch.ones(2))
            layer.requires_grad_(False)
            torch.compile(step, backend=backend, fullgraph=True)(torch.ones(2))
        return graphs

    with paused():
        plain = run()
    assert len(plain) == 2
    assert run() == plain
