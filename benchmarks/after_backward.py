"""What watching the gradients between backward and the optimizer's step adds to the first run of a training step.

    python benchmarks/after_backward.py [--pairs 9] [--models mlp resnet gpt2]

Traced steps by turns, with the watch and without: forward, backward, clip, step, and clear at the end, which is the
dearest order. Seconds of this process alone on one thread; the median of the pairs' ratios, and its quartiles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

import programs
import torch
from torch import nn

from gradkit.tracing.after_backward import AfterBackward
from gradkit.tracing.tracer import Tracer


def training(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[Callable[[], object], torch.optim.Optimizer]:
    """One training step of a model, and its optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> object:
        loss = model(*inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, optimizer


def seconds(model: nn.Module, step: Callable[[], object], heard: AfterBackward | None) -> float:
    """What a traced step takes of this process's time."""
    begin = time.process_time()
    Tracer(model, interventions=[heard] if heard is not None else []).run(step)
    return time.process_time() - begin


def main() -> int:
    """Print a line for each model."""
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--pairs", type=int, default=9)
    ask.add_argument("--models", nargs="*", choices=programs.NAMES, default=list(programs.NAMES))
    told = ask.parse_args()
    torch.set_num_threads(1)
    for name in told.models:
        model, inputs = programs.make(name, "cpu")
        model.train()
        step, optimizer = training(model, inputs)
        seconds(model, step, None)
        rows = []
        for pair in range(told.pairs):
            took = {}
            for watched in (False, True) if pair % 2 else (True, False):
                heard = AfterBackward([optimizer], dict(model.named_parameters())) if watched else None
                took[watched] = seconds(model, step, heard)
            rows.append((took[False], took[True] / took[False]))
        low, ratio, high = statistics.quantiles(row[1] for row in rows)
        plain = statistics.median(row[0] for row in rows)
        print(f"{name:7} traced {1e3 * plain:9.2f} ms   watched ×{ratio:.3f} ({low:.3f} to {high:.3f})", flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
