"""`gradkit verify --steps`: a few steps of training, what moves, what stays as it is, and an exit status for a CI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit
from gradkit.api import walk
from gradkit.cli import FINDINGS, HEALTHY, main
from gradkit.diagnosis.experiments import train_steps
from gradkit.load.step import Step
from tests.awkward import AWKWARD

PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleDict({"base": nn.Linear(4, 8), "proj": nn.Linear(8, 8), "head": nn.Linear(8, 3)})
model["base"].requires_grad_(False)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))


def step():
    optimizer.zero_grad()
    return nn.functional.cross_entropy(model["head"](torch.tanh(model["proj"](model["base"](x)))), y)
"""


def file(folder: Path, rate: str = "0.5") -> str:
    path = folder / "train.py"
    path.write_text(PROGRAM.replace("RATE", rate))
    return f"{path}:step"


def parts() -> tuple[nn.ModuleDict, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.ModuleDict({"base": nn.Linear(4, 8).requires_grad_(False), "head": nn.Linear(8, 1)})
    return model, torch.randn(6, 4)


def states(checked: gradkit.types.Verification) -> dict[str, str]:
    return {check.key: check.state for check in checked.checks if check.key in walk.KEYS}


def test_the_loss_falls_the_rest_moves_and_the_base_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", file(tmp_path), "--steps", "5"]) == HEALTHY
    said = capsys.readouterr().out
    assert "✓ 5 steps of training ran (SGD)" in said
    assert "✓ The loss falls, from" in said
    assert "✓ All 4 parameters that should train have moved" in said
    assert "✓ The 2 frozen parameters are the same, bit by bit" in said
    assert "loss: █" in said


def test_without_steps_nothing_is_said_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", file(tmp_path)]) == HEALTHY
    assert "steps" not in capsys.readouterr().out.lower()


def test_the_curve_and_who_moved_are_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", file(tmp_path), "--steps", "3", "--json"])
    told = json.loads(capsys.readouterr().out)["steps"]
    assert len(told["losses"]) == 3
    assert told["moved"] == ["proj.weight", "proj.bias", "head.weight", "head.bias"]
    assert told["same"] == ["base.bias", "base.weight"]


@pytest.mark.parametrize("name", AWKWARD)
def test_a_right_program_fails_no_point_of_the_steps(name: str) -> None:
    torch.manual_seed(0)
    model, step = AWKWARD[name]()
    checked = gradkit.verify(step, model=model, steps=3)
    assert [check.text() for check in checked.failed] == []


def test_a_momentum_encoder_that_the_step_writes_is_noted() -> None:
    model, step = AWKWARD["a_queue_of_earlier_keys"]()
    assert states(gradkit.verify(step, model=model, steps=2))["same"] == "noted"
    frozen = gradkit.verify(step, model=model, steps=2, frozen=["key.*"])
    assert states(frozen)["same"] == "failed", "it was said that it must not train"


def test_a_weight_decay_that_moves_what_is_frozen_fails() -> None:
    model, x = parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    model["base"].weight.grad = torch.zeros_like(model["base"].weight)

    def step() -> torch.Tensor:
        model["base"].weight.grad = torch.zeros_like(model["base"].weight)
        return model["head"](model["base"](x)).square().mean()

    checked = gradkit.verify(step, model=model, optimizer=optimizer, steps=2)
    (check,) = (one for one in checked.failed if one.key == "same")
    assert check.text("en") == "1 frozen parameter has changed: base.weight"


def test_what_gets_a_gradient_and_is_not_in_the_optimizer_fails_if_that_is_the_one_to_hold_it() -> None:
    model, x = parts()
    optimizer = torch.optim.SGD([model["head"].weight], lr=0.1)
    checked = gradkit.verify(
        lambda: (model["head"](model["base"](x)) - 1).square().mean(), model=model, optimizer=optimizer, steps=2
    )
    (check,) = (one for one in checked.failed if one.key == "moves")
    assert "head.bias" in check.text("en")
    assert "一位也没有变" in check.text("zh")


def test_a_learning_rate_of_zero_at_the_beginning_of_a_warm_up_is_noted(tmp_path: Path) -> None:
    model, x = parts()
    optimizer = torch.optim.SGD(model["head"].parameters(), lr=0.0)
    checked = gradkit.verify(
        lambda: (model["head"](model["base"](x)) - 1).square().mean(), model=model, optimizer=optimizer, steps=2
    )
    assert states(checked)["moves"] == "noted"
    assert checked.passed


def test_numbers_too_coarse_for_our_own_optimizer_are_no_fault() -> None:
    model = nn.Linear(2, 1, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        model.weight.fill_(100.0)
    checked = gradkit.verify(lambda: model(torch.ones(1, 2, dtype=torch.bfloat16)).sum(), model=model, steps=1)
    assert states(checked)["moves"] == "noted"


def test_a_loss_that_rises_is_noted_and_one_that_is_not_finite_fails(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 1), torch.ones(4, 3)
    steep = torch.optim.SGD(model.parameters(), lr=10.0)
    assert (
        states(gradkit.verify(lambda: model(x).square().mean(), model=model, optimizer=steep, steps=3))["falls"]
        == "noted"
    )
    wild = torch.optim.SGD(model.parameters(), lr=1e30)
    assert (
        states(gradkit.verify(lambda: model(x).square().mean(), model=model, optimizer=wild, steps=5))["falls"]
        == "failed"
    )


def test_a_step_that_trains_by_itself_is_left_to_do_so() -> None:
    model, x = nn.Linear(3, 1), torch.ones(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step() -> torch.Tensor:
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    alone = train_steps.walked(Step(train_step, model), ["weight", "bias"], 3)
    torch.testing.assert_close(alone.losses, _by_hand(model, x, 3))
    assert alone.moved == ("weight", "bias")


def _by_hand(model: nn.Module, x: torch.Tensor, steps: int) -> tuple[float, ...]:
    import copy

    model = copy.deepcopy(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(steps):
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return tuple(losses)


def test_a_second_step_that_raises_fails() -> None:
    model = nn.Linear(3, 1)
    batches = iter([torch.ones(4, 3)])

    def step() -> torch.Tensor:
        if (batch := next(batches, None)) is None:
            raise ValueError("no more data")
        return model(batch).square().mean()

    told = train_steps.walked(Step(step, model), ["weight"], 2)
    assert (len(told.losses), told.error) == (1, "ValueError: no more data")
    (check, *_) = walk.checks(told, frozenset())
    assert check.text("en") == "Step 2 of training raised ValueError: no more data"


@pytest.mark.parametrize("kind", ["SGD", "Adam", ""])
def test_all_is_as_it_was_afterwards(kind: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
    x = torch.randn(6, 4)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1) if kind else None
    model[0].weight.grad = torch.ones_like(model[0].weight)
    grad, before = model[0].weight.grad, {name: one.clone() for name, one in model.state_dict().items()}
    state = torch.get_rng_state()
    gradkit.verify(lambda: (model(x) - 1).square().mean(), model=model, optimizer=optimizer, steps=3)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert model[0].weight.grad is grad
    assert torch.equal(grad, torch.ones_like(grad))
    assert torch.equal(torch.get_rng_state(), state)
    if optimizer is not None:
        assert dict(optimizer.state) == {}


def test_an_embedding_with_sparse_gradients_walks_with_the_programs_own_optimizer() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5, 3, sparse=True)})
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    checked = gradkit.verify(
        lambda: (model["words"](torch.arange(5)) - 1).square().mean(), model=model, optimizer=optimizer, steps=2
    )
    assert checked.passed, checked.text()


def test_an_embedding_with_sparse_gradients_walks_without_one() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5, 3, sparse=True)})
    checked = gradkit.verify(lambda: (model["words"](torch.arange(5)) - 1).square().mean(), model=model, steps=2)
    assert checked.passed, checked.text()


def test_a_step_that_raises_is_not_said_to_have_moved_nothing() -> None:
    told = train_steps.Walk((), 2, ("SGD",), still=("weight",), error="ValueError: no")
    assert [check.state for check in walk.checks(told, frozenset())] == ["failed", "open", "open", "open"]


def test_the_exit_status_is_that_of_a_failed_check(tmp_path: Path) -> None:
    assert main(["verify", file(tmp_path, "1e38"), "--steps", "5"]) == FINDINGS


def test_a_curve_of_a_constant_loss_is_flat() -> None:
    assert walk.curve([1.0, 1.0]) == "▁▁"
