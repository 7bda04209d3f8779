"""What was done to a tensor, and on which line of the user's code."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Iterator
from types import CodeType

import pytest
import torch
from torch import nn

from gradkit.source import locations
from gradkit.witness import histories
from gradkit.witness.deeds import Deed
from gradkit.witness.histories import deeds_of
from gradkit.witness.listening import listening


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    with listening():
        yield


def kinds(thing: object) -> list[str]:
    return [deed.kind for deed in deeds_of(thing)]


def last(thing: object, kind: str) -> Deed:
    return next(deed for deed in reversed(deeds_of(thing)) if deed.kind == kind)


def line(deed: Deed) -> str:
    return locations.locate(deed.chain[0]).text.strip()


def freeze(parameters: object) -> None:
    for p in parameters:  # type: ignore[attr-defined]
        p.requires_grad = False


def test_a_flag_that_is_set_is_told_with_its_line_and_the_callers() -> None:
    layer = nn.Linear(2, 1)
    freeze(layer.parameters())
    deed = last(layer.weight, "frozen")
    assert line(deed) == "p.requires_grad = False"
    assert [code.co_name for code, _ in deed.chain[:2]] == [
        "freeze",
        "test_a_flag_that_is_set_is_told_with_its_line_and_the_callers",
    ]
    assert deed.by == ""


def test_of_two_models_each_has_the_line_that_froze_it() -> None:
    teacher, student = nn.Linear(2, 1), nn.Linear(2, 1)
    teacher.requires_grad_(False)
    student.weight.requires_grad_(False)
    assert line(last(teacher.weight, "frozen")) == "teacher.requires_grad_(False)"
    assert line(last(student.weight, "frozen")) == "student.weight.requires_grad_(False)"
    assert "frozen" not in kinds(student.bias)


def test_a_modules_own_method_is_the_library_and_the_users_line_calls_it() -> None:
    layer = nn.Linear(2, 1).requires_grad_(False)
    assert last(layer.weight, "frozen").by == "torch.Module.requires_grad_"


def test_frozen_and_thawed_are_told_in_their_order() -> None:
    layer = nn.Linear(2, 1)
    layer.weight.requires_grad = False
    layer.weight.requires_grad = True
    layer.weight.requires_grad_(False)
    flags = [deed.kind for deed in deeds_of(layer.weight) if deed.kind in ("frozen", "thawed")]
    assert flags == ["frozen", "thawed", "frozen"]
    orders = [deed.order for deed in deeds_of(layer.weight)]
    assert orders == sorted(orders)


def test_a_flag_that_was_so_before_is_told_as_set_again() -> None:
    layer = nn.Linear(2, 1)
    layer.weight.requires_grad = False
    layer.weight.requires_grad_(False)
    assert [d.facts for d in deeds_of(layer.weight) if d.kind == "frozen"] == [{}, {"again": "yes"}]


def test_a_flag_that_torch_refuses_to_set_is_no_deed() -> None:
    computed = nn.Linear(2, 1)(torch.ones(2))
    with pytest.raises(RuntimeError, match="leaf"):
        computed.requires_grad = False
    assert deeds_of(computed) == ()


def test_a_parameter_of_the_users_is_created_and_registered() -> None:
    layer = nn.Module()
    layer.scale = nn.Parameter(torch.ones(1), requires_grad=False)
    assert kinds(layer.scale) == ["created", "registered"]
    assert deeds_of(layer.scale)[0].facts == {"frozen": "yes"}
    assert deeds_of(layer.scale)[1].facts == {"module": "Module", "name": "scale"}


def test_the_last_writer_is_the_last_deed() -> None:
    layer = nn.Linear(2, 1)
    nn.init.zeros_(layer.weight)
    deed = deeds_of(layer.weight)[-1]
    assert (deed.kind, deed.facts["by"], deed.facts["zero"]) == ("written", "zero_", "yes")
    assert line(deed) == "nn.init.zeros_(layer.weight)"


def test_what_is_written_through_data_or_a_view_counts() -> None:
    table = nn.Embedding(4, 2)
    table.weight.data.fill_(0.0)
    assert deeds_of(table.weight)[-1].facts["zero"] == "yes"
    with torch.no_grad():
        table.weight[1].fill_(3)
    assert deeds_of(table.weight)[-1].facts["part"] == "yes"
    assert "zero" not in deeds_of(table.weight)[-1].facts


def test_what_is_written_elsewhere_has_no_history() -> None:
    assert deeds_of(torch.ones(2).zero_()) == ()


def test_a_state_dict_is_loaded() -> None:
    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    one.load_state_dict(other.state_dict())
    deed = last(one.weight, "loaded")
    assert line(deed) == "one.load_state_dict(other.state_dict())"
    assert deed.by == "torch.Module.load_state_dict"
    assert "loaded" not in kinds(other.weight)


def test_a_cast_tells_from_what_to_what() -> None:
    layer = nn.Linear(2, 1)
    layer.half()
    assert last(layer.weight, "cast").facts == {"from": "float32", "to": "float16", "device": "cpu"}
    layer.half()
    assert kinds(layer.weight).count("cast") == 1


def test_a_deep_copy_begins_a_history_of_its_own() -> None:
    layer = nn.Linear(2, 1)
    layer.weight.requires_grad = False
    copied = copy.deepcopy(layer)
    layer.weight.requires_grad = True
    assert kinds(copied.weight) == ["copied"]
    assert [deed.kind for deed in deeds_of(copied.weight)[0].before][-1] == "frozen"
    assert line(last(copied.weight, "copied")) == "copied = copy.deepcopy(layer)"
    assert "copied" not in kinds(layer.weight)


def test_a_pickled_model_is_remade() -> None:
    file = io.BytesIO()
    torch.save(nn.Linear(2, 1), file)
    file.seek(0)
    model = torch.load(file, weights_only=False)
    assert line(last(model.weight, "created")) == "model = torch.load(file, weights_only=False)"


def test_a_history_ends_with_its_tensor_and_is_no_other_tensors() -> None:
    layer = nn.Linear(2, 1)
    number = id(layer.weight)
    assert histories.living(number) is layer.weight
    del layer
    gc.collect()
    assert histories.living(number) is None


def test_a_history_keeps_nothing_alive_but_code() -> None:
    layer = nn.Linear(2, 1).requires_grad_(False)
    for deed in deeds_of(layer.weight):
        points = [*deed.chain, *([deed.library] if deed.library else [])]
        assert all(type(code) is CodeType and type(lasti) is int for code, lasti in points)
        assert all(type(value) is str for value in deed.facts.values())


def test_of_a_long_history_the_first_of_each_kind_and_the_last_are_kept() -> None:
    layer = nn.Linear(2, 1)
    layer.weight.requires_grad = False
    for _ in range(1000):
        nn.init.ones_(layer.weight)
    found = deeds_of(layer.weight)
    assert len(found) <= 40
    assert {deed.kind for deed in found} == {"registered", "written", "frozen"}
    assert found[0].kind == "registered"
    assert found[-1].facts["by"] == "fill_"
