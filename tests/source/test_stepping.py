"""Why a program that goes backward never comes to its optimizer's step."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from gradkit.core.trace import Chain
from gradkit.source import stepping
from gradkit.source.stepping import GUARDED, MISSING, MISTAKEN, SKIPPED, UNCALLED, HeldBack


def frames_of(text: str) -> Chain:
    """The frames at the first ``backward()``, or other call of ``here()``, that a text makes."""
    file = f"/user/{abs(hash(text))}.py"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    found: list[Chain] = []

    def here(*_: object) -> None:
        def outwards(frame: FrameType | None) -> Iterator[tuple[Any, int]]:
            while frame is not None and frame.f_code.co_filename == file:
                yield frame.f_code, frame.f_lasti
                frame = frame.f_back

        found.append(tuple(outwards(sys._getframe(1))))

    class Anything:
        backward = here

        def __getattr__(self, name: str) -> Any:
            return lambda *_: self

        def __call__(self, *_: object) -> Any:
            return self

    names = dict.fromkeys(("loss", "opt", "other", "scaler", "self_"), Anything())
    exec(compile(text, file, "exec"), {"here": here, **names})
    return found[0]


def told(found: HeldBack | None) -> tuple[str, int] | None:
    return (found.kind, found.location.line) if found is not None else None


HELD = {
    "a_condition": (GUARDED, 3, "for i in range(3):\n    loss.backward()\n    if i > 9:\n        opt.step()"),
    "missing_parentheses": (UNCALLED, 2, "loss.backward()\nopt.step"),
    "what_is_left_before": (
        SKIPPED, 3, "for i in range(3):\n    loss.backward()\n    if i < 9:\n        continue\n    opt.step()",
    ),
    "a_condition_in_a_function_that_steps": (
        GUARDED, 2, "def update(on):\n    if on:\n        opt.step()\nloss.backward()\nupdate(False)",
    ),
    "a_condition_around_the_call_of_a_function": (
        GUARDED, 4, "def update():\n    opt.step()\nloss.backward()\nif not loss:\n    update()",
    ),
    "a_condition_in_the_caller": (
        GUARDED, 4, "def go():\n    loss.backward()\ngo()\nif not loss:\n    scaler.step(opt)",
    ),
    "no_step_at_all": (MISSING, 2, "opt.zero_grad()\nloss.backward()"),
    "an_update_of_the_scaler_alone": (
        MISSING, 4, "opt.zero_grad()\nmade = scaler.scale(loss)\nmade.backward()\nscaler.update()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_the_line_is_found_of(name: str) -> None:
    kind, line, text = HELD[name]
    assert told(stepping.held_back(frames_of(text), {"opt"})) == (kind, line)


@pytest.mark.parametrize(
    "text", ["loss.backward()", "for i in range(3):\n    loss.backward()\nopt.step()"], ids=["no_optimizer", "later"]
)
def test_no_line_is_named_where_the_source_does_not_tell(text: str) -> None:
    assert stepping.held_back(frames_of(text), {"opt"}) is None


def test_a_function_that_the_program_does_not_come_to_is_no_step() -> None:
    text = "def elsewhere():\n    opt.step()\nopt.zero_grad()\nloss.backward()"
    assert told(stepping.held_back(frames_of(text), {"opt"})) == (MISSING, 4)


def test_the_step_of_another_optimizer_in_its_place_is_named() -> None:
    text = "other.zero_grad()\nhere()\nother.step()\nopt.zero_grad()\nloss.backward()\nother.step()"
    assert told(stepping.mistaken(frames_of(text), {"opt"})) == (MISTAKEN, 6)


def test_an_optimizer_that_steps_under_a_condition_may_step_later() -> None:
    text = "opt.zero_grad()\nhere()\nloss.backward()\nother.step()\nif not loss:\n    opt.step()"
    assert stepping.mistaken(frames_of(text), {"opt"}) is None


def test_lines_that_set_a_rate_by_hand_are_listed() -> None:
    text = 'for group in ():\n    group["lr"] = 0.0\nhere()'
    (code, _), *_ = frames_of(text)
    assert [(spot.line, rate.value) for spot, rate in stepping.rates_set([code.co_filename])] == [(2, 0.0)]
