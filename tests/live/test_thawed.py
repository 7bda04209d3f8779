"""Errors that come no more when the step is run again, or that nothing can be run again for."""

from __future__ import annotations

from pathlib import Path

import gradkit
from tests.live import failing

LETS_TRAIN = """\
import torch
from torch import nn

torch.manual_seed(0)


def adapter():
    return nn.Linear(4, 1).requires_grad_(False)


net = adapter()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step(x):
    value = net(x)
    net.requires_grad_(True)  # a pass of the reference model ends so
    return value.square().mean()


for _ in range(3):
    loss = step(torch.ones(2, 4))
    optimizer.zero_grad()
    loss.backward()
"""

WAITS = """\
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


class Copied(nn.Module):
    def __init__(self, original):
        super().__init__()
        self.original, self.copy = original, nn.Linear(6, 2)

    def forward(self, x):
        return self.copy(x)


distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(Copied(nn.Linear(6, 2)))
for _ in range(3):
    loss = model(torch.ones(3, 6)).mean()
    loss.backward()
"""


def test_a_step_that_lets_train_what_was_frozen_is_run_again_from_its_beginning(tmp_path: Path) -> None:
    with gradkit.watch():
        failed = failing.run(LETS_TRAIN, tmp_path)
        found = failed.explained()
    assert failing.named(found)[1] == 8
    assert found.report is not None
    assert found.report.findings[0].cause == "frozen_all"
    assert all(one.requires_grad for one in failed.globals["net"].parameters())


def test_without_a_witness_nothing_is_said_of_a_step_that_raises_no_more(tmp_path: Path) -> None:
    found = failing.run(LETS_TRAIN, tmp_path).explained()
    assert found.report is None
    assert found.data()["healthy"] is None
    assert found.data()["why"] == found.text().strip()


def test_parameters_that_a_parallel_model_waits_for_are_named_with_the_line_that_made_them(tmp_path: Path) -> None:
    with gradkit.watch():
        found = failing.run(WAITS, tmp_path).explained()
    assert found.report is not None
    (finding,) = found.report.findings
    assert finding.cause == "ddp_unused"
    assert finding.parameters == ("original.weight", "original.bias")
    assert finding.numel == 14
    assert failing.named(found)[1] == 16
