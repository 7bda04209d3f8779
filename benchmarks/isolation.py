"""What it would cost to run every diagnosis in a forked child: the fork, and one thread instead of all.

    python benchmarks/isolation.py [--gigabytes 0 1 4] [--rounds 9]

By turns in one process, in the process itself and in a child that hands its report back; medians in milliseconds. The
child has one thread, as the workers of a DataLoader have: the pools of threads that OpenMP made do not outlive a fork.
docs/no_trace.md says what follows from it.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import gradkit


def isolated(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, worked out in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        with os.fdopen(write, "wb") as out:
            pickle.dump(work(), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        found = pickle.load(answer)
    os.waitpid(child, 0)
    return found


def small() -> tuple[nn.Module, torch.Tensor]:
    """A model of three layers, and a batch."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), torch.randn(16, 64)


def large() -> tuple[nn.Module, torch.Tensor]:
    """A transformer of 12 M weights, and a batch."""
    layers = [nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4)]
    return nn.Sequential(*layers), torch.randn(8, 256, 512)


def took(run: Callable[[], Any]) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    """Measure, and print a line for each model and amount of memory."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument(
        "--gigabytes", nargs="*", type=float, default=[0, 1, 4], help="memory that the process holds beside"
    )
    ask.add_argument("--rounds", type=int, default=9)
    given = ask.parse_args()
    print(f"{torch.get_num_threads()} threads, medians of {given.rounds}")
    for make in (small, large):
        model, x = make()

        def run(model: nn.Module = model, x: torch.Tensor = x) -> gradkit.Report:
            return gradkit.diagnose(model, x, loss=lambda out: out.sum())

        run()
        for gigabytes in given.gigabytes:
            held = torch.ones(int(gigabytes * 2**28))
            pairs = [(took(run), took(lambda: isolated(run))) for _ in range(given.rounds)]
            here, apart = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(f"{make.__name__:5} {gigabytes:4} GB held: {here:7.1f} ms here, {apart:7.1f} ms in a child")
            del held


if __name__ == "__main__":
    main()
