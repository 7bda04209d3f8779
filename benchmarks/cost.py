"""What gradkit and its peers cost: time and peak memory over those of a plain forward pass.

    python benchmarks/cost.py [--device cuda] [--pairs 5] [--only mlp resnet gpt2 growth memory]
    python benchmarks/cost.py --kinds diagnose --over backward    # over a forward and a backward pass

Peers (``pip install torchlens torchview torchvista``) are measured where they are installed.
Time: plain passes and others by turns in one process, the median of the pairs' ratios; on a CPU, the seconds of this
process alone on one thread, so that what else runs on the machine counts less. Each kind in a process of its own,
because some leave torch changed. Memory: the peak of a process that makes only passes of one kind, counted from after
the model is built (on a GPU: of torch's allocator).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import torch

import tools

STATUS = Path("/proc/self/status")
Found = dict[str, float]


def seconds(run: Callable[[], object], calls: int, device: str) -> float:
    """The time of one pass."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    begin = clock()
    for _ in range(calls):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (clock() - begin) / calls


def compare(name: str, kind: str, over: str, device: str, pairs: int) -> Found:
    """Medians: milliseconds of a plain pass and of one of this kind, and the ratio; and what the first pass took."""
    model, inputs = programs.make(name, device)
    runs = [lambda: tools.KINDS[over](model, inputs), lambda: tools.KINDS[kind](model, inputs)]
    calls = programs.CALLS.get(name, 1)
    first = [seconds(run, 1, device) for run in runs][1]
    for run in runs:
        seconds(run, calls, device)
    rows = []
    for pair in range(pairs):
        order = (0, 1) if pair % 2 else (1, 0)  # neither kind always comes second, into memory that is warm
        took = {which: 1e3 * seconds(runs[which], calls, device) for which in order}
        rows.append((took[0], took[1], took[1] / took[0]))
    columns = [statistics.median(column) for column in zip(*rows, strict=True)]
    return dict(zip(("plain", "other", "ratio"), columns, strict=True)) | {"first": 1e3 * first}


def peak(name: str, kind: str, device: str) -> Found:
    """Peak memory in MB of three passes of one kind."""
    model, inputs = programs.make(name, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif STATUS.exists():
        Path("/proc/self/clear_refs").write_text("5")
    for _ in range(3):
        tools.KINDS[kind](model, inputs)
    if device == "cuda":
        return {"MB": torch.cuda.max_memory_allocated() / 2**20}
    if STATUS.exists():
        return {"MB": float(re.findall(r"VmHWM:\s+(\d+) kB", STATUS.read_text())[0]) / 2**10}
    return {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}  # macOS: bytes, the model's making too


def count(name: str) -> Found:
    """Number of calls in a trace."""
    model, inputs = programs.make(name, "cpu")
    tracer = tools.Tracer(model)
    return {"calls": len(tracer.trace(tracer.run(lambda: model(*inputs))).calls)}


def large() -> Found:
    """A diagnosis of a model of 8.6 billion parameters on the meta device: seconds, and MB of the whole process."""
    model, inputs = programs.make("memory", "meta")
    begin = time.perf_counter(), time.process_time()
    report: Any = tools.diagnose(model, inputs)
    took = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "healthy": report.healthy, "seconds": took[0], "CPU seconds": took[1],
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }  # fmt: skip


def child(what: str, *rest: str, options: argparse.Namespace) -> Found | None:
    """One measurement in a process of its own; None if that failed."""
    command = [sys.executable, __file__, "--device", options.device, "--pairs", str(options.pairs)]
    command += ["--over", options.over]
    done = subprocess.run([*command, "--child", what, *rest], check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"{' '.join([what, *rest])}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
        return None
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def answer(what: str, rest: list[str], options: argparse.Namespace) -> Found:
    """What :func:`child` asks for."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        if what == "time":
            return compare(rest[0], rest[1], options.over, options.device, options.pairs)
        if what == "peak":
            return peak(rest[0], rest[1], options.device)
        return large() if what == "large" else count(rest[0])


def table(names: list[str], kinds: list[str], options: argparse.Namespace) -> None:
    """Time and memory, a row for each kind."""
    print("| | " + " | ".join(f"{name}: time | memory" for name in names) + " |")
    print("|---" * (1 + 2 * len(names)) + "|")
    bases = {name: child("peak", name, options.over, options=options) for name in names}
    for kind in kinds:
        cells = []
        for name, base in bases.items():
            times, high = child("time", name, kind, options=options), child("peak", name, kind, options=options)
            span = f"{times['plain']:.3g} → {times['other']:.3g} ms" if times else ""
            cells.append(f"×{times['ratio']:.2f} ({span})" if times else "failed")
            cells.append(f"×{high['MB'] / base['MB']:.2f} ({high['MB']:.0f} MB)" if high and base else "failed")
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def growth(kinds: list[str], options: argparse.Namespace) -> None:
    """Time over layers, a row for each number of layers."""
    print("| layers | calls | " + " | ".join(kinds) + " | traced: µs more for each call |")
    print("|---" * (3 + len(kinds)) + "|")
    for layers in programs.GROWTH:
        name, cells, each = f"gpt2-{layers}", [], ""
        calls = int((child("count", name, options=options) or {"calls": 0})["calls"])
        for kind in kinds:
            found = child("time", name, kind, options=options)
            more = found["other"] - found["plain"] if found else 0.0
            cells.append(f"×{found['ratio']:.2f} (+{more:.1f} ms)" if found else "failed")
            each = f"{1e3 * more / max(calls, 1):.1f}" if kind == "traced" else each
        print(f"| {layers} | {calls} | {' | '.join(cells)} | {each} |", flush=True)


def main() -> None:
    """Print the tables, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*programs.NAMES, *programs.GPT, "growth", "memory"])
    parser.add_argument("--kinds", nargs="+", choices=list(tools.KINDS))
    parser.add_argument("--over", choices=list(tools.KINDS), default="plain")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.child:
        print(json.dumps(answer(options.child[0], options.child[1:], options)))
        return
    only = options.only or [*programs.NAMES, "growth", "memory"]
    asked = options.kinds or [kind for kind in tools.KINDS if kind != "plain"]
    for kind in filter(tools.missing, asked):
        print(f"{kind} is not installed: left out", file=sys.stderr)
    kinds = [kind for kind in asked if not tools.missing(kind)]
    on = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, 1 thread"
    print(f"torch {torch.__version__}, {on}, median of {options.pairs} pairs\n")
    names = [name for name in (*programs.NAMES, *programs.GPT) if name in only]
    if names:
        table(names, kinds, options)
    if "growth" in only:
        print()
        growth(kinds, options)
    if "memory" in only:
        print(f"\n8.6 billion parameters on the meta device: {child('large', options=options)}")


if __name__ == "__main__":
    main()
