"""Several processes train together, and the step of one fails: it is explained alone, and nobody waits for anybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the ranks are forked")

RANK = """\
import torch
import torch.distributed as dist
import torch.nn as nn
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2), find_unused_parameters=True)
for i in range(3):
    loss = model(torch.ones(3, 4) + dist.get_rank()).sum()
    if i < 2:
        loss.backward()
    elif dist.get_rank() == 1:
        {fails}
    else:
        {others}
dist.barrier()
"""

BOTH = """\
import json, os, runpy, sys, time
import torch
import torch.distributed as dist
from gradkit.core import attempts
from gradkit.live import explain
attempts.LOUD = True

def one(rank, program, folder):
    dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank, world_size=2)
    said = None
    try:
        runpy.run_path(program, run_name="__main__")
    except RuntimeError as error:
        found = explain.of_error(error)
        report = found.report
        said = {
            "seen": [[one.cause, one.location.line, one.proof] for one in report.findings] if report else None,
            "caveats": [one.kind for one in report.origin.caveats] if report else None,
            "told": list(report.origins("en")) if report else None,
            "tried": [one.reason for one in found.tried],
        }
        dist.barrier()
    with open(folder + "/" + str(rank), "w") as out:
        json.dump(said, out)

children = []
for rank in range(2):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            one(rank, *sys.argv[1:])
            status = 0
        finally:
            os._exit(status)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def _of_rank_1(fails: str, others: str, folder: Path) -> dict[str, object]:
    (folder / "train.py").write_text(RANK.format(fails=fails, others=others), encoding="utf-8")
    (folder / "both.py").write_text(BOTH, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(folder / "both.py"), str(folder / "train.py"), str(folder)]
    subprocess.run(command, env=environment, check=True, timeout=60, capture_output=True)
    assert json.loads((folder / "0").read_text(encoding="utf-8")) is None
    said: dict[str, object] = json.loads((folder / "1").read_text(encoding="utf-8"))
    return said


def test_the_rank_that_fails_says_why_without_the_others(tmp_path: Path) -> None:
    said = _of_rank_1("loss = loss.detach(); loss.backward()", "pass", tmp_path)
    assert said["seen"] == [["detach", 10, "proven"]]
    assert said["caveats"] == ["one_rank"]


def test_a_backward_is_run_again_on_one_rank_without_what_averages_the_gradients(tmp_path: Path) -> None:
    said = _of_rank_1("loss.backward(); loss.backward()", "loss.backward()", tmp_path)
    assert said["seen"] == [["double_backward", 10, "observed"]]


def test_a_collective_in_a_step_is_not_made_again_by_one_rank(tmp_path: Path) -> None:
    asks = "dist.all_reduce(loss.detach())"
    said = _of_rank_1(f"{asks}; loss = loss.detach(); loss.backward()", asks, tmp_path)
    assert said["seen"] is None
    assert set(said["tried"]) == {"meets_ranks"}  # type: ignore[call-overload]
