"""What was put where: parameters in modules, modules in models, both in optimizers; and who left the grad mode off."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
from collections.abc import Iterator

import peft
import pytest
import torch
from torch import nn

from gradkit.source import locations
from gradkit.witness.deeds import Deed
from gradkit.witness.grad_mode import grad_mode_deeds
from gradkit.witness.histories import deeds_of
from gradkit.witness.listening import listening, paused


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    before = torch.is_grad_enabled()
    with listening():
        yield
    torch.set_grad_enabled(before)


def last(thing: object, kind: str) -> Deed:
    return next(deed for deed in reversed(deeds_of(thing)) if deed.kind == kind)


def line(deed: Deed) -> str:
    return locations.locate(deed.chain[0]).text.strip()


def test_an_optimizer_is_built_where_it_gets_its_parameters() -> None:
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(layer.parameters())
    assert last(optimizer, "built").facts == {"optimizer": "AdamW", "parameters": "2"}
    assert line(last(optimizer, "built")) == "optimizer = torch.optim.AdamW(layer.parameters())"
    assert last(layer.bias, "held").order == last(optimizer, "built").order


def test_a_group_that_is_added_later_is_told_too() -> None:
    layer, head = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    optimizer.add_param_group({"params": head.parameters()})
    assert line(last(head.weight, "held")) == 'optimizer.add_param_group({"params": head.parameters()})'


def test_a_copied_optimizer_holds_copied_parameters() -> None:
    layer = nn.Linear(2, 1)
    optimizer = copy.deepcopy(torch.optim.SGD(layer.parameters(), lr=0.1))
    held = optimizer.param_groups[0]["params"][0]
    assert [deed.kind for deed in deeds_of(held)] == ["copied", "held"]
    assert [deed.kind for deed in deeds_of(optimizer)] == ["copied"]


def test_a_state_that_is_loaded_builds_no_optimizer() -> None:
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(layer.parameters())
    optimizer.load_state_dict(optimizer.state_dict())
    assert [deed.kind for deed in deeds_of(optimizer)] == ["built"]


def test_a_layer_that_takes_anothers_place_comes_after_the_optimizer() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    old = model[1]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = nn.Linear(2, 3)
    assert last(model[1], "attached").facts == {"module": "Sequential", "name": "1", "instead": "yes"}
    assert line(last(old, "replaced")) == "model[1] = nn.Linear(2, 3)"
    assert last(model[1].weight, "registered").order > last(optimizer, "built").order


def test_a_parameter_that_takes_anothers_place_is_told_to_both() -> None:
    layer = nn.Linear(2, 1)
    old = layer.weight
    layer.weight = nn.Parameter(torch.zeros(1, 2))
    assert last(old, "replaced").order == last(layer.weight, "registered").order
    assert last(layer.weight, "registered").facts["instead"] == "yes"


def test_what_wraps_a_model_is_told_to_the_model() -> None:
    model = nn.Linear(2, 1)
    torch.compile(model)
    assert last(model, "wrapped").facts["module"] == "OptimizedModule"
    assert line(last(model, "wrapped")) == "torch.compile(model)"


def test_what_peft_freezes_is_told_with_the_users_call() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    frozen = model[1].weight
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["0"]))
    deed = last(frozen, "frozen")
    assert line(deed).startswith("wrapped = peft.get_peft_model(")
    assert deed.by == "peft.get_peft_model"
    assert "thawed" not in [deed.kind for deed in deeds_of(frozen)]
    assert wrapped is not None


def test_a_switch_that_is_never_switched_back_is_told() -> None:
    torch.set_grad_enabled(False)
    (deed,) = grad_mode_deeds()
    assert line(deed) == "torch.set_grad_enabled(False)"
    assert deed.facts == {"by": "set_grad_enabled", "left": "yes"}


def test_a_block_that_was_entered_and_never_left_is_told() -> None:
    torch.no_grad().__enter__()
    (deed,) = grad_mode_deeds()
    assert deed.facts == {"by": "no_grad", "left": "yes"}


def test_a_block_that_is_left_is_told_no_more() -> None:
    with torch.no_grad():
        (deed,) = grad_mode_deeds()
        assert deed.facts == {"by": "no_grad"}
    assert grad_mode_deeds() == ()


def test_a_block_that_an_exception_leaves_is_told_no_more() -> None:
    with contextlib.suppress(KeyError), torch.set_grad_enabled(False):
        raise KeyError
    torch._C._set_grad_enabled(False)
    assert grad_mode_deeds() == ()


def test_what_is_switched_on_again_ends_what_was_switched_off() -> None:
    torch.set_grad_enabled(False)
    torch.set_grad_enabled(True)
    assert grad_mode_deeds() == ()
    with torch.no_grad():
        assert [deed.facts["by"] for deed in grad_mode_deeds()] == ["no_grad"]


def test_a_decorator_leaves_the_mode_as_it_was() -> None:
    decorated = torch.set_grad_enabled(False)(lambda: torch.is_grad_enabled())
    assert torch.is_grad_enabled()
    assert not decorated()
    assert grad_mode_deeds() == ()


def test_a_switch_is_forgotten_once_it_was_switched_back_unheard() -> None:
    torch.set_grad_enabled(False)
    with paused():
        assert [line(deed) for deed in grad_mode_deeds()] == ["torch.set_grad_enabled(False)"]
        torch.set_grad_enabled(True)
    with paused():
        torch.set_grad_enabled(False)
    assert grad_mode_deeds() == ()


def test_a_switch_is_forgotten_once_a_diagnosis_finds_autograd_on() -> None:
    torch.set_grad_enabled(False)
    with paused():
        torch.set_grad_enabled(True)
        assert grad_mode_deeds() == ()
        torch.set_grad_enabled(False)
        assert grad_mode_deeds() == ()


def test_a_block_that_switches_on_within_one_that_switches_off_ends_alone() -> None:
    with torch.no_grad():
        with torch.enable_grad():
            assert grad_mode_deeds() == ()
        assert [deed.facts["by"] for deed in grad_mode_deeds()] == ["no_grad"]


def test_each_thread_has_switches_of_its_own() -> None:
    torch.set_grad_enabled(False)
    found: list[tuple[Deed, ...]] = []

    def work() -> None:
        torch.set_grad_enabled(False)
        found.append(grad_mode_deeds())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [line(deed) for deed in found[0]] == ["torch.set_grad_enabled(False)"]
    assert found[0][0].chain[0][0].co_name == "work"
    assert len(grad_mode_deeds()) == 1


def test_what_another_thread_does_is_heard() -> None:
    layer = nn.Linear(2, 1)
    thread = threading.Thread(target=layer.requires_grad_, args=(False,))
    thread.start()
    thread.join()
    assert last(layer.weight, "frozen").chain == ()


def test_a_history_ends_with_its_optimizer() -> None:
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    assert deeds_of(optimizer)
    del optimizer
    gc.collect()
    assert deeds_of(torch.optim.SGD(layer.parameters(), lr=0.1))[0].order == max(d.order for d in deeds_of(layer.bias))
