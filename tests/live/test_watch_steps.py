"""What a loop does after backward: gradients that are gone before the step, a rate of 0, a step that never comes."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

import gradkit
from gradkit.types import Finding

WARMUP = 500


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def found_of(program: Callable[[], None]) -> list[Finding]:
    told: list[Finding] = []
    with gradkit.watch(tell=lambda one: told.extend(one.report.findings if one.report is not None else ())):
        program()
    return told


def marked(program: Callable[[], None]) -> set[int]:
    lines, first = inspect.getsourcelines(program)
    return {first + number for number, line in enumerate(lines) if line.rstrip().endswith("# CUT")}


# -- what a loop does wrong -------------------------------------------------------------------------------------------


def cleared_in_another_function() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())

    def apply() -> None:
        optimizer.zero_grad()  # CUT
        optimizer.step()

    for x in torch.randn(5, 6, 3):
        model(x).pow(2).mean().backward()
        apply()


def clipped_to_zero() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for x in torch.randn(5, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.0)  # CUT
        optimizer.step()


def a_rate_that_was_rounded_away() -> None:
    model = net()
    rate = 1e-3 * (8 // 256)  # CUT
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for x in torch.randn(5, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def a_warm_up_that_never_leaves_zero() -> None:
    def factor(step: int) -> float:
        return min(1, step // WARMUP)  # CUT

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = LambdaLR(optimizer, factor)
    for x in torch.randn(12, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        schedule.step()


class Poly(LRScheduler):
    def __init__(self, optimizer: torch.optim.Optimizer, total: int) -> None:
        self.total = total
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        left = (self.total - self.last_epoch - 1) // self.total
        return [rate * left for rate in self.base_lrs]


def a_rate_that_is_set_by_hand() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, x in enumerate(torch.randn(12, 6, 3)):
        rate = 0.1 * (step // WARMUP)  # CUT
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def a_schedule_that_is_never_stepped() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    LambdaLR(optimizer, lambda step: min(1.0, step / 10))  # CUT
    for x in torch.randn(12, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def a_schedule_over_no_steps() -> None:
    def linear(optimizer: torch.optim.Optimizer, warmup: int, total: int) -> LambdaLR:
        def factor(step: int) -> float:
            if step < warmup:
                return step / warmup
            return max(0.0, (total - step) / max(1, total - warmup))

        return LambdaLR(optimizer, factor)

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 12 // 64  # CUT
    schedule = linear(optimizer, 0, steps)
    for x in torch.randn(12, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        schedule.step()


def more_to_gather_than_there_is() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, x in enumerate(torch.randn(12, 6, 3), 1):
        model(x).pow(2).mean().backward()
        if number % 32 == 0:  # CUT
            optimizer.step()
            optimizer.zero_grad()


def a_step_without_parentheses() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.randn(5, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step  # noqa: B018  # CUT


def a_scaler_that_only_updates() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for x in torch.randn(5, 6, 3):
        optimizer.zero_grad()
        scaler.scale(model(x).pow(2).mean()).backward()
        scaler.unscale_(optimizer)
        scaler.update()  # CUT


def the_other_ones_optimizer_steps() -> None:
    maker, judge = net(), net()
    of_maker = torch.optim.Adam(maker.parameters())
    of_judge = torch.optim.Adam(judge.parameters())
    for x in torch.randn(6, 6, 3):
        made = maker(x) * torch.ones(3)
        of_judge.zero_grad()
        (judge(made.detach()).mean() - judge(x).mean()).backward()
        of_judge.step()
        of_maker.zero_grad()
        judge(made).mean().neg().backward()
        of_judge.step()  # CUT


def clipped_while_scaled() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for x in torch.randn(5, 6, 3):
        optimizer.zero_grad()
        scaler.scale(model(x).pow(2).mean()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CUT
        scaler.step(optimizer)
        scaler.update()


def scaled_and_stepped_without_the_scaler() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for x in torch.randn(5, 6, 3):
        optimizer.zero_grad()
        scaler.scale(model(x).pow(2).mean()).backward()
        optimizer.step()  # CUT


def an_optimizer_of_the_teacher() -> None:
    student, teacher = net(), net()
    optimizer = torch.optim.Adam(teacher.parameters())  # CUT
    for x in torch.randn(5, 6, 3):
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        F.mse_loss(student(x), wanted).backward()
        optimizer.step()


IDLE = [
    a_rate_that_is_set_by_hand,
    cleared_in_another_function, clipped_to_zero, a_rate_that_was_rounded_away, a_warm_up_that_never_leaves_zero,
    a_schedule_that_is_never_stepped, a_schedule_over_no_steps, more_to_gather_than_there_is,
    a_step_without_parentheses, a_scaler_that_only_updates, the_other_ones_optimizer_steps,
]  # fmt: skip


@pytest.mark.parametrize("program", IDLE, ids=lambda one: one.__name__)
def test_an_optimizer_that_changes_nothing_is_told_with_the_line(program: Callable[[], None]) -> None:
    found = found_of(program)
    assert [(one.cause, one.location and one.location.line) for one in found] == [
        ("idle_optimizer", line) for line in marked(program)
    ]


@pytest.mark.parametrize("program", [clipped_while_scaled, scaled_and_stepped_without_the_scaler])
def test_a_scaler_out_of_order_is_told_with_the_line(program: Callable[[], None]) -> None:
    found = found_of(program)
    assert [(one.cause, one.location and one.location.line) for one in found] == [
        ("amp_misuse", line) for line in marked(program)
    ]


def a_schedule_of_ones_own() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Poly(optimizer, 40)
    for x in torch.randn(12, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        schedule.step()


def test_a_schedule_of_the_users_own_is_told_with_the_line_that_rounds() -> None:
    (found,) = found_of(a_schedule_of_ones_own)
    assert found.location is not None
    assert found.location.text.strip() == "left = (self.total - self.last_epoch - 1) // self.total"
    assert [note.location and note.location.text.strip() for note in found.notes] == ["schedule = Poly(optimizer, 40)"]


def test_an_optimizer_that_holds_another_model_is_told_with_its_line() -> None:
    found = found_of(an_optimizer_of_the_teacher)
    assert [one.cause for one in found] == ["optimizer_mismatch"]
    assert {one.location and one.location.line for one in found} == marked(an_optimizer_of_the_teacher)


# -- what is sound ----------------------------------------------------------------------------------------------------


def a_warm_up_by_epochs() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = LambdaLR(optimizer, lambda epoch: min(1.0, epoch / 2))
    for _ in range(3):
        for x in torch.randn(12, 6, 3):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        schedule.step()


def many_batches_for_one_step() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, x in enumerate(torch.randn(40, 6, 3), 1):
        model(x).pow(2).mean().backward()
        if number == 40:
            optimizer.step()


def a_maker_who_waits_for_the_judge() -> None:
    maker, judge = net(), net()
    of_maker = torch.optim.Adam(maker.parameters())
    of_judge = torch.optim.Adam(judge.parameters())
    for number, x in enumerate(torch.randn(6, 6, 3)):
        judge(maker(x) * torch.ones(3)).mean().backward()
        of_judge.step()
        of_judge.zero_grad()
        if number > 100:
            of_maker.step()


def updates_by_hand_beside_an_optimizer() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.randn(6, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad


def where_a_picture_is_looked_at() -> None:
    model, x = net(), torch.randn(6, 3, requires_grad=True)
    for _ in range(5):
        model.zero_grad()
        model(x).sum().backward()


def clipped_in_the_right_order() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def clip() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    for x in torch.randn(5, 6, 3):
        optimizer.zero_grad()
        scaler.scale(model(x).pow(2).mean()).backward()
        scaler.unscale_(optimizer)
        clip()
        scaler.step(optimizer)
        scaler.update()


def cleared_once_where_the_loss_was_too_large() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, x in enumerate(torch.randn(8, 6, 3)):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        if number == 1:
            optimizer.zero_grad()
        optimizer.step()


def another_optimizer_trains_what_one_at_rest_holds() -> None:
    model = net()
    resting, optimizer = torch.optim.SGD(model.parameters(), lr=0.0), torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.randn(6, 6, 3):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        resting.step()
        optimizer.step()


SOUND = [
    a_warm_up_by_epochs, many_batches_for_one_step, a_maker_who_waits_for_the_judge,
    updates_by_hand_beside_an_optimizer, where_a_picture_is_looked_at, clipped_in_the_right_order,
    cleared_once_where_the_loss_was_too_large, another_optimizer_trains_what_one_at_rest_holds,
]  # fmt: skip


@pytest.mark.parametrize("program", SOUND, ids=lambda one: one.__name__)
def test_nothing_is_told_of(program: Callable[[], None]) -> None:
    assert found_of(program) == []


def test_a_run_of_the_whole_step_leaves_scaler_optimizer_and_weights_as_they_were() -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        for x in torch.randn(6, 6, 3):
            optimizer.zero_grad()
            scaler.scale(model(x).pow(2).mean()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        state = [one["exp_avg"] for one in optimizer.state.values()]
        return [*model.parameters(), *state, torch.tensor(scaler.get_scale())]

    alone = train()
    with gradkit.watch(tell=lambda _: None) as watch:
        watched = train()
    assert watch.reports
    assert all(torch.equal(one, other) for one, other in zip(alone, watched, strict=True))


# -- a model that changes while it trains ------------------------------------------------------------------------------


def a_head_swapped_behind_the_optimizers_back() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # CUT
    for step, x in enumerate(torch.randn(12, 6, 3)):
        if step == 5:
            model[2] = nn.Linear(4, 2)
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def factors_that_start_at_zero_in_a_second_phase() -> None:
    class Adapted(nn.Module):
        def __init__(self, base: nn.Module) -> None:
            super().__init__()
            self.base, self.down, self.up = base, nn.Linear(3, 2, bias=False), nn.Linear(2, 4, bias=False)
            self.start()

        def start(self) -> None:
            nn.init.zeros_(self.down.weight)  # CUT
            nn.init.zeros_(self.up.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))

    model = net()
    for phase in range(2):
        if phase:
            model.requires_grad_(False)
            model[0] = Adapted(model[0])
        optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
        for x in torch.randn(5, 6, 3):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()


def a_net_that_grows_and_tells_its_optimizer() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, x in enumerate(torch.randn(12, 6, 3)):
        if step == 5:
            model.append(nn.Linear(1, 1))
            optimizer.add_param_group({"params": model[3].parameters()})
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def layers_made_for_one_pass_each() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.randn(8, 6, 3):
        optimizer.zero_grad()
        loss = nn.Sequential(model, nn.Tanh())(x).pow(2).mean()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(
    "program",
    [a_head_swapped_behind_the_optimizers_back, factors_that_start_at_zero_in_a_second_phase],
    ids=lambda one: one.__name__,
)
def test_what_is_set_up_in_the_midst_of_training_is_told_with_its_line(program: Callable[[], None]) -> None:
    assert {one.location.line for one in found_of(program) if one.location is not None} == marked(program)


@pytest.mark.parametrize(
    "program", [a_net_that_grows_and_tells_its_optimizer, layers_made_for_one_pass_each], ids=lambda one: one.__name__
)
def test_what_joins_soundly_is_not_told(program: Callable[[], None]) -> None:
    assert found_of(program) == []
