"""What switched grad mode off at a call: heard while a step runs, one region for each place in the code."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import grad_mode
from torch.utils.checkpoint import checkpoint

from gradkit.core.trace import BLOCK, CHECKPOINT, DECORATOR, FUNCTION, INFERENCE, PRESET, SAMPLE, SWITCH, Region, Trace
from gradkit.tracing.tracer import Tracer

MODEL = nn.Linear(2, 2)
X = torch.ones(1, 2)


def traced(step: Callable[[], Any]) -> Trace:
    tracer = Tracer(MODEL)
    return tracer.trace(tracer.run(step))


def at_linear(step: Callable[[], Any]) -> list[Region]:
    """The regions that held when the model ran, outermost first."""
    trace = traced(step)
    call = next(call for call in trace.calls if call.name == "linear")
    assert call.grad_on is not bool(call.regions)
    return [trace.regions[index] for index in call.regions]


def kinds(step: Callable[[], Any]) -> list[str]:
    return [region.kind for region in at_linear(step)]


def plain() -> torch.Tensor:
    return MODEL(X).sum()


def in_block() -> torch.Tensor:
    with torch.no_grad():
        return MODEL(X).sum()


@torch.no_grad()
def decorated() -> torch.Tensor:
    return MODEL(X).sum()


@torch.no_grad
def decorated_without_parentheses() -> torch.Tensor:
    return MODEL(X).sum()


@torch.set_grad_enabled(False)
def decorated_by_set_grad_enabled() -> torch.Tensor:
    return MODEL(X).sum()


@torch.no_grad()
def generator() -> Iterator[torch.Tensor]:
    yield MODEL(X).sum()


@torch.inference_mode()
def decorated_by_inference_mode() -> torch.Tensor:
    return MODEL(X).sum()


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return MODEL(X).sum()


def in_a_block_of_set_grad_enabled() -> torch.Tensor:
    with torch.set_grad_enabled(False):
        return MODEL(X).sum()


def switched_off() -> torch.Tensor:
    torch.set_grad_enabled(False)
    return MODEL(X).sum()


def switched_off_by_the_c_function() -> torch.Tensor:
    torch._C._set_grad_enabled(False)
    return MODEL(X).sum()


def checkpointed() -> torch.Tensor:
    return checkpoint(plain, use_reentrant=True)


def checkpointed_without_reentry() -> torch.Tensor:
    return checkpoint(plain, use_reentrant=False)


def enabled_in_a_block() -> torch.Tensor:
    with torch.no_grad(), torch.enable_grad():
        return MODEL(X).sum()


def enabled_by_inference_mode_false() -> torch.Tensor:
    with torch.inference_mode(False):
        return MODEL(X).sum()


def switched_off_and_on() -> torch.Tensor:
    torch.set_grad_enabled(False)
    torch.set_grad_enabled(True)
    return MODEL(X).sum()


def after_a_block() -> torch.Tensor:
    with torch.no_grad():
        X.sum()
    return MODEL(X).sum()


def after_a_block_that_switched_by_hand() -> torch.Tensor:
    with torch.enable_grad():
        torch.set_grad_enabled(False)
    return MODEL(X).sum()


def after_a_block_that_raised() -> torch.Tensor:
    with contextlib.suppress(ValueError), torch.no_grad():
        raise ValueError
    return MODEL(X).sum()


def after_a_decorated_call() -> torch.Tensor:
    with contextlib.suppress(ValueError):
        raising()
    return MODEL(X).sum()


@torch.no_grad()
def raising() -> None:
    raise ValueError


def after_a_generator_that_stays_open() -> torch.Tensor:
    running = generator()
    next(running)
    return nn.functional.linear(X, MODEL.weight).sum()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return MODEL(x) * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


@pytest.mark.parametrize(
    "step",
    [
        plain,
        checkpointed_without_reentry,
        enabled_in_a_block,
        enabled_by_inference_mode_false,
        switched_off_and_on,
        after_a_block,
        after_a_block_that_switched_by_hand,
        after_a_block_that_raised,
        after_a_decorated_call,
    ],
    ids=lambda step: step.__name__,
)
def test_nothing_holds(step: Callable[[], Any]) -> None:
    assert at_linear(step) == []


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (in_block, BLOCK),
        (in_a_block_of_set_grad_enabled, BLOCK),
        (decorated, DECORATOR),
        (decorated_without_parentheses, DECORATOR),
        (decorated_by_set_grad_enabled, DECORATOR),
        (lambda: next(generator()), DECORATOR),
        (switched_off, SWITCH),
        (switched_off_by_the_c_function, SWITCH),
        (in_inference_mode, INFERENCE),
        (decorated_by_inference_mode, INFERENCE),
        (checkpointed, CHECKPOINT),
        (lambda: Doubled.apply(X), FUNCTION),
    ],
    ids=range(12),
)
def test_one_thing_holds_and_its_kind_is_told(step: Callable[[], Any], kind: str) -> None:
    assert kinds(step) == [kind]


def test_after_a_generator_that_stays_open_nothing_holds() -> None:
    trace = traced(after_a_generator_that_stays_open)
    assert [call.grad_on for call in trace.calls if call.name == "linear"] == [False, True]


def test_grad_mode_that_was_off_before_is_preset() -> None:
    with torch.no_grad():
        assert kinds(plain) == [PRESET]
    with torch.inference_mode():
        assert kinds(plain) == [PRESET]


def test_a_sample_of_a_distribution_is_a_kind_of_its_own() -> None:
    trace = traced(lambda: torch.distributions.Normal(MODEL(X), 1.0).sample().sum())
    drawn = next(call for call in trace.calls if call.name == "normal")
    assert [trace.regions[index].kind for index in drawn.regions] == [SAMPLE]


def test_nested_regions_are_told_outermost_first() -> None:
    def step() -> torch.Tensor:
        with torch.no_grad():
            return decorated()

    assert kinds(step) == [BLOCK, DECORATOR]


def test_a_block_around_a_block_that_enables_does_not_hold_inside() -> None:
    def step() -> torch.Tensor:
        with torch.no_grad(), torch.enable_grad(), torch.no_grad():
            return MODEL(X).sum()

    assert kinds(step) == [BLOCK]


def test_the_same_place_entered_twice_has_one_key() -> None:
    trace = traced(lambda: in_block() + in_block())
    held = [trace.regions[call.regions[0]] for call in trace.calls if call.name == "linear"]
    assert len(held) == 2
    assert held[0].key == held[1].key


def test_a_region_is_the_same_in_the_next_run() -> None:
    assert [region.key for region in at_linear(in_block)] == [region.key for region in at_linear(in_block)]
    assert at_linear(in_block)[0].key != at_linear(decorated)[0].key


def test_a_decorator_is_placed_at_its_line() -> None:
    (region,) = at_linear(decorated)
    assert region.place is not None
    assert region.place.text == "@torch.no_grad()"
    assert region.place.line == decorated.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]


def test_a_block_opened_inside_a_library_names_the_function_that_opened_it() -> None:
    def step() -> torch.Tensor:
        nn.init.ones_(MODEL.bias)
        return MODEL(X).sum()

    trace = traced(step)
    written = next(call for call in trace.calls if call.name in ("fill_", "ones_"))
    assert all(trace.regions[index].via for index in written.regions)


def test_a_skipped_region_is_not_entered_and_all_else_is() -> None:
    (block,), (decorator,) = at_linear(in_block), at_linear(decorated_by_inference_mode)
    tracer = Tracer(MODEL)
    tracer.switches.skip = frozenset([block.key, decorator.key])
    total = tracer.run(lambda: in_block() + decorated_by_inference_mode() + switched_off())
    calls = [call for call in tracer.trace(total).calls if call.name == "linear"]
    assert [call.grad_on for call in calls] == [True, True, False]


def test_a_skipped_inference_block_can_be_entered_again_afterwards() -> None:
    (region,) = at_linear(in_inference_mode)
    tracer = Tracer(MODEL)
    tracer.switches.skip = frozenset([region.key])
    assert tracer.run(lambda: in_inference_mode() + in_inference_mode()).requires_grad
    assert in_inference_mode().is_inference()


def test_inference_mode_is_unpatched_after_a_run_whatever_the_step_does() -> None:
    before = grad_mode.inference_mode.__enter__, grad_mode.inference_mode.__exit__

    def step() -> None:
        torch.inference_mode().__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        traced(step)
    assert (grad_mode.inference_mode.__enter__, grad_mode.inference_mode.__exit__) == before
    assert not torch.is_inference_mode_enabled()


def test_inference_mode_of_a_thread_holds_for_what_that_thread_does() -> None:
    def step() -> torch.Tensor:
        thread = threading.Thread(target=in_inference_mode)
        thread.start()
        thread.join()
        return plain()

    first, second = [call for call in traced(step).calls if call.name == "linear"]
    assert (first.grad_on, second.grad_on) == (False, True)
    assert kinds(step) == ["inference"]


def test_inference_mode_of_a_thread_that_the_step_did_not_start_is_left_alone() -> None:
    made: list[torch.Tensor] = []
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        made.append(in_inference_mode())
        done.set()

    thread = threading.Thread(target=work)
    thread.start()

    def step() -> torch.Tensor:
        go.set()
        done.wait()
        return plain()

    assert at_linear(step) == []
    assert made[0].is_inference()
    thread.join()


class Rebinding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        kept = x
        x = x.relu()
        return MODEL(kept) + x.sum()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


class Apart(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return MODEL(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


class Wrapped(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return MODEL(x)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return Apart.apply(x) * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


@pytest.mark.parametrize(
    ("function", "name"),
    [(Doubled, "Doubled"), (Rebinding, "Rebinding"), (Apart, "Apart"), (Wrapped, "Wrapped"), (Outer, "Apart")],
)
@pytest.mark.parametrize("bound_before", [False, True])
def test_a_custom_function_holds_and_knows_what_it_was_handed(function: Any, name: str, bound_before: bool) -> None:
    apply = function.apply
    (region,) = at_linear((lambda: apply(X)) if bound_before else lambda: function.apply(X))
    assert (region.kind, region.via, len(region.given)) == (FUNCTION, name, 1)
