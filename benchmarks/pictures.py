"""How long the first picture takes, for the models that the tests of pictures draw, small and large.

    python benchmarks/pictures.py [--rounds 3]

For each model the median of the seconds, and over the median of a linear layer's picture in the same process, which
does not depend on the machine. The aim is 2 seconds on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

import gradkit
from gradkit.notebook.graph_view import PictureView
from gradkit.report.picture import render
from gradkit.report.report import Report

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.report.test_picture_scale import PROGRAMS


def seconds(report: Report, rounds: int) -> float:
    """The median of some rounds, after one that is not counted."""
    took = []
    for _ in range(rounds + 1):
        render._svg.cache_clear()
        render._svgs.cache_clear()
        begin = time.perf_counter()
        PictureView(report.picture, language="en", view="map")
        took.append(time.perf_counter() - begin)
    return statistics.median(took[1:])


def main() -> None:
    """Measure, and print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    layer, x = nn.Linear(4, 1), torch.ones(2, 4)
    one = seconds(gradkit.diagnose(lambda: layer(x).sum(), model=layer), rounds)
    print(f"{'a linear layer':36} {one:.3f} s")
    for name, make in PROGRAMS.items():
        model, step = make()
        took = seconds(gradkit.diagnose(step, model=model, replay=False), rounds)
        print(f"{name:36} {took:.3f} s, {took / one:.1f} times a linear layer's")


if __name__ == "__main__":
    main()
