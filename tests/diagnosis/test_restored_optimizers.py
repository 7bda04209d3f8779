"""An optimizer that was copied or unpickled apart from its model is named at the line that does it."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit
from gradkit.diagnosis.facts.optimizers import gap_of
from gradkit.types import Finding

Pair = tuple[nn.Module, torch.optim.Optimizer]


def _pair() -> Pair:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    return net, torch.optim.Adam(net.parameters(), lr=1e-3)


def together(net: nn.Module, opt: torch.optim.Optimizer) -> Pair:
    net, opt = copy.deepcopy((net, opt))
    return net, opt


def from_one_file(net: nn.Module, opt: torch.optim.Optimizer) -> Pair:
    written = io.BytesIO()
    torch.save({"net": net, "opt": opt}, written)
    written.seek(0)
    read = torch.load(written, weights_only=False)
    return read["net"], read["opt"]


def its_state_alone(net: nn.Module, opt: torch.optim.Optimizer) -> Pair:
    net = copy.deepcopy(net)
    again = torch.optim.Adam(net.parameters(), lr=1e-3)
    again.load_state_dict(copy.deepcopy(opt.state_dict()))
    return net, again


def the_model_once_more(net: nn.Module, opt: torch.optim.Optimizer) -> Pair:
    net, opt = copy.deepcopy((net, opt))  # both
    return copy.deepcopy(net), opt


def _found(made: Callable[[nn.Module, torch.optim.Optimizer], Pair]) -> list[Finding]:
    net, opt = made(*_pair())
    report = gradkit.diagnose(lambda: (net(torch.ones(3, 4)) - 1).pow(2).mean(), model=net, optimizer=opt)
    return list(report.findings)


def _line(word: str) -> int:
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(at for at, line in enumerate(text, 1) if line.endswith(f"  # {word}"))


@pytest.mark.parametrize("made", [together, from_one_file, its_state_alone])
def test_an_optimizer_that_was_copied_with_its_model_is_sound(
    made: Callable[[nn.Module, torch.optim.Optimizer], Pair],
) -> None:
    assert not _found(made)


def test_a_model_that_is_copied_once_more_is_no_fault_of_the_line_that_copied_both() -> None:
    (one,) = _found(the_model_once_more)
    assert one.cause == "optimizer_mismatch"
    assert one.location is not None
    assert one.location.line != _line("both")


WAYS = {
    "copied": "kept.optimizer = copy.deepcopy(opt)",
    "unpickled": "kept.optimizer = pickle.loads(pickle.dumps(opt))",
    "read": "kept.optimizer = torch.load(written(opt), weights_only=False)",
}
PROGRAM = """
import copy, io, pickle, types
import torch
from torch import nn

def written(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return file

def restore(net, opt):
    kept = types.SimpleNamespace(net=net)
    {way}
    return kept

net = nn.Linear(4, 1)
kept = restore(net, torch.optim.SGD(net.parameters(), lr=0.1))

def step():
    return kept.net(torch.ones(3, 4)).pow(2).mean()
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_apart_from_its_model_is_named_where_it_is_made(way: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(way=WAYS[way]), encoding="utf-8")
    held: dict[str, object] = {}
    exec(compile(program.read_text(encoding="utf-8"), str(program), "exec"), held)
    kept = held["kept"]
    report = gradkit.diagnose(held["step"], model=held["net"], optimizer=kept.optimizer)  # type: ignore[attr-defined]
    assert [(one.cause, one.location and one.location.text.strip()) for one in report.findings] == [
        ("optimizer_mismatch", WAYS[way])
    ]


def test_an_optimizer_is_what_it_was_after_its_state_is_loaded() -> None:
    _, opt = _pair()
    opt.load_state_dict(pickle.loads(pickle.dumps(opt.state_dict())))
    assert not gap_of(opt, ()).restored
