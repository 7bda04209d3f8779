"""What a wrapper calls the module that it wraps is no part of a parameter's name, in whatever a report says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import gradkit
from gradkit.live import plain_names, trial
from tests.live import failing

RUINS = """\
import torch
from torch import distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel

if not distributed.is_initialized():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
net = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
net[0] = checkpoint_wrapper(net[0])
model = {wrapped}
for _ in range(3):
    guess = model(torch.ones(3, 6)).detach()  # CUT
    guess.sum().backward()
"""


class Keeps(nn.Module):
    """One of the user's own that calls a part of it ``module``."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.module = part


@pytest.fixture(autouse=True)
def _no_group_is_left() -> Iterator[None]:
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_names_are_those_that_the_model_gives_its_parts_whatever_wraps_them() -> None:
    inner = nn.ModuleDict({"eye": checkpoint_wrapper(nn.Linear(1, 1)), "module": nn.Linear(1, 1, bias=False)})
    wrapped: nn.Module = torch.compile(nn.DataParallel(Keeps(inner)), backend="eager")  # type: ignore[assignment]
    names = plain_names.names_in(wrapped)
    parameters = [names[name] for name, _ in wrapped.named_parameters()]
    assert parameters == ["module.eye.weight", "module.eye.bias", "module.module.weight"]
    assert names["_orig_mod.module.module.eye._checkpoint_wrapped_module"] == "module.eye"


@pytest.mark.parametrize("wrapped", ["DistributedDataParallel(net)", 'torch.compile(net, backend="eager")'])
def test_a_report_names_what_is_wrapped_as_if_it_were_not(wrapped: str, tmp_path: Path) -> None:
    with gradkit.watch():
        found = failing.run(RUINS.replace("{wrapped}", wrapped), tmp_path).explained()
    assert found.report is not None
    assert found.report.findings[0].parameters == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert [row.name for row in found.report.parameters] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [one.path for one in found.report.picture.modules] == ["", "0", "1"]
    assert "wrapped_module" not in found.report.html("en")
    assert "module.0" not in found.report.text("en")


@pytest.mark.parametrize("name", ["0.*", "module.0.*"])
def test_what_should_train_may_be_named_with_a_wrapper_or_without_it(name: str) -> None:
    wrapped = nn.DataParallel(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)))
    assert trial._should_train([name], wrapped, ()) == ("module.0.weight", "module.0.bias")
