"""Programs a hundred times larger than most: what is done once for each call, cut or level must not be done squared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gradkit
from gradkit.core.trace import Call, Chain, Trace, Value
from gradkit.diagnosis.facts import cuts
from gradkit.source import frames
from gradkit.state import holders
from gradkit.tracing.tracer import Tracer


def _chain_of_cuts(count: int) -> Trace:
    """``y = (y + p[i]).detach()``, ``count`` times."""
    calls: list[Call] = []
    values = [Value(-1, (2,), True, True, f"p{i}") for i in range(count)]
    last: tuple[int, ...] = ()
    for i in range(count):
        for name in ("add", "detach"):
            inputs, last = ((*last, i) if name == "add" else last), (len(values),)
            values.append(Value(len(calls), (2,), True, name == "add"))
            calls.append(Call(len(calls), name, inputs, last, True, (), -1, (), len(calls)))
    return Trace(tuple(calls), tuple(values), (), (), last[0], {f"p{i}": i for i in range(count)})


def _step_of(tmp_path: Path, lines: Iterable[str]) -> Callable[..., Any]:
    file = tmp_path / "train.py"
    file.write_text("\n".join(["def step(p, y):", *(f"    {line}" for line in lines), "    return y.sum()"]))
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    step: Callable[..., Any] = space["step"]
    return step


def _parameters(count: int) -> nn.ParameterList:
    return nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(count)])


def test_ten_thousand_cuts_one_behind_the_other_at_one_place_are_one() -> None:
    verdict = cuts.find(_chain_of_cuts(10_000), [f"p{i}" for i in range(10_000)])
    assert [len(cut.calls) for cut in verdict.cuts] == [10_000]
    assert [len(cut.parameters) for cut in verdict.cuts] == [10_000]


def test_of_cuts_one_behind_the_other_each_starves_what_is_before_it(tmp_path: Path) -> None:
    step = _step_of(tmp_path, (f"y = (y + p[{i}]).detach()" for i in range(20)))
    model = _parameters(20)
    report = gradkit.diagnose(lambda: step(model, torch.zeros(1)), model=model)
    told = {one.location.line: one.parameters for one in report.findings if one.location is not None}
    assert told == {i + 2: tuple(str(n) for n in range(i + 1)) for i in range(20)}


def test_a_stack_of_modules_that_runs_by_itself_runs_in_a_diagnosis() -> None:
    model: nn.Module = nn.Linear(2, 1)
    for _ in range(230):
        model = nn.Sequential(model)
    before = sys.getrecursionlimit()
    assert gradkit.diagnose(lambda: model(torch.ones(1, 2)).sum(), model=model, replay=False).healthy
    assert sys.getrecursionlimit() == before


def test_the_way_into_ten_thousand_lists_is_followed() -> None:
    tensor = torch.ones(1)
    box: list[Any] = [tensor]
    for _ in range(10_000):
        box = [box]
    [edge] = holders.paths_to([box], {id(tensor)})[id(tensor)]
    assert len(edge.way()) == 10_001


def test_of_a_recursion_that_is_very_deep_the_innermost_frames_are_kept() -> None:
    def deep(left: int) -> Chain:
        return deep(left - 1) if left else frames.chain(sys._getframe(), Tracer.run.__code__)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        found = deep(3000)
    finally:
        sys.setrecursionlimit(limit)
    assert len(found) == 1000
    assert {code.co_name for code, _ in found} == {"deep"}
