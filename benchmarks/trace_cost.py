"""What tracing costs: time and peak memory of a traced forward pass over a plain one.

    python benchmarks/trace_cost.py [--device cuda] [--pairs 7] [mlp] [gpt2]

Time: plain and traced passes by turns, the median of the pairs; on a CPU the seconds of this process alone, so that
what else runs on the machine counts less.
Memory: the peak of a child process that runs only the one kind, three passes, counted from after the model is built
(on a GPU: of torch's allocator).
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from gradkit.trace import Tracer

Step = Callable[[], object]
STATUS = Path("/proc/self/status")


def mlp(device: str) -> tuple[nn.Module, Step]:
    """Two layers, a batch of 8: next to no arithmetic, so this is the cost of a call."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    inputs, labels = torch.randn(8, 32, device=device), torch.randint(10, (8,), device=device)
    return model, lambda: F.cross_entropy(model(inputs), labels)


def gpt2(device: str) -> tuple[nn.Module, Step]:
    """GPT-2 small, 124 million parameters, made from its configuration, 2 x 128 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    model = GPT2LMHeadModel(GPT2Config()).to(device)
    tokens = torch.randint(50257, (2, 128), device=device)
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


MODELS = {"mlp": mlp, "gpt2": gpt2}
CALLS = {"mlp": 100, "gpt2": 1}  # calls in one measurement, so that the clock can tell


def traced(model: nn.Module, step: Step) -> Step:
    """``step`` as a diagnosis runs it: a new tracer for every pass."""
    return lambda: Tracer(model).run(step)


def seconds(step: Step, calls: int, device: str) -> float:
    """The time of one call."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    begin = clock()
    for _ in range(calls):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (clock() - begin) / calls


def compare_times(name: str, device: str, pairs: int) -> tuple[float, float, float]:
    """Medians: seconds of a plain pass, of a traced one, and how many times as long a traced one takes."""
    model, plain = MODELS[name](device)
    steps = (plain, traced(model, plain))
    for step in (*steps, *steps):
        seconds(step, CALLS[name], device)  # warm up
    measured = []
    for pair in range(pairs):
        order = steps if pair % 2 else steps[::-1]  # neither kind always comes second, into memory that is warm
        took = {step: seconds(step, CALLS[name], device) for step in order}
        measured.append([took[step] for step in steps])
    columns = (*zip(*measured, strict=True), [slow / fast for fast, slow in measured])
    return tuple(statistics.median(column) for column in columns)


def peak(name: str, device: str, kind: str) -> float:
    """Peak memory in MB of three passes of one kind in this process."""
    model, step = MODELS[name](device)
    step = traced(model, step) if kind == "traced" else step
    forget_peak(device)
    for _ in range(3):
        step()
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    if STATUS.exists():
        return float(re.findall(r"VmHWM:\s+(\d+) kB", STATUS.read_text())[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS, in bytes, and the model's making counts


def forget_peak(device: str) -> None:
    """Let the peak be counted from here: making a model takes more memory than running it."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif STATUS.exists():
        Path("/proc/self/clear_refs").write_text("5")


def peak_of_child(name: str, device: str, kind: str) -> float:
    """:func:`peak`, in a process of its own."""
    command = [sys.executable, __file__, name, "--device", device, "--peak", kind]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help="mlp, gpt2")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--peak", choices=["plain", "traced"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.peak:
        print(peak(options.models[0], options.device, options.peak))
        return
    on = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, 1 thread"
    print(f"torch {torch.__version__}, {on}, median of {options.pairs} pairs")
    print(f"{'':6}{'plain ms':>10}{'traced ms':>11}{'time':>8}{'plain MB':>10}{'traced MB':>11}{'memory':>9}")
    for name in options.models:
        plain, with_trace, times = compare_times(name, options.device, options.pairs)
        low, high = (peak_of_child(name, options.device, kind) for kind in ("plain", "traced"))
        row = f"{name:6}{1e3 * plain:10.3f}{1e3 * with_trace:11.3f}{f'x{times:.2f}':>8}"
        print(f"{row}{low:10.0f}{high:11.0f}{f'x{high / low:.2f}':>9}")


if __name__ == "__main__":
    main()
