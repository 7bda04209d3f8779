"""Stale values: found wherever a step can read, taken away for a run and put back, proven or read off the source."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.state import holders
from tests.programs import cut as cut_programs
from tests.programs.shared import batch, pair

OLD_LOSSES = ("a_loss_computed_before_the_step", "half_of_a_loss_computed_before_the_step_and_handed_on")
KEPT = [
    name
    for name, program in cut_programs.PROGRAMS.items()
    if program.cause == "cached_tensor" and name not in OLD_LOSSES
]
READ = {name for name in KEPT if name.startswith("features_")}


class Slotted:
    __slots__ = ("code",)


class Holder:
    kept: Any = None


def found(root: Any, thing: Any) -> list[list[tuple[str, Any]]]:
    edges = holders.paths_to([root], {id(thing)}).get(id(thing), [])
    return [[(one.kind, one.key) for one in edge.way()] for edge in edges]


# -- where things are held --------------------------------------------------------------------------------------------


def test_what_a_closure_holds_is_found_by_its_name() -> None:
    code = torch.ones(2)
    assert found(lambda: code, code) == [[("variable", "code")]]


def test_what_an_object_inside_of_a_module_holds_is_found() -> None:
    model, holder, code = nn.Linear(1, 1), Holder(), torch.ones(2)
    model.holder, holder.kept = holder, {"a": (code,)}
    assert found(model, code) == [[("attribute", "holder"), ("attribute", "kept"), ("item", "a"), ("part", 0)]]


def test_what_a_slot_and_a_namespace_hold_is_found() -> None:
    slotted, code = Slotted(), torch.ones(2)
    slotted.code = code
    assert found(SimpleNamespace(a=slotted), code) == [[("attribute", "a"), ("attribute", "code")]]


def test_what_functools_keeps_is_found() -> None:
    code = torch.ones(2)
    for cache in (functools.cache, functools.lru_cache(maxsize=4)):
        encode = cache(lambda: code + 1)
        assert found(lambda: encode(), encode()) == [[("variable", "encode"), ("memo", "")]]  # noqa: B023


def test_all_ways_to_one_thing_are_found() -> None:
    code = torch.ones(2)
    assert len(found([[code], {"a": code}, deque([code])], code)) == 3


def test_nothing_of_the_users_is_called_on_the_way() -> None:
    class Shy:
        @property
        def loud(self) -> Any:
            raise AssertionError("called")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __len__(self) -> int:
            raise AssertionError("called")

    shy, code = Shy(), torch.ones(2)
    vars(shy)["code"] = code
    assert found([shy], code) == [[("element", 0), ("attribute", "code")]]


# -- taken away and put back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_an_entry_is_put_back_in_its_place(kind: Any, bare: bool) -> None:
    code, other = torch.ones(2), torch.zeros(2)
    kept = kind(a=code, b=other)
    edges = holders.paths_to([[kept]], {id(code)})[id(code)]
    with holders.put_back(edges):
        holders.remove(edges, bare)
        assert kept.get("a") is None
        kept["c"] = other
    assert list(kept.items()) == [("a", code), ("b", other)]


@pytest.mark.parametrize("bare", [True, False])
def test_an_attribute_and_what_stands_beside_it_are_put_back(bare: bool) -> None:
    holder, code = Holder(), torch.ones(2)
    holder.kept, holder.ready = code, True  # type: ignore[attr-defined]
    edges = holders.paths_to([holder], {id(code)})[id(code)]
    with holders.put_back(edges):
        holders.remove(edges, bare)
        assert holder.kept is None
        holder.ready = False  # type: ignore[attr-defined]
    assert (holder.kept, holder.ready) == (code, True)  # type: ignore[attr-defined]


def test_a_cache_of_functools_is_never_emptied_itself() -> None:
    @functools.lru_cache(maxsize=4)
    def encode(row: int) -> torch.Tensor:
        return torch.full((2,), float(row))

    holder = Holder()
    holder.kept = encode
    code = encode(1)
    ways = holders.paths_to([holder], {id(code)})
    edges = [one for edge in ways[id(code)] for one in holders.path_steps(edge, ways)]
    with holders.put_back(edges):
        holders.remove(edges, bare=True)
        assert holder.kept(1) is not code
    assert holder.kept is encode
    assert encode(1) is code


# -- in a diagnosis ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEPT)
def test_it_is_proven_where_the_step_fills_what_is_empty(name: str) -> None:
    model, step = cut_programs.PROGRAMS[name].build()
    findings = gradkit.diagnose(step, model=model).findings
    assert {finding.proof for finding in findings} == {"likely" if name in READ else "proven"}
    assert all(finding.revived == finding.parameters for finding in findings) or name in READ


@pytest.mark.parametrize("name", KEPT)
def test_without_replay_it_is_read_off_the_source(name: str) -> None:
    program = cut_programs.PROGRAMS[name]
    model, step = program.build()
    report = gradkit.diagnose(step, model=model, replay=False)
    assert report.runs == 1
    assert {finding.cause for finding in report.findings} <= {"cached_tensor", "trainable_unused"}
    assert {f.location.line for f in report.findings if f.cause == "cached_tensor"} <= program.lines


@pytest.mark.parametrize("name", KEPT)
def test_the_cache_is_as_before(name: str) -> None:
    model, step = cut_programs.PROGRAMS[name].build()
    losses = [step()]
    for _ in range(2):
        gradkit.diagnose(step, model=model)
        losses.append(step())
    assert torch.equal(losses[0], losses[1])
    assert losses[0].requires_grad == losses[2].requires_grad
    assert [f.cause for f in gradkit.diagnose(step, model=model).findings][:1] == ["cached_tensor"]


def test_data_that_a_step_cannot_do_without_is_no_cache() -> None:
    model, data = pair(extra=nn.Linear(4, 4)), {"x": batch()}

    def step() -> torch.Tensor:
        return model["outer"](model["inner"](data["x"])).sum()

    report = gradkit.diagnose(step, model=model)
    assert [(f.cause, f.parameters) for f in report.findings] == [("trainable_unused", ("extra.weight", "extra.bias"))]
    assert data["x"].shape == (6, 4)


def test_what_a_step_can_do_without_is_no_cache_of_what_it_never_uses() -> None:
    model, seen = pair(extra=nn.Linear(4, 4)), SimpleNamespace(offset=torch.ones(6, 1))

    def step() -> torch.Tensor:
        out = model["outer"](model["inner"](torch.ones(6, 4)))
        return (out if seen.offset is None else out + seen.offset).sum()

    assert [f.cause for f in gradkit.diagnose(step, model=model).findings] == ["trainable_unused"]


def test_another_branch_that_trains_something_else_is_no_refill() -> None:
    model, replay = pair(critic=nn.Linear(4, 1)), [batch()]

    def step() -> torch.Tensor:
        if not replay:
            return model["critic"](torch.ones(1, 4)).sum()
        return model["outer"](model["inner"](replay[0])).sum()

    assert [f.cause for f in gradkit.diagnose(step, model=model).findings] == ["trainable_unused"]


def test_a_sound_program_is_never_run_for_it() -> None:
    model, kept = pair(), {"mask": torch.ones(6, 4)}
    report = gradkit.diagnose(lambda: model["outer"](model["inner"](kept["mask"])).sum(), model=model)
    assert (report.healthy, report.runs) == (True, 1)


def test_the_number_of_runs_has_an_end() -> None:
    model = pair(extra=nn.Linear(4, 4))
    data = [{"x": torch.randn(6, 4)} for _ in range(30)]
    kept = [SimpleNamespace(one=one) for one in data]

    def step() -> torch.Tensor:
        return sum(model["outer"](model["inner"](one.one["x"])).sum() for one in kept)

    assert gradkit.diagnose(step, model=model).runs <= 9


def test_targets_made_for_each_head_by_its_name_are_not_kept_of_the_heads() -> None:
    heads = nn.ModuleDict({name: nn.Linear(2, 1) for name in ("depth", "edge")})
    targets = {name: torch.randn(3, 1) for name in heads}

    def step() -> torch.Tensor:
        losses = {name: (head(torch.ones(3, 2)) - targets[name]).pow(2).mean() for name, head in heads.items()}
        return sum((losses[name] for name in ("depth",)), torch.zeros(()))

    assert [one.cause for one in gradkit.diagnose(step, model=heads).findings] == ["trainable_unused"]
