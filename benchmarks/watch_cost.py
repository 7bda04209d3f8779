"""What a watch costs a training step, side by side in one run: plain and watched steps by turns, and their ratios.

    python benchmarks/watch_cost.py [--device cuda] [--rounds 40] [--models gpt resnet tiny]

Blocks of five steps, the fastest of each block, in the order plain, watched, plain again or the other way round; what
is told are medians over the rounds, and the quartiles of the pairs. "Plain again" over plain is what the measurement
itself varies by. On a CPU, the seconds of this thread; on a GPU, of the clock, with the device waited for. The looks of
steps 1, 2 and 3 are measured by themselves, and so is what ``step()`` and ``backward()`` take on top between the looks.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import programs
import torch
from torch import nn

import gradkit
from gradkit.live import watch as watching
from gradkit.live.suspects import Suspect

BLOCK = 5
MODELS = {"tiny": "mlp", "gpt": "gpt2", "resnet": "resnet"}


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
        output = model(*inputs)
        loss = output if isinstance(output, torch.Tensor) else output[0]
        loss.float().square().mean().backward()
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


def block(step: Callable[[], None], device: str) -> float:
    """Seconds of the fastest of some steps."""
    took = []
    for _ in range(BLOCK):
        begin = clock(device)
        step()
        took.append(clock(device) - begin)
    return min(took)


def compare(step: Callable[[], None], device: str, rounds: int) -> dict[str, list[float]]:
    """The fastest step of each block, for each kind."""
    rows: dict[str, list[float]] = {"plain": [], "watched": [], "again": []}
    for number in range(rounds):
        for kind in ("plain", "watched", "again") if number % 2 else ("again", "watched", "plain"):
            with watched() if kind == "watched" else contextlib.nullcontext():
                rows[kind].append(block(step, device))
    return rows


def looks(step: Callable[[], None], device: str) -> list[float]:
    """Seconds that the watch itself took in each of the first three steps."""
    took: list[float] = []
    due = watching._listener.due

    def timed(*args: object) -> None:
        begin = clock(device)
        due(*args)  # type: ignore[arg-type]
        took.append(clock(device) - begin)

    watching._listener.due = timed  # type: ignore[method-assign,assignment]
    try:
        with gradkit.watch(tell=print):
            for _ in range(3):
                step()
    finally:
        del watching._listener.due
    return took


def bare(calls: int = 3000) -> dict[str, float]:
    """Seconds of a call of ``step()`` and ``backward()`` that have next to nothing to do."""
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    leaf = torch.ones(1, requires_grad=True)
    found = {}
    for name, call in (("step", optimizer.step), ("backward", leaf.backward)):
        best = float("inf")
        for _ in range(15):
            begin = time.thread_time()
            for _ in range(calls):
                call()
            best = min(best, (time.thread_time() - begin) / calls)
        found[name] = best
    return found


def row(name: str, device: str, rounds: int) -> str:
    """One model's row of the table."""
    step = training(name, device)
    for _ in range(3):
        step()
    first = looks(step, device)
    rows = compare(step, device, rounds)
    plain = statistics.median(rows["plain"])
    pairs = [w / ((a + b) / 2) for a, w, b in zip(rows["plain"], rows["watched"], rows["again"], strict=True)]
    low, middle, high = statistics.quantiles(pairs)
    again = statistics.median(rows["again"]) / plain
    each = ", ".join(f"{1e3 * one:.2f}" for one in first)
    return (
        f"| {name} | {1e3 * plain:.2f} ms | ×{middle:.4f} ({low:.3f} to {high:.3f}) | ×{again:.4f} "
        f"| {each} ms: {sum(first) / plain:.2f} steps |"
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--models", nargs="*", choices=tuple(MODELS), default=list(MODELS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if options.device == 'cuda' else 'CPU, 1 thread'}")
    print("| model | a plain step | watched / plain (quartiles) | plain again / plain | looks in steps 1, 2, 3 |")
    print("|---|---|---|---|---|")
    for name in options.models:
        print(row(name, options.device, options.rounds), flush=True)
    before = bare()
    with watched():
        during = bare()
    more = ", ".join(f"{name}() {1e6 * (during[name] - before[name]):+.2f} µs" for name in before)
    print(f"by itself, between the looks: {more}")


if __name__ == "__main__":
    main()
