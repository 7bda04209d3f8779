"""How long the checks of the workshop take: with every answer that the tests know, as a learner would hand it in.

    python benchmarks/checks.py [--rounds 3]

For each exercise the slowest answer: the median of its seconds, and over the median of a diagnosis of a linear layer in
the same process, which does not depend on the machine. The aim is 3 seconds on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import gradkit
from gradkit.load.specs import load_file
from gradkit.teaching import check, exercises

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.workshop_answers import ANSWERS, Answer


def seconds(run: Callable[[], object], rounds: int) -> float:
    """The median of some rounds, after one that is not counted."""
    run()
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def judging(answer: Answer, folder: str) -> Callable[[], object]:
    """A check of an answer that lies in a file, as a learner's notebook does."""
    path = Path(folder, f"{answer.name}.py")
    path.write_text(answer.source(), encoding="utf-8")
    module = load_file(path)
    functions = {name: getattr(module, name) for name in exercises.exercise(answer.name).functions}
    return lambda: check.judged(answer.name, **functions)


def main() -> None:
    """Measure, and print a line for each exercise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    layer, x = nn.Linear(4, 1), torch.ones(2, 4)
    one = seconds(lambda: gradkit.diagnose(lambda: layer(x).sum(), model=layer), rounds)
    print(f"a diagnosis of a linear layer: {one:.3f} s")
    for name in exercises.EXERCISES:
        with tempfile.TemporaryDirectory() as folder:
            slowest = max(seconds(judging(a, folder), rounds) for a in ANSWERS if a.name == name)
        print(f"{name:<24} {slowest:.2f} s  {slowest / one:5.1f} diagnoses", flush=True)


if __name__ == "__main__":
    main()
