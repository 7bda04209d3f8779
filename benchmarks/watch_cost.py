"""What a watch costs a training step, side by side in one run: plain and watched steps by turns, and their ratios.

    python benchmarks/watch_cost.py [--device cuda] [--rounds 40] [--models gpt resnet tiny] [--json OUT.json]

Each round takes blocks of steps in the order plain, watched, plain again or the other way round, and the fastest step
of each; what is told are medians over the rounds, and the quartiles of the pairs. "Plain again" over plain is what the
measurement itself varies by. On a CPU, the seconds of this thread; on a GPU, of the clock, with the device waited for.
Before a block is timed, some steps are not: a watch that opens listens more closely, and Python learns anew what its
functions are called with. The looks of steps 1, 2 and 3 are measured by themselves, and so is what ``step()`` and
``backward()`` take on top between the looks. Needs torch alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import programs
import torch
from torch import nn

import gradkit
from gradkit.live import watch as watching
from gradkit.live.suspects import Suspect

MODELS = {"tiny": "mlp", "gpt": "gpt", "gpt-long": "gpt-long", "resnet": "resnet"}
SETTLE, TIMED = (0.1, 3, 200), (0.05, 5, 100)  # seconds of a block, but at least and at most so many steps


def clock(device: str) -> float:
    """Seconds, once the device has nothing left to do."""
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.thread_time()


def training(name: str, device: str) -> Callable[[], None]:
    """One training step of a model, which can be called again and again."""
    model, inputs = programs.make(MODELS[name], device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        model(*inputs).backward()
        optimizer.step()

    return step


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """A watch between its looks: those of the first steps are over."""
    with gradkit.watch(tell=print):
        look = Suspect.look
        Suspect.look = lambda *_: None  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Suspect.look = look  # type: ignore[method-assign]


def timed(step: Callable[[], None], device: str) -> float:
    """Seconds of one step."""
    begin = clock(device)
    step()
    return clock(device) - begin


def steps(plain: float, seconds: float, least: int, most: int) -> int:
    """How many steps of ``plain`` seconds each fill a block."""
    return max(least, min(most, round(seconds / plain)))


def compare(step: Callable[[], None], device: str, rounds: int, most: float) -> dict[str, list[float]]:
    """The fastest step of each block, for each kind; no further round is begun after ``most`` seconds."""
    rows: dict[str, list[float]] = {"plain": [], "watched": [], "again": []}
    plain, end = min(timed(step, device) for _ in range(3)), time.monotonic() + most
    for number in range(rounds):
        if time.monotonic() > end and number > 1:
            break
        for kind in ("plain", "watched", "again") if number % 2 else ("again", "watched", "plain"):
            with watched() if kind == "watched" else contextlib.nullcontext():
                for _ in range(steps(plain, *SETTLE)):
                    step()
                rows[kind].append(min(timed(step, device) for _ in range(steps(plain, *TIMED))))
    return rows


def looks(step: Callable[[], None], device: str) -> list[float]:
    """Seconds that the watch itself took in each of the first three steps."""
    took: list[float] = []
    due = watching._listener.due

    def heard(*args: object) -> None:
        begin = clock(device)
        due(*args)  # type: ignore[arg-type]
        took.append(clock(device) - begin)

    watching._listener.due = heard  # type: ignore[method-assign,assignment]
    try:
        with gradkit.watch(tell=print):
            for _ in range(3):
                step()
    finally:
        del watching._listener.due
    return took


def bare(calls: int = 2000, rounds: int = 15) -> dict[str, float]:
    """Seconds that a call of ``step()`` and of ``backward()`` takes on top, where there is next to nothing to do."""
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    leaf = torch.ones(1, requires_grad=True)
    found = {}
    for name, call in (("step", torch.optim.SGD([weight], lr=0.0).step), ("backward", leaf.backward)):
        best = {True: float("inf"), False: float("inf")}
        for number in range(2 * rounds):
            with watched() if number % 2 else contextlib.nullcontext():
                for _ in range(100):
                    call()
                begin = time.thread_time()
                for _ in range(calls):
                    call()
                took = (time.thread_time() - begin) / calls
                best[bool(number % 2)] = min(best[bool(number % 2)], took)
        found[name] = best[True] - best[False]
    return found


def measured(name: str, device: str, rounds: int, most: float) -> dict[str, Any]:
    """One model: seconds of its steps and looks, and the ratios of the pairs."""
    step = training(name, device)
    for _ in range(3):
        step()
    first = looks(step, device)
    rows = compare(step, device, rounds, most)
    pairs = [w / ((a + b) / 2) for a, w, b in zip(rows["plain"], rows["watched"], rows["again"], strict=True)]
    plain = statistics.median(rows["plain"])
    return {
        "model": name, "pairs": len(pairs), "plain_s": plain, "ratio_quartiles": statistics.quantiles(pairs),
        "again": statistics.median(b / a for a, b in zip(rows["plain"], rows["again"], strict=True)),
        "looks_s": first, "looks_in_steps": sum(first) / plain,
    }  # fmt: skip


def row(one: dict[str, Any]) -> str:
    """One model's row of the table."""
    low, middle, high = one["ratio_quartiles"]
    each = ", ".join(f"{1e3 * look:.2f}" for look in one["looks_s"])
    return (
        f"| {one['model']} | {1e3 * one['plain_s']:.2f} ms | ×{middle:.4f} ({low:.3f} to {high:.3f}) "
        f"| ×{one['again']:.4f} | {each} ms: {one['looks_in_steps']:.2f} steps |"
    )


def main() -> None:
    """Measure, and print a table; the same as JSON where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--most", type=float, default=40.0, help="seconds for each model")
    parser.add_argument("--models", nargs="*", choices=tuple(MODELS), default=list(MODELS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    on = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, 1 thread"
    print(f"torch {torch.__version__}, {on}")
    print("| model | a plain step | watched / plain (quartiles) | plain again / plain | looks in steps 1, 2, 3 |")
    print("|---|---|---|---|---|")
    found = []
    for name in options.models:
        found.append(measured(name, options.device, options.rounds, options.most))
        print(row(found[-1]), flush=True)
    more = bare()
    told = ", ".join(f"{name}() {1e6 * took:+.2f} µs" for name, took in more.items())
    print(f"by itself, between the looks: {told}")
    if options.json is not None:
        about = {"torch": torch.__version__, "python": platform.python_version(), "device": on}
        options.json.write_text(json.dumps({**about, "models": found, "bare_s": more}, indent=1))


if __name__ == "__main__":
    main()
