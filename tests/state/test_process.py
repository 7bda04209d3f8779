"""What a step switches for the whole process is afterwards as it was, and so is memory that it frees or writes raw."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import gradkit
from gradkit.core import turns
from gradkit.core.errors import GradkitError
from gradkit.state import process
from gradkit.state.iterators import ReplayedIterators
from gradkit.state.preserve import Preserved
from tests import snapshots
from tests.telling import told


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def entered(manager: Any) -> Callable[[], Any]:
    return lambda: manager().__enter__()


SETTINGS: dict[str, Callable[[], Any]] = {
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "the default device": lambda: torch.set_default_device("cpu"),
    "the number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "determinism": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "the precision of products": lambda: torch.set_float32_matmul_precision("medium"),
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "oneDNN": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "warnings of torch": lambda: torch.set_warn_always(True),
    "grad mode": lambda: torch.set_grad_enabled(True),
    "a grad mode that was not left": entered(torch.enable_grad),
    "an autocast that was not left": entered(lambda: torch.autocast("cpu", torch.bfloat16)),
    "an inference mode that was not left": entered(lambda: torch.inference_mode(False)),
    "hooks for saved tensors": entered(lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)),
    "two pairs of such hooks": lambda: [
        torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x).__enter__() for _ in range(2)
    ],
    "a function mode": entered(FunctionMode),
    "a dispatch mode": entered(DispatchMode),
    "a filter of warnings": lambda: warnings.simplefilter("ignore"),
    "a block of filters that was not left": entered(warnings.catch_warnings),
    "NumPy's errors": lambda: np.seterr(all="ignore"),
    "the recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    "the current folder": lambda: os.chdir(".."),
    "a variable of the environment": lambda: os.environ.update(GRADKIT_TESTS="1"),
    "a variable that is gone": lambda: os.environ.pop("PATH"),
    "the search path": lambda: sys.path.append("nowhere"),
    "the arguments": lambda: sys.argv.append("more"),
    "a trace function": lambda: sys.settrace(lambda *_: None),
    "a profile function": lambda: sys.setprofile(lambda *_: None),
    "an output that is another": lambda: setattr(sys, "stdout", sys.stderr),
    "the hook for exceptions": lambda: setattr(sys, "excepthook", print),
    "that of threads": lambda: setattr(threading, "excepthook", print),
    "a handler of Ctrl-C": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "the garbage collector": gc.disable,
    "all seeds": lambda: (torch.manual_seed(1), np.random.seed(1), random.seed(1)),
    "hooks for all modules": lambda: nn.modules.module.register_module_forward_hook(lambda *_: None),
    "hooks for all optimizers": lambda: register_optimizer_step_pre_hook(lambda *_: None),
}


if snapshots.TOP_OF_HOOKS is None:
    del SETTINGS["hooks for saved tensors"], SETTINGS["two pairs of such hooks"]


@pytest.fixture(autouse=True)
def _afterwards() -> Any:
    """Whatever fails here must not spoil the tests that follow."""
    backs = process.remember_process()
    yield
    for back in backs:
        back()
    gc.enable()


def test_what_these_tests_switch_is_seen_by_the_snapshot() -> None:
    blind = {"grad mode", "a grad mode that was not left", "an inference mode that was not left", "all seeds"}
    blind |= {"the arguments", "the garbage collector"}
    unseen = []
    for name, switch in SETTINGS.items():
        backs, before = process.remember_process(), snapshots.of_process()
        switch()
        if before == snapshots.of_process() and name not in blind:
            unseen.append(name)
        for back in backs:
            back()
        gc.enable()
    assert unseen == []


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("cut", [False, True], ids=["sound", "run twice"])
def test_a_step_that_switches_leaves_as_it_was(name: str, cut: bool) -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), torch.randn(4, 3)

    def step() -> torch.Tensor:
        SETTINGS[name]()
        hidden = net[0](x)
        return net[1](hidden.detach() if cut else hidden).sum()

    before, collecting, arguments = snapshots.take(net), gc.isenabled(), list(sys.argv)
    report = gradkit.diagnose(step, model=net)
    assert snapshots.differences(before, snapshots.take(net)) == []
    assert (gc.isenabled(), sys.argv) == (collecting, arguments)
    assert (report.healthy, report.left) == (not cut, ())


def test_what_a_library_registers_as_it_is_imported_stays() -> None:
    finders = list(sys.meta_path)

    class Finder:
        @staticmethod
        def find_spec(*_: Any) -> None:
            return None

    net, x = nn.Linear(3, 1), torch.randn(4, 3)
    gradkit.diagnose(lambda: (sys.meta_path.append(Finder), net(x).sum())[1], model=net)
    try:
        assert sys.meta_path[-1] is Finder
    finally:
        sys.meta_path[:] = finders


# -- memory -----------------------------------------------------------------------------------------------------------


def freed(net: nn.Linear) -> None:
    net.bias.untyped_storage().resize_(0)
    net.bias.untyped_storage().resize_(net.bias.nbytes)
    net.bias.data.fill_(3)


MEMORY: dict[str, Callable[[nn.Linear], Any]] = {
    "freed and filled anew": freed,
    "written through its storage": lambda net: net.bias.untyped_storage().copy_(torch.ones(1).untyped_storage()),
    "written byte by byte": lambda net: net.bias.untyped_storage().__setitem__(3, 191),
    "another's memory": lambda net: net.bias.data.set_(torch.full((1,), 9.0)),
    "made longer": lambda net: net.bias.data.resize_(2),
    "another shape": lambda net: setattr(net.weight, "data", net.weight.data.reshape(3, 1).t()),
    "in another order": lambda net: setattr(net.weight, "data", net.weight.data.as_strided((1, 3), (1, 1))),
    "minus nothing": lambda net: net.bias.data.neg_(),
    "a buffer that is longer": lambda net: net.seen.resize_(5).fill_(1),
}


@pytest.mark.parametrize("how", MEMORY)
def test_memory_is_as_it_was_where_a_step_leaves_it(how: str) -> None:
    net, x = nn.Linear(3, 1), torch.randn(4, 3)
    net.register_buffer("seen", torch.zeros(2))
    net.bias.data.zero_()
    before = snapshots.take(net)

    def step() -> torch.Tensor:
        loss = net(x).sum()
        loss.backward()
        MEMORY[how](net)
        return loss

    gradkit.diagnose(step, model=net)
    left = [one for one in snapshots.differences(before, snapshots.take(net)) if "'memory'" not in one]
    assert left == []


def test_memory_that_is_free_is_not_read_and_is_free_again_afterwards() -> None:
    net, x = nn.Linear(3, 3), torch.randn(4, 3)
    gathered = torch.zeros(3, 3)
    gathered.untyped_storage().resize_(0)

    def step() -> torch.Tensor:
        gathered.untyped_storage().resize_(gathered.nbytes)
        gathered.copy_(net.weight.detach())
        return net(x).sum() + gathered.sum()

    report = gradkit.diagnose(step, model=net)
    assert report.healthy
    assert gathered.untyped_storage().nbytes() == 0


def test_a_step_that_frees_a_weight_ends_with_a_report_or_a_sentence_and_not_with_the_process() -> None:
    net, x = nn.Linear(3, 1), torch.randn(4, 3)
    before = snapshots.take(net)

    def step() -> torch.Tensor:
        loss = net(x).sum()
        net.weight.untyped_storage().resize_(0)
        return loss

    try:
        gradkit.diagnose(step, model=net)
    except GradkitError as error:
        assert str(error)  # noqa: PT017
    left = [one for one in snapshots.differences(before, snapshots.take(net)) if "'memory'" not in one]
    assert left == []


# -- two at once ------------------------------------------------------------------------------------------------------


def test_of_two_diagnoses_in_two_threads_the_second_waits_and_both_are_right() -> None:
    inside, waiting = threading.Event(), threading.Event()
    nets = [nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)) for _ in range(2)]
    x, before = torch.randn(4, 3), snapshots.of_functions()
    reports: dict[int, gradkit.Report] = {}

    def first() -> torch.Tensor:
        inside.set()
        assert waiting.wait(20)
        return nets[0][1](nets[0][0](x).detach()).sum()

    def hear(stage: str) -> None:
        if stage == "waiting":
            waiting.set()

    def second() -> None:
        inside.wait(20)
        reports[1] = gradkit.diagnose(lambda: nets[1][1](nets[1][0](x)).sum(), model=nets[1], progress=hear)

    thread = threading.Thread(target=second)
    thread.start()
    reports[0] = gradkit.diagnose(first, model=nets[0], replay=False)
    thread.join()
    assert [reports[0].healthy, reports[1].healthy] == [False, True]
    assert (snapshots.of_functions() == before, turns.is_free()) == (True, True)


def test_who_waits_without_a_panel_is_told_on_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    turns.take("other")
    other = threading.Thread(target=lambda: Preserved(nn.Linear(1, 1)).during(lambda: None))
    turns._PATIENCE, patience = 0.05, turns._PATIENCE
    try:
        other.start()
        other.join(0.5)
        turns.give("other")
        other.join()
    finally:
        turns._PATIENCE = patience
    assert "waits for its turn" in capsys.readouterr().err


def test_a_diagnosis_in_a_thread_of_the_step_under_diagnosis_is_refused_and_does_not_hang() -> None:
    net, x = nn.Linear(3, 1), torch.randn(4, 3)
    errors: SimpleQueue[str] = SimpleQueue()

    def inner() -> None:
        try:
            gradkit.diagnose(lambda: net(x).sum(), model=net)
        except GradkitError as error:
            errors.put(error.key)

    def step() -> torch.Tensor:
        thread = threading.Thread(target=inner)
        thread.start()
        thread.join()
        return net(x).sum()

    report = gradkit.diagnose(step, model=net)
    assert (told(errors), report.healthy, turns.is_free()) == (["diagnosis_in_thread"], True, True)


def test_a_step_may_ask_for_a_diagnosis_itself() -> None:
    net, other, x = nn.Linear(3, 1), nn.Linear(3, 1), torch.randn(4, 3)
    seen: list[bool] = []
    before = snapshots.of_functions()
    report = gradkit.diagnose(
        lambda: (seen.append(gradkit.diagnose(lambda: other(x).sum(), model=other).healthy), net(x).sum())[1], model=net
    )
    assert (report.healthy, snapshots.of_functions() == before, turns.is_free()) == (True, True, True)


def test_the_turn_of_a_thread_that_is_gone_is_free() -> None:
    thread = threading.Thread(target=turns.take, args=("gone",))
    thread.start()
    thread.join()
    turns.take("next")
    turns.give("gone")
    turns.give("next")
    assert turns.is_free()


def test_a_block_that_could_not_begin_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: ReplayedIterators) -> None:
        torch.set_grad_enabled(False)
        raise MemoryError

    monkeypatch.setattr(ReplayedIterators, "start", broken)
    with pytest.raises(MemoryError), Preserved(nn.Linear(1, 1)):
        pass
    assert torch.is_grad_enabled()
    assert turns.is_free()
