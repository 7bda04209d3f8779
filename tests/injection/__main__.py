"""``python -m tests.injection --count 1000 --seed 7``: the score, and each miss with what repeats it."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch

from tests.injection import architectures
from tests.injection.harness import Outcome, Score, inject


def plan(count: int, seed: int, only: str = "") -> list[tuple[str, int]]:
    """``count`` injections as (architecture, seed), spread evenly over the architectures."""
    rng = random.Random(seed)
    names = [name for name in architectures.ALL if only in name]
    rng.shuffle(names)
    return sorted((names[number % len(names)], rng.randrange(10**6)) for number in range(count))


def told(outcome: Outcome) -> str:
    """One miss, in full."""
    edits = "; ".join(
        f"{edit.kind} ({edit.way}{' round ' + edit.module if edit.module else ''})" for edit in outcome.edits
    )
    rows = [f"{outcome.verdict.upper()} {outcome.architecture} {outcome.seed}: {edits}"]
    rows += [f"    expected {line}" for line in outcome.expected] or ["    expected nothing"]
    rows += [f"    found    {line}" for line in outcome.found] or ["    found    nothing"]
    return "\n".join([*rows, f"    starved  {len(outcome.starved)}: {', '.join(outcome.starved[:3])}"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.injection", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="architectures with this in their name")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("NUMBER", "OF"), help="one part of them")
    parser.add_argument("--one", nargs=2, metavar=("ARCHITECTURE", "SEED"), help="repeat one injection")
    parser.add_argument("--keep", type=Path, help="with --one: keep the programs in this folder")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one:
        outcome = inject(options.one[0], int(options.one[1]), options.keep)
        print(told(outcome), outcome.shown, sep="\n\n")
        return
    score, began = Score(), time.time()
    number, parts = options.part
    for name, seed in plan(options.count, options.seed, options.only)[number::parts]:
        outcome = inject(name, seed)
        score.add(outcome)
        if not outcome.right:
            print(told(outcome), flush=True)
    print(f"\nseed {options.seed}, {options.count} injections, {time.time() - began:.0f} s\n{score.text()}")


if __name__ == "__main__":
    main()
