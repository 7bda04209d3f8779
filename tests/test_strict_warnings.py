"""Under ``python -W error`` a diagnosis runs, and nothing of setuptools' lands on ``sys.path``."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
before = list(sys.path)
import torch
import gradkit
model = torch.nn.Linear(2, 1)
report = gradkit.diagnose(lambda: model(torch.ones(1, 2)).detach().sum(), model=model)
assert [one.cause for one in report.findings] == ["detach"]
assert "torchviz" in sys.modules and "distutils" not in sys.modules
assert sys.path == before, sys.path
"""


def test_a_diagnosis_runs_where_every_warning_is_an_error() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
