"""What a diagnosis costs, in counts: seconds are the business of ``benchmarks/``."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from queue import SimpleQueue

import torch
from torch import nn

import gradkit
from gradkit.tracing.tracer import Tracer


def _chain(length: int) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(length)))
    return model, lambda: model(torch.ones(2, 4)).sum()


def _python_calls(run: Callable[[], object]) -> int:
    """How many Python functions a run enters."""
    entered = 0

    def count(frame: object, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return entered


def _traced(length: int) -> int:
    model, step = _chain(length)
    Tracer(model).run(step)
    return _python_calls(lambda: Tracer(model).run(step))


def test_a_call_is_kept_as_one_record() -> None:
    model, step = _chain(10)
    tracer = Tracer(model)
    assert len(tracer.trace(tracer.run(step)).calls) == 12  # ones, ten layers, sum


def test_the_work_of_a_trace_doubles_with_the_number_of_calls() -> None:
    none, some, twice = (_traced(n) for n in (0, 50, 100))
    assert 1.9 < (twice - none) / (some - none) < 2.1


def test_a_traced_layer_takes_few_calls_of_python() -> None:
    model, step = _chain(100)
    Tracer(model).run(step)
    plain, traced = _python_calls(step), _traced(100)
    assert (traced - plain - _traced(0)) / 100 < 52


def test_a_deeper_call_stack_costs_a_traced_call_no_more() -> None:
    model, step = _chain(20)

    def deep(levels: int) -> torch.Tensor:
        return deep(levels - 1) if levels else step()

    flat = _python_calls(lambda: Tracer(model).run(step))
    assert _python_calls(lambda: Tracer(model).run(lambda: deep(200))) - flat < 250


def test_a_tracer_goes_at_once_without_the_garbage_collector() -> None:
    model, step = _chain(2)
    gc.disable()
    try:
        tracer = Tracer(model)
        tracer.run(step)
        gone = weakref.ref(tracer)
        del tracer
        assert gone() is None
    finally:
        gc.enable()


def test_a_traced_pass_keeps_no_tensor_alive() -> None:
    model, _ = _chain(1)
    made: list[weakref.ref[torch.Tensor]] = []

    def step() -> torch.Tensor:
        hidden = model(torch.ones(2, 4))
        made.append(weakref.ref(hidden))
        return hidden.detach().sum()

    tracer = Tracer(model)
    tracer.run(step)
    assert made[0]() is None


def test_a_diagnosis_of_a_sound_program_runs_it_once_and_copies_no_parameter() -> None:
    model, step = _chain(3)
    runs: SimpleQueue[int] = SimpleQueue()

    def counted() -> torch.Tensor:
        runs.put(1)
        return step()

    assert gradkit.diagnose(counted, model=model).healthy
    assert runs.qsize() == 1


class _Large(nn.Module):
    """As large as a language model of 8 billion parameters with a projection in front of it that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(150_000, 4096)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 12288), nn.Linear(12288, 4096)) for _ in range(72)))
        self.requires_grad_(False)
        self.projection = nn.Sequential(nn.Linear(512, 4096), nn.GELU(), nn.Linear(4096, 4096))

    def forward(self, seen: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([self.projection(seen), self.words(tokens)], dim=1)).square().mean()


def test_a_model_of_eight_billion_parameters_is_diagnosed_without_memory_for_them() -> None:
    with torch.device("meta"):
        model, seen, tokens = _Large(), torch.empty(1, 4, 512), torch.empty(1, 8, dtype=torch.long)
    report = gradkit.diagnose(lambda: model(seen, tokens), model=model)
    assert sum(p.numel() for p in model.parameters()) > 7.5e9
    assert report.healthy
    assert {p.name for p in report.parameters if p.reached} == {
        "projection.0.weight",
        "projection.0.bias",
        "projection.2.weight",
        "projection.2.bias",
    }
