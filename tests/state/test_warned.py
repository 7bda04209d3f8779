"""What a diagnosis sets off is none of the warnings that Python and torch show once: the program is given its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import gradkit
from gradkit.state import warned

model = nn.Linear(2, 1)


@pytest.fixture
def shown() -> Iterator[list[warnings.WarningMessage]]:
    """What is shown under Python's own rule: each line's warning once."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        yield told


def warn(text: str) -> None:
    warnings.warn(text, stacklevel=1)


def step() -> torch.Tensor:
    warn("of the step")
    return model(torch.ones(1, 2)).sum()


def texts(shown: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in shown]


def test_what_a_block_sets_off_is_shown_again_after_it(shown: list[warnings.WarningMessage]) -> None:
    with warned.untold():
        warn("first here")
    warn("first here")
    warn("first here")
    assert texts(shown) == ["first here"] * 2


def test_what_was_shown_is_not_shown_again_because_filters_changed_meanwhile(
    shown: list[warnings.WarningMessage],
) -> None:
    warn("before")
    with warned.untold(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warn("before")
    warn("before")
    assert texts(shown) == ["before"]


def test_what_was_shown_under_other_filters_is_shown_again_as_ever(shown: list[warnings.WarningMessage]) -> None:
    warn("before")
    warnings.simplefilter("default", DeprecationWarning)
    with warned.untold():
        pass
    warn("before")
    assert texts(shown) == ["before"] * 2


def test_blocks_may_lie_in_each_other(shown: list[warnings.WarningMessage]) -> None:
    warn("before")
    with warned.untold(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with warned.untold():
            warn("before")
    warn("before")
    assert texts(shown) == ["before"]


def test_an_interrupt_leaves_it_as_it_was(shown: list[warnings.WarningMessage]) -> None:
    warn("before")
    with contextlib.suppress(KeyboardInterrupt), warned.untold(), warnings.catch_warnings():
        warn("within")
        raise KeyboardInterrupt
    warn("before")
    warn("within")
    assert texts(shown) == ["before", "within", "within"]


def test_what_is_to_be_shown_once_in_all_is_shown_once_more(shown: list[warnings.WarningMessage]) -> None:
    warnings.simplefilter("once")
    with warned.untold():
        warn("once")
    warn("once")
    warn("once")
    assert texts(shown) == ["once"] * 2


def test_a_diagnosis_repeats_nothing_and_keeps_nothing(shown: list[warnings.WarningMessage]) -> None:
    warn("before")
    gradkit.diagnose(step, model=model)
    during = len(shown)
    warn("before")
    assert len(shown) == during
    step()
    step()
    assert texts(shown)[during:] == ["of the step"]


TORCHS = """
import sys, warnings, torch
from gradkit.live import guard, quiet
from torch import nn

def warned():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        nn.Parameter(torch.ones(1)).square().sum().backward(create_graph=True)
    return len(told)

with guard.Guard(10), quiet.muted():
    nn.Parameter(torch.ones(1)).square().sum().backward(create_graph=True)
assert not torch.is_warn_always_enabled()
print(warned(), warned())
"""


def test_what_torch_says_once_in_a_process_is_not_used_up_by_a_rerun() -> None:
    ran = subprocess.run([sys.executable, "-c", TORCHS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "0"], ran.stderr


INTERRUPTED = """\
import sys, warnings
from gradkit.state import warned

def interrupted(at):
    seen = 0
    def line(frame, event, arg):
        nonlocal seen
        seen += event == "line"
        if event == "line" and seen == at:
            sys.settrace(None)
            raise KeyboardInterrupt
        return line
    sys.settrace(lambda frame, event, arg: line if frame.f_code.co_filename == warned.__file__ else None)
    try:
        with warned.untold():
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)

filters = warnings.filters
for at in range(1, 30):
    interrupted(at)
    assert warnings.filters is filters, at
"""


def test_an_interrupt_leaves_the_filters_of_warnings_as_they_were() -> None:
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
