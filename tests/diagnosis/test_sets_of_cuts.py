"""Where several things stand in the way of a parameter, the proof is of the set, and each says what it does alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.types import Finding, Report

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.ones(8, 2)
Forward = Callable[[Any], Any]


def built() -> Any:
    torch.manual_seed(0)
    parts = {"left": nn.Linear(4, 6), "right": nn.Linear(4, 6), "middle": nn.Linear(6, 6), "head": nn.Linear(6, 2)}
    return nn.ModuleDict(parts)


def diagnosed(forward: Forward, freeze: str = "", **options: Any) -> Report:
    model = built()
    if freeze:
        model[freeze].requires_grad_(False)
    wanted = [name for name, _ in model.named_parameters()] if freeze else None
    step = lambda: F.mse_loss(forward(model), Y) + model.right(X).mean() * 0.5  # noqa: E731
    return gradkit.diagnose(step, model=model, should_train=wanted, **options)


def alone(report: Report) -> list[tuple[str, int | None]]:
    """The causes, each with how many parameters it brings back alone."""
    return [(one.cause, None if one.alone is None else len(one.alone)) for one in report.findings]


def in_series(m: Any) -> Any:
    h = m.left(X).detach()
    h = h.relu().detach()
    return m.head(m.middle(h))


def a_detach_in_a_block(m: Any) -> Any:
    with torch.no_grad():
        h = m.left(X)
        h = h.detach() * 2
    return m.head(m.middle(h))


def numpy_in_a_block(m: Any) -> Any:
    with torch.no_grad():
        h = m.left(X)
        h = torch.from_numpy(h.numpy() * 2)
    return m.head(m.middle(h))


def numpy_in_a_block_of_its_own(m: Any) -> Any:
    h = m.left(X)
    with torch.no_grad():
        bare = h.numpy(force=True)
    return m.head(m.middle(torch.from_numpy(bare) * 2))


def out_on_one_line_and_back_on_another(m: Any) -> Any:
    h = m.left(X).tolist()
    return m.head(m.middle(torch.tensor(h)))


def made_anew_of_bare_values(m: Any) -> Any:
    weight = nn.Parameter(m.left.weight.data.clamp(-1, 1))
    return m.head(m.middle(F.linear(X, weight, m.left.bias)))


def one_behind_the_other(m: Any) -> Any:
    h = m.left(X).detach()
    h = m.middle(h.relu())
    return m.head(h.detach())


def two_ways_from_one_layer(m: Any) -> Any:
    h = m.left(X)
    one = h.sin().detach()
    two = h.cos().detach()
    return m.head(m.middle(one + two))


def a_detach_behind_what_is_frozen(m: Any) -> Any:
    return m.head(m.middle(m.left(X).detach()))


def apart(m: Any) -> Any:
    h = m.left(X).detach()
    return m.head(m.middle(h) + m.middle(m.right(X).detach()))


@pytest.mark.parametrize(
    ("forward", "freeze", "found"),
    [
        (in_series, "", [("detach", 0), ("detach", 0)]),
        (a_detach_in_a_block, "", [("no_grad_block", 0), ("detach", 0)]),
        (numpy_in_a_block, "", [("no_grad_block", 0), ("numpy_roundtrip", 0)]),
        (numpy_in_a_block_of_its_own, "", [("no_grad_block", 0), ("numpy_roundtrip", 0)]),
        (out_on_one_line_and_back_on_another, "", [("python_roundtrip", 0), ("rewrap_tensor", 0)]),
        (made_anew_of_bare_values, "", [("parameter_rewrap", 0)]),
        (one_behind_the_other, "", [("detach", 2), ("detach", 0)]),
        (two_ways_from_one_layer, "", [("detach", 2), ("detach", 2)]),
        (a_detach_behind_what_is_frozen, "left", [("detach", 0), ("frozen_all", 0)]),
        (one_behind_the_other, "middle", [("detach", 0), ("detach", 0), ("frozen_all", 0)]),
    ],
)
def test_each_member_of_a_set_says_what_it_does_alone(
    forward: Forward, freeze: str, found: list[tuple[str, int]]
) -> None:
    assert alone(diagnosed(forward, freeze)) == found


def test_what_stands_in_no_other_s_way_needs_no_word_of_being_alone() -> None:
    assert all(one.alone is None for one in diagnosed(lambda m: m.head(m.middle(m.left(X).detach()))).findings)


def test_a_cut_in_front_of_what_is_frozen_is_proven_with_that_set_free() -> None:
    cut, frozen = diagnosed(a_detach_behind_what_is_frozen, "left").findings
    assert (cut.proof, cut.revived) == ("proven", ("left.weight", "left.bias"))
    assert frozen.revived == cut.revived
    assert "the frozen parameters set to require grad" in diagnosed(a_detach_behind_what_is_frozen, "left").text("en")


def test_a_run_that_sets_something_free_leaves_it_frozen() -> None:
    model = built()
    model.left.requires_grad_(False)
    names = [name for name, _ in model.named_parameters()]
    gradkit.diagnose(lambda: a_detach_behind_what_is_frozen(model).sum(), model=model, should_train=names)
    assert not any(p.requires_grad for p in model.left.parameters())


def test_what_nobody_asked_to_train_stays_frozen_and_unsaid() -> None:
    model = built()
    model.left.requires_grad_(False)
    report = gradkit.diagnose(lambda: (a_detach_behind_what_is_frozen(model) + m_of(model)).sum(), model=model)
    assert report.healthy


def m_of(model: Any) -> Any:
    return model.head(model.right(X))


def test_the_other_cut_on_a_line_says_what_it_does_alone() -> None:
    (note,) = (n for n in diagnosed(made_anew_of_bare_values).findings[0].notes if n.kind == "cuts_too")
    assert note.facts["alone"] == "0"


@pytest.mark.parametrize(
    ("language", "nothing", "some", "all_of_them"),
    [
        ("en", "fixing only this gives no parameter a gradient", "gives 2 of the 4 parameters", "all 2"),
        ("zh", "梯度一个也回不来", "4 个参数张量中有 2 个", "这 2 个参数张量就都能"),
    ],
)
def test_text_and_page_say_it_in_both_languages(language: str, nothing: str, some: str, all_of_them: str) -> None:
    for report, said in (
        (diagnosed(in_series), nothing), (diagnosed(one_behind_the_other), some),
        (diagnosed(two_ways_from_one_layer), all_of_them),
    ):  # fmt: skip
        assert said in report.text(language)
        assert said in report.html(language)


def test_plain_data_names_those_that_come_back_by_each_alone() -> None:
    first, second = diagnosed(one_behind_the_other).data()["findings"]
    assert first["alone"] == ("middle.weight", "middle.bias")
    assert second["alone"] == ()


def test_the_runs_that_ask_each_member_are_counted() -> None:
    assert diagnosed(in_series).runs - diagnosed(lambda m: m.head(m.middle(m.left(X).detach()))).runs >= 2


def test_without_replay_nothing_is_said_of_a_member_alone() -> None:
    found = diagnosed(in_series, replay=False).findings
    assert [one.alone for one in found] == [None, None]


def test_a_plate_in_the_picture_says_that_the_proof_is_one_of_the_set() -> None:
    said = " ".join(re.findall(r">([^<>]+)<", diagnosed(in_series).graph().source))
    assert "and the other cuts" in said.replace("\xa0", " ")


def test_no_cut_is_left_on_a_finding() -> None:
    assert all(one.cuts == () for one in diagnosed(in_series).findings)
    assert "cuts" not in diagnosed(in_series).data()["findings"][0]


def proven(report: Report) -> list[Finding]:
    return [one for one in report.findings if one.proof == "proven"]


def test_members_of_no_set_are_proven_each_by_itself() -> None:
    found = diagnosed(apart).findings
    assert len(proven(diagnosed(apart))) == len(found)
    assert all(one.alone is None for one in found)
