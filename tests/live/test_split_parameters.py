"""A model whose parameters are split over ranks is not run again; what got no gradient is counted all the same."""

from __future__ import annotations

import pytest
import torch
from torch import distributed as dist
from torch import nn

import gradkit

mesh_of = pytest.importorskip("torch.distributed.device_mesh").init_device_mesh
parallel = pytest.importorskip("torch.distributed.tensor.parallel")


@pytest.fixture
def _alone() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


class Net(nn.Module):
    def __init__(self, detach: bool) -> None:
        super().__init__()
        self.up, self.down, self.detach = nn.Linear(6, 8), nn.Linear(8, 4), detach

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.relu(self.up(x))
        return self.down(seen.detach() if self.detach else seen)  # type: ignore[no-any-return]


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize(("detach", "untold"), [(True, 2), (False, 0)])
def test_parameters_without_a_gradient_are_counted(detach: bool, untold: int) -> None:
    plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
    net = parallel.parallelize_module(Net(detach), mesh_of("cpu", (1,)), plan)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with gradkit.watch() as watched:
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.ones(5, 6)).square().mean().backward()
            optimizer.step()
    assert (watched.untold, watched.reports) == (untold, ())


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize(("factor", "broken"), [(float("nan"), True), (1.0, False)])
def test_gradients_that_are_no_numbers_get_no_clean_bill(factor: float, broken: bool) -> None:
    plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
    net = parallel.parallelize_module(Net(detach=False), mesh_of("cpu", (1,)), plan)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with gradkit.watch(tell=lambda _: None) as watched:
        for number in range(6):
            optimizer.zero_grad()
            (net(torch.ones(5, 6)).square().mean() * (factor if number > 1 else 1.0)).backward()
            optimizer.step()
        assert watched.untold_numbers is broken
    assert watched.untold_numbers is broken


def test_a_model_that_is_not_split_has_nothing_untold() -> None:
    layers = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    with gradkit.watch(tell=lambda _: None) as watched:
        for _ in range(4):
            layers[0](torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert watched.untold == 0
