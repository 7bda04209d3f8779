"""What live things hold: one table for all that walk over them."""

from __future__ import annotations

import collections
import fractions
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gradkit.state import holders, reachable, restore
from gradkit.state.preserve import Preserved
from gradkit.state.reachable import children


def held(thing: Any) -> list[tuple[str, Any, Any]]:
    return [(kind, key, value) for kind, key, _, value in children(thing)]


class Plain:
    """Its functions are added by a test."""


class Slotted:
    __slots__ = ("kept",)


class Derived(fractions.Fraction):
    """A library's slots under a class of the user's."""


KEPT: list[int] = []


# -- the table --------------------------------------------------------------------------------------------------------


def test_a_function_holds_its_closure_its_defaults_the_globals_that_it_names_and_its_attributes() -> None:
    seen = [1]

    def step(size: int = 3, *, width: int = 4) -> Any:
        return seen, KEPT, size, width

    step.hits = 5  # type: ignore[attr-defined]
    expected = [
        ("variable", "seen", seen), ("part", "size", 3), ("part", "width", 4), ("global", "KEPT", KEPT),
        ("attribute", "hits", 5),
    ]  # fmt: skip
    assert held(step) == expected


def test_an_object_of_the_users_holds_its_attributes_its_slots_and_its_class() -> None:
    plain, slotted = Plain(), Slotted()
    plain.kept, slotted.kept = 1, 2  # type: ignore[attr-defined]
    assert held(plain) == [("attribute", "kept", 1), ("part", "", Plain)]
    assert held(slotted) == [("attribute", "kept", 2), ("part", "", Slotted)]
    assert held(Slotted()) == [("part", "", Slotted)]


def test_containers_hold_their_entries_each_in_its_place() -> None:
    assert held({"a": 1}) == [("item", "a", 1)]
    assert held(["x"]) == held(collections.deque("x")) == [("element", 0, "x")]
    assert held(("x",)) == held({"x"}) == [("part", 0, "x")]


def test_a_subclass_of_a_container_holds_its_attributes_too() -> None:
    class Log(list[int]):
        pass

    log = Log([1])
    log.step = 2  # type: ignore[attr-defined]
    assert held(log) == [("element", 0, 1), ("attribute", "step", 2), ("part", "", Log)]


def test_a_bound_method_of_a_container_holds_the_container() -> None:
    kept = {"code": torch.ones(2)}
    assert held(kept.get) == [("part", "", kept)]
    found = holders.paths_to([kept.get], {id(kept["code"])})[id(kept["code"])]
    assert [(one.kind, one.key) for one in found[0].way()] == [("part", ""), ("item", "code")]


def test_a_partial_holds_the_dictionary_of_what_is_bound() -> None:
    bound = functools.partial(print, 1, sep="-")
    assert held(bound) == [("part", "", print), ("part", "", (1,)), ("part", "", {"sep": "-"})]


def test_a_cache_of_functools_holds_its_function_and_its_results() -> None:
    @functools.lru_cache(maxsize=4)
    def encode(row: int) -> tuple[int]:
        return (row,)

    code = encode(7)
    assert held(encode)[0] == ("part", "", encode.__wrapped__)
    assert ("memo", "", code) in held(encode)


def test_a_property_holds_all_its_functions() -> None:
    one = property(lambda self: 1, lambda self, new: None, lambda self: None)
    assert [value for *_, value in held(one)] == [one.fget, one.fset, one.fdel]


def test_of_a_library_neither_a_class_nor_a_module_is_looked_into() -> None:
    assert held(nn.Linear) == held(random) == []


def test_numbers_and_text_hold_nothing() -> None:
    assert held(3) == held("abc") == held(None) == []


# -- whose a class is -------------------------------------------------------------------------------------------------


def of_nobody(**members: Any) -> type:
    """A class that does not say in which file it was written."""
    return type("Made", (), {"__module__": "nowhere", **members})


@pytest.mark.parametrize(
    "member",
    [
        lambda self: 1,
        property(lambda self: 1),
        classmethod(lambda cls: 1),
        staticmethod(lambda: 1),
        functools.cached_property(lambda self: 1),
    ],
    ids=["method", "property", "classmethod", "staticmethod", "cached_property"],
)
def test_a_class_is_the_users_by_whichever_function_is_in_it(member: Any) -> None:
    assert reachable.is_users(of_nobody(member=member))


def test_a_class_without_a_function_of_the_users_that_was_written_nowhere_is_not_theirs() -> None:
    assert not reachable.is_users(of_nobody(method=random.Random.random, kept=3, made=property(None)))


def test_what_runs_as_main_is_the_users_whatever_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = types.ModuleType("__main__")
    profiler.__file__ = random.__file__
    monkeypatch.setitem(sys.modules, "__main__", profiler)
    assert reachable.is_users(type("Typed", (), {"__module__": "__main__"}))


def test_nothing_in_a_class_is_asked_whose_it_is() -> None:
    class Loud:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    assert not reachable.is_users(of_nobody(kept=Loud()))


# -- the walkers ------------------------------------------------------------------------------------------------------


def test_a_model_in_a_slot_of_a_trainer_is_the_model_of_the_step() -> None:
    net = nn.Linear(2, 1)
    trainer = Slotted()
    trainer.kept = net
    assert reachable.model_of(lambda: trainer.kept(torch.ones(2)).sum(), "step") is net


def test_the_model_among_the_bound_arguments_of_a_partial_is_the_model_of_the_step() -> None:
    net = nn.Linear(2, 1)
    for bound in (functools.partial(len, net), functools.partial(len, [net]), functools.partial(len, x={"net": net})):
        assert reachable.model_of(bound, "step") is net


def test_a_slot_that_a_library_gave_to_a_class_of_the_users_is_put_back() -> None:
    half = Derived(1, 2)
    back = restore.restorer(half, kept=True)
    half._numerator = 5  # type: ignore[attr-defined]
    assert back is not None
    back()
    assert half == fractions.Fraction(1, 2)


def test_what_a_cached_property_works_with_is_reached() -> None:
    seen: list[int] = []
    cls = types.new_class("Counted", (), {}, lambda space: space.update(hits=functools.cached_property(lambda _: seen)))
    assert any(one is seen for one in reachable.everything_reachable(cls()))


def test_an_attribute_is_reached_also_by_a_name_that_modules_use_for_themselves() -> None:
    plain, seen = Plain(), [1]
    plain._buffers = seen  # type: ignore[attr-defined]
    assert any(one is seen for one in reachable.everything_reachable(plain))


def test_the_tables_of_a_module_are_no_matter_of_their_length_but_other_containers_are() -> None:
    layers = nn.ModuleList(nn.Identity() for _ in range(reachable.MANY + 1))
    kept = [Plain() for _ in range(reachable.MANY + 1)]
    found = {id(one) for one in reachable.everything_reachable(layers, kept)}
    assert {id(one) for one in layers} <= found
    assert not found & {id(one) for one in kept}


def test_the_way_to_what_an_optimizer_and_a_hook_of_a_tensor_hold_is_no_way_that_a_forward_goes() -> None:
    weight, seen = nn.Parameter(torch.ones(2)), torch.ones(2)
    weight.register_hook(lambda grad: grad * seen)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    assert holders.paths_to([weight, optimizer], {id(seen), id(optimizer.param_groups)}) == {}
    assert any(one is seen for one in reachable.everything_reachable(weight))


# -- data under way ---------------------------------------------------------------------------------------------------


class Data:
    stream: Iterator[float]


def as_an_attribute_of_a_function(data: Iterator[float]) -> Callable[[], float]:
    def draw() -> float:
        return next(draw.data)  # type: ignore[attr-defined, no-any-return]

    draw.data = data  # type: ignore[attr-defined]
    return draw


def as_an_attribute_of_a_class(data: Iterator[float]) -> Callable[[], float]:
    Data.stream = data
    return lambda: next(Data.stream)


def in_a_slot(data: Iterator[float]) -> Callable[[], float]:
    slotted = Slotted()
    slotted.kept = data
    return lambda: next(slotted.kept)


@pytest.mark.parametrize("hold", [as_an_attribute_of_a_function, as_an_attribute_of_a_class, in_a_slot])
def test_every_run_gets_the_same_of_data_that_is_held(hold: Callable[[Iterator[float]], Callable[[], float]]) -> None:
    data = iter([1.0, 2.0, 3.0])
    step = hold(data)
    with Preserved(nn.Linear(1, 1), step) as preserved:
        first = step(), step()
        preserved.rewind()
        assert (step(), step()) == first == (1.0, 2.0)
    assert step() == 1.0
