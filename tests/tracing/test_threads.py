"""What a step does in threads that it starts is part of its trace, and nothing is left on them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from gradkit.core.trace import Trace
from gradkit.source import locations
from gradkit.tracing import listeners
from gradkit.tracing.tracer import Tracer

MODEL, X = nn.Sequential(nn.Linear(4, 1)), torch.ones(2, 4)


def shout(x: torch.Tensor) -> torch.Tensor:
    return MODEL(x).sum()


def in_a_thread() -> torch.Tensor:
    made: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: made.append(shout(X)))
    thread.start()
    thread.join()
    assert "run" not in vars(thread)
    return made[0] * 2.0


def traced(step: object = in_a_thread) -> Trace:
    tracer = Tracer(MODEL)
    return tracer.trace(tracer.run(step))  # type: ignore[arg-type]


def test_a_call_in_a_thread_is_recorded_with_its_module_and_the_lines_that_led_there() -> None:
    trace = traced()
    (linear,) = [call for call in trace.calls if call.name == "linear"]
    assert trace.modules[linear.module] == "0"
    names = [locations.qualified_name(code) for code, _ in linear.chain]
    assert names == ["shout", "in_a_thread.<lambda>", "in_a_thread"]


def test_what_a_thread_made_is_known_where_it_is_used() -> None:
    trace = traced()
    assert set(trace.parameters.values()) <= trace.sources([trace.loss])
    assert [call.name for call in trace.calls][-1] == "mul"


def test_every_piece_of_work_handed_to_a_pool_is_recorded() -> None:
    def step() -> torch.Tensor:
        with ThreadPoolExecutor(4) as pool:
            return torch.stack(list(pool.map(shout, [X] * 20))).sum()

    trace = traced(step)
    assert [call.name for call in trace.calls].count("linear") == 20
    assert [call.index for call in trace.calls] == list(range(len(trace.calls)))
    assert set(trace.parameters.values()) <= trace.sources([trace.loss])


def test_a_thread_that_goes_on_after_the_step_is_heard_no_more() -> None:
    go, made = threading.Event(), []

    def late() -> None:
        go.wait()
        made.append(shout(X))

    def step() -> torch.Tensor:
        threads_left.append(threading.Thread(target=late))
        threads_left[0].start()
        return shout(X)

    threads_left: list[threading.Thread] = []
    tracer = Tracer(MODEL)
    loss = tracer.run(step)
    go.set()
    threads_left[0].join()
    assert made[0].requires_grad
    assert [call.name for call in tracer.trace(loss).calls] == ["linear", "sum"]


def test_threads_and_pools_are_as_before_afterwards_also_when_the_step_raises() -> None:
    before = threading.Thread.start, ThreadPoolExecutor.submit
    with pytest.raises(ZeroDivisionError):
        Tracer(MODEL).run(lambda: 1 / 0)
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before


def test_a_thread_that_cannot_start_is_as_it_was() -> None:
    started = threading.Thread(target=int)
    started.start()
    started.join()
    with listeners.hear_threads(lambda frame: threading.Lock()), pytest.raises(RuntimeError, match="once"):  # type: ignore[arg-type,return-value]
        threading.Thread.start(started)
    assert "run" not in vars(started)
