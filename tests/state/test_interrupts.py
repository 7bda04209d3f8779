"""Ctrl-C at every line of ours that runs, and at random moments: nothing is left behind, and it comes through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core import patches, turns
from tests import snapshots

Step = Callable[[], Any]
OURS = f"{Path(gradkit.__file__).parent}{os.sep}"
# What only reads records and source text: an interrupt there is met by the tests of the others.
READING = tuple(
    f"{OURS}{one}"
    for one in """
    api/scanning/ cases/ core/i18n core/records diagnosis/facts/cuts diagnosis/facts/inventory
    diagnosis/facts/loss_terms diagnosis/rule_order diagnosis/rules/ notebook/ report/layout report/picture/build
    report/picture/dot report/report source/ teaching/
    """.split()
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(1)
        return self.b(self.n(self.a(x)))


def training_over_numpy() -> tuple[Net, Step]:
    """Two cuts of two kinds in a step that trains."""
    net, x, y = Net(), torch.randn(6, 4), torch.randint(0, 3, (6,))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.no_grad():
            hidden = net.n(net.a(x))
        loss = nn.functional.cross_entropy(net.b(torch.from_numpy(hidden.numpy())), y)
        loss.backward()
        optimizer.step()
        return loss

    return net, step


def a_hook_that_empties() -> tuple[Net, Step]:
    net, x = Net(), torch.randn(6, 4)
    net.a.weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    net.a.bias.register_hook(lambda grad: grad * 0)
    return net, lambda: net(x).sum()


def a_value_that_is_kept() -> tuple[Net, Step]:
    net, x, pages = Net(), torch.randn(6, 4), {}

    def step() -> torch.Tensor:
        if "hidden" not in pages:
            pages["hidden"] = net.a(x).detach()
        return net.b(pages["hidden"]).sum()

    pages["hidden"] = torch.randn(6, 4)
    return net, step


def an_overwrite_in_inference_mode_beside_a_thread() -> tuple[Net, Step]:
    net, data = Net(), iter([torch.randn(6, 4), torch.randn(6, 4)])

    def step() -> torch.Tensor:
        x = next(data)
        with torch.inference_mode():
            torch.func.vmap(torch.sin)(x)
        hidden = torch.sigmoid(net.a(x))
        loss = net.b(hidden).sum() + hidden.square().sum()
        hidden.mul_(2)
        return loss

    return net, step


def nothing_but_nan() -> tuple[Net, Step]:
    net, x = Net(), torch.randn(6, 4)
    scaler = torch.amp.GradScaler("cpu")
    return net, lambda: scaler.scale(net(x).sum() + torch.sqrt(net.a(x) * 0).sum())


# Each line is interrupted in the first program that runs it, so the quickest stand first.
PROGRAMS = (
    a_hook_that_empties,
    nothing_but_nan,
    a_value_that_is_kept,
    an_overwrite_in_inference_mode_beside_a_thread,
    training_over_numpy,
)


def diagnose(net: Net, step: Step) -> gradkit.Report:
    return gradkit.diagnose(step, model=net)


def of_ours(file: str) -> bool:
    return file.startswith(OURS) and not file.startswith(READING)


def lines_that_run(net: Net, step: Step) -> Counter[tuple[str, int]]:
    """How often each line of ours runs."""
    counts: Counter[tuple[str, int]] = Counter()

    def hear(frame: Any, event: str, _: Any) -> Any:
        if not of_ours(frame.f_code.co_filename):
            return None
        if event == "line":
            counts[frame.f_code.co_filename, frame.f_lineno] += 1
        return hear

    traced = sys.gettrace()
    sys.settrace(hear)
    try:
        diagnose(net, step)
    finally:
        sys.settrace(traced)
    return counts


def interrupted_at(file: str, line: int, time: int, net: Net, step: Step) -> bool:
    """Diagnose with a Ctrl-C as this line runs for the nth time. Returns whether it came through."""
    left, traced = time, sys.gettrace()
    theirs: dict[CodeType, bool] = {}

    def hear(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        code = frame.f_code
        if code not in theirs:
            theirs[code] = code.co_filename == file and any(number == line for _, _, number in code.co_lines())
        if not theirs[code]:
            return None
        if event == "line" and frame.f_lineno == line:
            left -= 1
            if not left:
                sys.settrace(traced)
                signal.raise_signal(signal.SIGINT)  # as a person does: heard later where signals are held back
        return hear

    sys.settrace(hear)
    try:
        diagnose(net, step)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(traced)
    return left > 0  # it does not run this often in every run


def check(make: Callable[[], tuple[Net, Step]], last: bool, share: int, done: set[tuple[str, int]]) -> list[str]:
    """Interrupt a program at every line of one of the ``SHARES`` that was not done yet.

    Returns what was left behind, or did not come through.
    """
    torch.manual_seed(0)
    net, step = make()
    diagnose(net, step)
    counts = lines_that_run(net, step)
    before = snapshots.take(net)
    for (file, line), times in counts.items():
        if (file, line) in done or line % SHARES != share or (times == 1 and not last):
            continue
        done.add((file, line))
        place = f"{make.__name__}, {Path(file).name}:{line}"
        if not interrupted_at(file, line, times if last else 1, net, step):
            return [f"{place}: the interrupt was lost"]
        if left := snapshots.differences(before, snapshots.take(net)):
            return [f"{place}: {one}" for one in left[:3]]  # what is left spoils all that follows
        if not turns.is_free() or patches.depth() or patches.are_held():
            return [f"{place}: {turns.is_free()}, {patches.depth()}, {patches.are_held()}"]
    return []


SHARES = 8
EVERYWHERE = """
    import gc, sys, warnings
    warnings.simplefilter("ignore")
    import pytest, torch, gradkit
    net = torch.nn.Linear(2, 1)
    gradkit.diagnose(lambda: net(torch.ones(1, 2)).detach().sum(), model=net)
    gc.freeze()  # hundreds of diagnoses look for functions and optimizers among what lives: not among torch's own
    from tests.state.test_interrupts import PROGRAMS, check
    done = set()
    print([one for make in PROGRAMS for one in check(make, sys.argv[1] == "last", int(sys.argv[2]), done)])
    print(len(done))
"""


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("time", ["last", "first"])
def test_an_interrupt_at_every_line_leaves_nothing_behind(time: str, share: int) -> None:
    # In a process of its own: trace functions do not get on with all that other tests have done to this one.
    found, lines = run(EVERYWHERE, time, str(share), seconds=230).splitlines()
    assert found == "[]"
    assert int(lines) > (120 if time == "last" else 35)


def run(program: str, *given: str, seconds: int) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return done.stdout


ROUNDS = 40
AT_RANDOM = """
    import os, random, signal, sys, threading, time
    import torch
    import gradkit
    from tests import snapshots
    from tests.state.test_interrupts import training_over_numpy
    torch.manual_seed(0)
    net, step = training_over_numpy()
    run = lambda: gradkit.diagnose(step, model=net)
    run(); began = time.perf_counter(); run(); took = time.perf_counter() - began
    draw, hit, over = random.Random(int(sys.argv[1])), 0, False
    def attempt(deep):  # either of the two may come while the other is counted, or as a loop goes round
        global hit, over
        while not over:
            try:
                if deep:
                    attempt(deep - 1)
                else:
                    if thread.ident is None:
                        thread.start()
                        run()
                    thread.join(); time.sleep(0.01); over = True
            except KeyboardInterrupt:
                hit += 1
    for _ in range(int(sys.argv[2])):
        before, delays = snapshots.take(net), (draw.random() * took, draw.random() * 0.002)
        def fire():
            for delay in delays:
                time.sleep(delay)
                os.kill(os.getpid(), signal.SIGINT)
        thread, over = threading.Thread(target=fire), False
        attempt(2)
        left = snapshots.differences(before, snapshots.take(net))
        assert not left, left[:3]
    print(hit)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_person_who_presses_ctrl_c_twice_at_random_moments_finds_everything_as_it_was(seed: int) -> None:
    assert int(run(AT_RANDOM, str(seed), str(ROUNDS), seconds=200)) > ROUNDS // 2


def test_an_interrupt_while_something_is_put_back_waits_until_that_is_done() -> None:
    said: list[str] = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        said.append("done")

    with pytest.raises(KeyboardInterrupt):
        patches.insist(work)
    assert said == ["done"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_own_hears_the_signal_afterwards() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        patches.insist(lambda: signal.raise_signal(signal.SIGINT))
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_cannot_be_put_back_keeps_nothing_else_from_it() -> None:
    class Owner:
        a = 1

    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), patches.undone():  # noqa: PT012
        patches.replace(Owner, "a", 2)
        patches.later(broken)
        patches.replace(Owner, "b", 3)
    assert (Owner.a, hasattr(Owner, "b"), patches.depth()) == (1, False, 0)
