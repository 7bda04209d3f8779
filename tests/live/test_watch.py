"""A watch names the line of what fails, tells a silent fault once, and leaves sound programs alone."""

from __future__ import annotations

import os
import random
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.live import explain, hearing
from gradkit.live.explain import Explanation
from gradkit.live.watch import Watch
from tests.live import sound_programs
from tests.live.sound_programs import Program

BACKWARD, GRAD = torch.autograd.backward, torch.autograd.grad


@pytest.fixture
def told() -> list[Explanation]:
    return []


@pytest.fixture
def watch(told: list[Explanation]) -> Iterator[Watch]:
    with gradkit.watch(tell=told.append) as open_one:
        yield open_one


def line_of(text: str) -> int:
    """The number of the one line of this file that ends in a mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


def failing(net: nn.Module) -> None:
    for x in torch.ones(3, 1, 2):
        loss = net(x).detach().sum()  # CUT that raises
        loss.backward()


def silent(steps: int = 5) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.ones(steps, 1, 2):
        hidden = net[0](x).detach()  # CUT that is silent
        optimizer.zero_grad()
        net[1](hidden).sum().backward()
        optimizer.step()


def too_wide(steps: int = 5) -> None:
    model = Captioner()
    optimizer = torch.optim.SGD([*model.head.parameters(), *model.norm.parameters(), *model.tail.parameters()], lr=0.1)
    for x in torch.randn(steps, 4, 2):
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        optimizer.step()


class Captioner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.norm = nn.Linear(2, 3), nn.Linear(3, 2), nn.BatchNorm1d(2)
        self.tail = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():  # CUT that is too wide
            features = self.body(x)
            features = self.norm(self.head(features))
        return self.tail(features)


# -- errors ---------------------------------------------------------------------------------------------------------


def test_the_error_of_a_failing_loop_carries_place_cause_and_change(watch: Watch) -> None:
    with pytest.raises(RuntimeError, match="does not require grad") as caught:
        failing(nn.Linear(2, 1))
    note = caught.value.__notes__[-1]
    assert f"test_watch.py:{line_of('CUT that raises')}" in note
    assert "detach" in note
    assert len(note.splitlines()) <= 3
    assert caught.value.gradkit_report.findings[0].location.line == line_of("CUT that raises")
    assert watch.report is caught.value.gradkit_report


def test_an_error_is_raised_by_its_own_way_with_one_frame_of_the_watch(watch: Watch) -> None:
    with pytest.raises(RuntimeError) as caught:
        failing(nn.Linear(2, 1))
    files = [os.path.basename(entry.path) for entry in caught.traceback]
    assert files.count("hearing.py") == 1
    assert files[-1] == "graph.py"


def test_an_error_keeps_the_error_that_it_was_raised_beside(watch: Watch) -> None:
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError:
            failing(nn.Linear(2, 1))

    with pytest.raises(RuntimeError, match="does not require grad") as caught:
        fail()
    assert isinstance(caught.value.__context__, KeyError)
    assert caught.value.__cause__ is None


def test_grad_is_explained_as_backward_is(watch: Watch) -> None:
    def fail() -> None:
        net = nn.Linear(2, 1)
        for x in torch.ones(2, 1, 2):
            torch.autograd.grad(net(x).detach().sum(), net.weight)

    with pytest.raises(RuntimeError) as caught:
        fail()
    assert caught.value.gradkit_report.findings[0].cause == "detach"


def test_an_error_of_a_forward_pass_is_explained_when_it_leaves_the_block() -> None:
    def fail() -> None:
        weight = nn.Parameter(torch.ones(2))
        with gradkit.watch():
            for x in torch.ones(2, 2):
                weight.mul_(x).sum().backward()

    with pytest.raises(RuntimeError, match="leaf") as caught:
        fail()
    assert caught.value.gradkit_report.findings


def test_a_block_that_is_itself_run_again_with_the_step_is_not_opened_anew() -> None:
    def fail() -> None:
        weight = nn.Parameter(torch.ones(2))
        with gradkit.watch() as w:
            opened.append(w)
            loss = (weight.detach() * 2).sum()
            loss.backward()

    opened: list[Watch] = []
    with pytest.raises(RuntimeError, match="does not require grad") as caught:
        fail()
    assert caught.value.gradkit_report.findings[0].cause == "detach"
    assert len(opened) == 1


def test_an_error_that_autograd_has_no_part_in_is_left_alone() -> None:
    with pytest.raises(ZeroDivisionError) as caught, gradkit.watch() as w:
        _ = torch.ones(1) * (1 / 0)
    assert not hasattr(caught.value, "__notes__")
    assert w.reports == ()


def test_an_error_that_backward_itself_makes_is_left_alone(watch: Watch) -> None:
    with pytest.raises(TypeError) as caught:
        torch.ones(1, requires_grad=True).sum().backward("no gradient")  # type: ignore[arg-type]
    assert not hasattr(caught.value, "__notes__")


def test_the_same_error_of_the_same_line_is_explained_once(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    explained: list[BaseException] = []
    of_error = explain.of_error
    monkeypatch.setattr(explain, "of_error", lambda e, **kw: (explained.append(e), of_error(e, **kw))[1])
    errors = []
    for _ in range(4):
        try:
            failing(nn.Linear(2, 1))
        except RuntimeError as error:
            errors.append(error)
    assert len(explained) == 1
    assert len({error.__notes__[-1] for error in errors}) == 1


def test_an_error_that_a_program_caught_and_trained_on_after_is_no_report(watch: Watch) -> None:
    with pytest.raises(RuntimeError):
        failing(nn.Linear(2, 1))
    assert watch.caught is not None
    assert watch.caught.error.startswith("RuntimeError: ")
    silent(steps=1)
    assert watch.caught is None
    assert watch.reports == ()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_passes_unexplained(watch: Watch, kind: type[BaseException]) -> None:
    x = torch.ones(1, requires_grad=True)

    def leave(_: torch.Tensor) -> None:
        raise kind

    x.register_hook(leave)
    with pytest.raises(kind) as caught:
        x.sum().backward()
    assert not hasattr(caught.value, "__notes__")


# -- silent faults --------------------------------------------------------------------------------------------------


def test_a_silent_fault_is_told_once_at_its_line(watch: Watch, told: list[Explanation]) -> None:
    silent(12)
    (explanation,) = told
    (finding,) = explanation.report.findings
    assert (finding.cause, finding.location.line) == ("detach", line_of("CUT that is silent"))
    assert watch.report is explanation.report


def test_a_silent_fault_is_told_although_the_change_was_tried_with_a_step(
    watch: Watch, told: list[Explanation]
) -> None:
    too_wide()
    (explanation,) = told
    finding = explanation.report.findings[0]
    assert (finding.cause, finding.location.line) == ("no_grad_block", line_of("CUT that is too wide"))


def test_a_loss_that_waits_can_go_backward_after_the_step_was_run_again(watch: Watch) -> None:
    model, waiting = Captioner(), []
    optimizer = torch.optim.SGD([*model.head.parameters(), *model.norm.parameters()], lr=0.1)
    for x in torch.randn(4, 4, 2):
        loss = model(x).square().mean()
        waiting.append(model.tail(model.head(x.new_ones(1, 3))).square().sum())
        model.zero_grad()
        loss.backward()
        optimizer.step()  # which moves nothing: what it holds has no gradient
        waiting.pop().backward()


def test_a_silent_fault_is_not_told_before_it_has_lasted(watch: Watch, told: list[Explanation]) -> None:
    silent(2)
    assert told == []
    watch.close()
    assert len(told) == 1


def test_without_anyone_to_tell_it_is_written_to_the_error_stream(capfd: pytest.CaptureFixture[str]) -> None:
    with gradkit.watch():
        silent()
    out, err = capfd.readouterr()
    assert out == ""
    assert f"test_watch.py:{line_of('CUT that is silent')}" in err
    assert "3 optimizer steps" in err


def test_a_layer_that_the_optimizer_was_not_given_is_told(watch: Watch, told: list[Explanation]) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.ones(2)), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * self.scale

    net = Scaled()
    optimizer = torch.optim.SGD([p for n, p in net.named_parameters() if n != "scale"], lr=0.1)
    for x in torch.ones(4, 1, 2):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
    assert [one.report.findings[0].cause for one in told] == ["optimizer_mismatch"]
    assert told[0].report.findings[0].parameters == ("scale",)


def test_what_nothing_uses_is_told_at_the_end_only(watch: Watch, told: list[Explanation]) -> None:
    net = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(2, 1)})
    optimizer = torch.optim.Adam(net.parameters())
    for x in torch.ones(12, 1, 2):
        optimizer.zero_grad()
        net["used"](x).sum().backward()
        optimizer.step()
    assert told == []
    watch.close()
    assert [one.report.findings[0].cause for one in told] == ["trainable_unused"]


def test_only_the_named_optimizer_is_looked_at(told: list[Explanation]) -> None:
    other = torch.optim.SGD(nn.Linear(1, 1).parameters())
    with gradkit.watch(optimizer=other, tell=told.append) as w:
        silent()
    assert told == []
    assert w.report is None


def test_a_named_optimizer_may_wrap_the_one_that_steps() -> None:
    class Wrapping:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

    inner = torch.optim.SGD(nn.Linear(1, 1).parameters())
    wrapping: Any = Wrapping(inner)
    assert Watch(optimizer=wrapping).takes(inner)


# -- sound programs -------------------------------------------------------------------------------------------------


def trained(program: Program) -> tuple[list[torch.Tensor], torch.Tensor, object]:
    torch.manual_seed(3)
    random.seed(3)
    weights = [one.detach().clone() for one in program()]
    return weights, torch.get_rng_state(), random.getstate()


@pytest.mark.parametrize("program", sound_programs.PROGRAMS, ids=lambda one: one.__name__)
def test_a_sound_program_is_watched_in_silence_and_trains_the_same(
    program: Program, told: list[Explanation], capfd: pytest.CaptureFixture[str]
) -> None:
    plain = trained(program)
    with gradkit.watch(tell=told.append) as w:
        watched = trained(program)
    assert told == []
    assert w.reports == ()
    assert capfd.readouterr() == ("", "")
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    assert torch.equal(plain[1], watched[1])
    assert plain[2] == watched[2]


def test_a_compiled_step_is_watched_too(told: list[Explanation]) -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.compile(backend="eager")
    def step() -> None:
        optimizer.step()

    with gradkit.watch(tell=told.append) as w:
        for x in torch.ones(4, 1, 2):
            optimizer.zero_grad()
            net(x).sum().backward()
            step()
    assert told == []
    assert w.reports == ()


# -- open and closed ------------------------------------------------------------------------------------------------


def test_everything_is_put_back_when_the_last_watch_is_closed() -> None:
    optim_module: Any = sys.modules[torch.optim.Optimizer.__module__]
    before = len(optim_module._global_optimizer_pre_hooks)
    first, second = gradkit.watch(), gradkit.watch()
    first.close()
    assert torch.autograd.backward is not BACKWARD
    second.close()
    assert (torch.autograd.backward, torch.autograd.grad) == (BACKWARD, GRAD)
    assert len(optim_module._global_optimizer_pre_hooks) == before


def test_what_somebody_else_wraps_meanwhile_stays_and_hands_on() -> None:
    w = gradkit.watch()
    ours = torch.autograd.backward

    def theirs(*args: Any, **kwargs: Any) -> None:
        ours(*args, **kwargs)

    torch.autograd.backward = theirs
    try:
        w.close()
        assert torch.autograd.backward is theirs
        x = torch.ones(1, requires_grad=True)
        x.sum().backward()
        assert x.grad is not None
    finally:
        torch.autograd.backward = BACKWARD


def test_a_watch_in_a_watch_is_told_and_nothing_is_told_twice(
    watch: Watch, told: list[Explanation], capfd: pytest.CaptureFixture[str]
) -> None:
    with gradkit.watch() as inner:
        silent()
    assert len(told) == 1
    assert inner.report is watch.report
    assert capfd.readouterr().err == ""


def test_a_closed_watch_keeps_its_reports_and_its_count() -> None:
    with gradkit.watch(tell=lambda _: None) as w:
        silent(4)
    silent(3)
    assert w.steps == 4
    assert len(w.reports) == 1
    assert repr(w) == "<gradkit.Watch: closed, steps: 4, reports: 1>"


def test_a_diagnosis_of_ones_own_is_not_watched(watch: Watch, told: list[Explanation]) -> None:
    net = nn.Linear(2, 1)
    report = gradkit.diagnose(lambda: net(torch.ones(1, 2)).detach().sum(), model=net)
    assert report.findings[0].cause == "detach"
    assert watch.steps == 0
    assert watch.reports == ()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """gradkit as it would be if nothing in it could explain anything."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("gradkit.core.attempts.LOUD", False)
    monkeypatch.setattr(explain, "of_running", fail)
    monkeypatch.setattr(explain, "of_error", fail)


@pytest.mark.usefixtures("broken")
def test_a_fault_of_gradkits_leaves_a_silent_program_running(capfd: pytest.CaptureFixture[str]) -> None:
    with gradkit.watch() as w:
        silent(7)
    assert (w.steps, w.reports) == (7, ())
    assert "ValueError: broken" in capfd.readouterr().err


@pytest.mark.usefixtures("broken")
def test_a_fault_of_gradkits_leaves_an_error_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="does not require grad") as caught, gradkit.watch():
        failing(nn.Linear(2, 1))
    assert not hasattr(caught.value, "__notes__")
    assert "ValueError: broken" in capfd.readouterr().err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_copy_is_silent(watch: Watch, capfd: pytest.CaptureFixture[str]) -> None:
    child = os.fork()
    if not child:
        try:
            silent()
        finally:
            os._exit(0 if torch.autograd.backward is BACKWARD else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert capfd.readouterr() == ("", "")
    assert torch.autograd.backward is not BACKWARD


def test_nothing_of_a_step_is_kept_alive(watch: Watch) -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = []
    for x in torch.ones(4, 1, 2):
        out = net(x)
        kept.append(weakref.ref(out))
        optimizer.zero_grad()
        out.sum().backward()
        optimizer.step()
        del out
    assert [one() for one in kept] == [None] * 4


def test_an_optimizer_is_looked_at_in_few_steps(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    due = hearing.Suspect.look
    monkeypatch.setattr(hearing.Suspect, "look", lambda self, *a: (looked.append(self.looks.steps), due(self, *a))[1])
    net = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for _ in range(120):
        optimizer.zero_grad()
        net(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    assert looked == [1, 2, 3, 10, 100]
    assert watch.steps == 120
