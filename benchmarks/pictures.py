"""How long the first picture takes, for the models that the tests of pictures draw, small and large.

    python benchmarks/pictures.py [--rounds 3] [--json benchmarks/records/pictures.json]

For each model the nodes of its picture, and the median of the seconds for the view that the panel begins with, for an
SVG file, and for a page with all its drawings in both languages; beside them the seconds of CPU time, which depend less
on what else the machine does. For the view also how many times that is a linear layer's in the same process. The aim is
2 seconds on a machine that does nothing else; the record holds how busy it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gradkit
from gradkit.notebook.graph_view import PictureView
from gradkit.report.picture import render
from gradkit.report.report import Report

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.report.test_picture_scale import PROGRAMS

WAYS: dict[str, Callable[[Report], object]] = {
    "view": lambda report: PictureView(report.picture, language="en", view="map"),
    "svg": lambda report: report.svg(),
    "page": lambda report: report.page("en"),
}


def seconds(draw: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The medians of some rounds, after one that is not counted: until it is there, and of CPU time, Graphviz's too."""
    took = []
    for _ in range(rounds + 1):
        render._svg.cache_clear()
        render._svgs.cache_clear()
        begin, before = time.perf_counter(), os.times()[:4]
        draw()
        took.append((time.perf_counter() - begin, sum(os.times()[:4]) - sum(before)))
    until, cpu = zip(*took[1:], strict=True)
    return round(statistics.median(until), 3), round(statistics.median(cpu), 2)


def measured(report: Report, rounds: int) -> dict[str, Any]:
    """One row of the record."""
    took = {way: seconds(partial(draw, report), rounds) for way, draw in WAYS.items()}
    nodes = len(report.picture.nodes) + report.picture.left_out
    cpu = {f"{way}_cpu": cpu for way, (_, cpu) in took.items()}
    return {"nodes": nodes, **{way: until for way, (until, _) in took.items()}, **cpu}


def main() -> None:
    """Measure, and print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the record there as well")
    given = parser.parse_args()
    layer, x = nn.Linear(4, 1), torch.ones(2, 4)
    rows = {"a linear layer": measured(gradkit.diagnose(lambda: layer(x).sum(), model=layer), given.rounds)}
    for name, make in PROGRAMS.items():
        model, step = make()
        rows[name] = measured(gradkit.diagnose(step, model=model, replay=False), given.rounds)
    for name, row in rows.items():
        times = row["view"] / rows["a linear layer"]["view"]
        print(f"{name:36} {row['nodes']:>7,} nodes", *(f"{way} {row[way]:.2f} s" for way in WAYS), f"{times:.1f} times")
        print(" " * 36, *(f"{way} {row[f'{way}_cpu']:.2f} s of CPU time" for way in WAYS))
    if given.json:
        load = [round(one, 1) for one in os.getloadavg()] if hasattr(os, "getloadavg") else []
        about = {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count(), "load": load}
        given.json.write_text(json.dumps({"about": about, "rounds": given.rounds, "seconds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
