"""A clean bill says what it is about: what is frozen, by what that is known, and that there is something to learn."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.types import Report

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.ones(8, 2)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def of(model: nn.Module, x: torch.Tensor = X, **options: object) -> Report:
    return gradkit.diagnose(lambda: F.mse_loss(model(x), Y), model=model, **options)  # type: ignore[arg-type]


class Bent(nn.Module):
    """A frozen layer, and beside it what is learned in its place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Linear(4, 2).requires_grad_(False)
        self.down, self.up = nn.Linear(4, 1, bias=False), nn.Linear(1, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + self.up(self.down(x))
        return out


class Held(nn.Module):
    """Nothing but a buffer."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x @ self.table
        return out


def test_what_is_frozen_beside_what_learns_is_listed() -> None:
    assert "Frozen, so not expected to learn (by requires_grad): base.weight, base.bias (10 of 16" in of(Bent()).text(
        "en"
    )


def test_what_is_frozen_and_was_not_named_is_listed_as_that() -> None:
    model = net()
    model[0].requires_grad_(False)
    assert "not named in should_train: 0.weight, 0.bias" in of(model, should_train=["2.*"]).text("en")


def test_a_sound_program_with_nothing_frozen_says_nothing_of_it() -> None:
    assert "rozen" not in of(net()).text("en")


def test_a_frozen_extractor_in_front_of_a_head_is_listed() -> None:
    body, head = net().requires_grad_(False), nn.Linear(2, 2)

    def step() -> torch.Tensor:
        with torch.no_grad():
            features = body(X)
        return F.mse_loss(head(features), Y)

    said = gradkit.diagnose(step, model=nn.ModuleList([body, head])).text("en")
    assert "0.0.weight" in said
    assert "(44 of 50 values)" in said


@pytest.mark.parametrize("language", ["en", "zh"])
def test_text_and_page_list_what_is_frozen(language: str) -> None:
    report = of(Bent())
    for said in (report.text(language), report.html(language)):
        assert "base.weight, base.bias" in said


# -- nothing to train -------------------------------------------------------------------------------------------------


def test_a_frozen_model_whose_input_is_trained_is_sound() -> None:
    x = X.clone().requires_grad_()
    report = of(net().requires_grad_(False), x, optimizer=torch.optim.Adam([x]))
    assert report.healthy
    assert "none of the model's 4 parameters is meant to learn" in report.text("en")
    assert "Adam trains something that is not part of this model: 0.weight" in report.text("en")


def test_so_it_is_where_the_step_itself_holds_the_optimizer() -> None:
    model, x = net().requires_grad_(False), X.clone().requires_grad_()
    optimizer = torch.optim.Adam([x])

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(x), Y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    assert gradkit.diagnose(step, model=model).healthy


def test_a_frozen_model_whose_parameters_are_named_is_not() -> None:
    x = X.clone().requires_grad_()
    report = of(net().requires_grad_(False), x, optimizer=torch.optim.Adam([x]), should_train=["2.*"])
    assert not report.healthy


def test_a_frozen_model_beside_an_optimizer_of_what_takes_no_part_is_not() -> None:
    report = of(net().requires_grad_(False), optimizer=torch.optim.Adam(net().parameters()))
    assert not report.healthy


def test_a_frozen_model_that_its_optimizer_holds_is_not() -> None:
    model = net().requires_grad_(False)
    assert not of(model, X.clone().requires_grad_(), optimizer=torch.optim.Adam(model.parameters())).healthy


@pytest.mark.parametrize("model", [Held(), nn.Sequential(nn.Linear(4, 2)).requires_grad_(False)[:0], nn.Identity()])
@pytest.mark.parametrize(("language", "said"), [("en", "the model has no parameters"), ("zh", "它没有参数")])
def test_a_model_without_parameters_is_not_said_to_be_reached(model: nn.Module, language: str, said: str) -> None:
    x = X.clone().requires_grad_()
    report = gradkit.diagnose(lambda: model(x).sum(), model=model)
    assert report.healthy
    assert said in report.verdict(language)
    assert not any(" 0 " in one for one in report.verdict(language).split("。"))


def test_the_checklist_counts_no_parameters_that_are_not_there() -> None:
    points = {check.key: check for check in of(Held(), X.clone().requires_grad_()).checklist()}
    assert points["reached"].state == "noted"
    assert points["reached"].text("en") == "No parameter of the model should train"


def frozen_by_a_condition(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if "0" in name:
            parameter.requires_grad = False


def test_a_clean_bill_says_by_which_line_and_on_which_condition_something_is_frozen() -> None:
    with gradkit.watch():
        model, x = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), torch.randn(3, 2)
        frozen_by_a_condition(model)
    report = gradkit.diagnose(lambda: model(x).sum(), model=model)
    assert report.healthy
    (one,) = report.meant.frozen
    assert (one.parameters, one.condition) == (("0.weight", "0.bias"), "'0' in name")
    assert one.location.text.strip() == "parameter.requires_grad = False"
    assert f"test_clean_bills.py:{one.location.line}, where '0' in name: 0.weight, 0.bias." in report.text("en")


def test_where_nobody_saw_what_froze_and_several_lines_may_have_no_line_is_told() -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), torch.randn(3, 2)
    model[0].requires_grad_(False)
    report = gradkit.diagnose(lambda: model(x).sum(), model=model)
    assert report.healthy
    assert report.meant.frozen == ()
