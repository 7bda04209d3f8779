"""A model that is split over ranks stands whole while one of its steps is run again, and is as it was afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed, nn

import gradkit
from gradkit.live import rank_places, whole_weights
from gradkit.live.whole_weights import WholeWeights
from gradkit.witness import listening
from gradkit.witness.histories import deeds_of

fsdp = pytest.importorskip("torch.distributed.fsdp")
pytestmark = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="shards need a GPU with this torch"
)


@pytest.fixture(autouse=True)
def _one_rank(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def weights() -> Iterator[WholeWeights]:
    one = WholeWeights()
    one.steps, one.due = (lambda: 1), (lambda: 0)
    yield one.open()
    one.close()


class Net(nn.Module):
    """Two layers, of which the first is divided by zero."""

    def __init__(self) -> None:
        super().__init__()
        self.eye, self.tell = nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.tell((self.eye(x) * 0).sqrt())
        return made


def _split(**options: object) -> tuple[Net, torch.optim.Optimizer]:
    net = Net()
    for part in (net.eye, net):
        fsdp.fully_shard(part, **options)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def _diagnosed(net: Net, weights: WholeWeights, optimizer: torch.optim.Optimizer) -> gradkit.types.Report:
    net(torch.ones(3, 6)).sum().backward()
    with weights.in_place([net], optimizer) as whole:
        assert {id(one) for one in whole.values()} == {id(one) for one in net.parameters()}
        return gradkit.diagnose(lambda: net(torch.ones(3, 6)).sum(), model=net, optimizer=optimizer)


@pytest.mark.parametrize("lower", [False, True])
def test_a_step_of_it_is_diagnosed_with_its_whole_sizes(weights: WholeWeights, lower: bool) -> None:
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16 if lower else None)
    net, optimizer = _split(mp_policy=policy)
    report = _diagnosed(net, weights, optimizer)
    assert [one.cause for one in report.findings] == ["nan_gradient"]
    assert report.findings[0].parameters == ("eye.weight", "eye.bias")
    assert [row.shape for row in report.parameters] == [(4, 6), (4,), (2, 4), (2,)]


def test_afterwards_all_of_it_is_what_it_was(weights: WholeWeights) -> None:
    net, optimizer = _split()
    parts = (net, net.eye)
    before = [(type(one), id(one._forward_hooks), id(one._forward_pre_hooks)) for one in parts]
    shards, held = list(map(id, net.parameters())), optimizer.param_groups[0]["params"]
    _diagnosed(net, weights, optimizer)
    assert [(type(one), id(one._forward_hooks), id(one._forward_pre_hooks)) for one in parts] == before
    assert list(map(id, net.parameters())) == shards
    assert optimizer.param_groups[0]["params"] is held


def test_nothing_is_changed_with_the_weights_of_another_step_or_of_a_part_that_did_not_run(
    weights: WholeWeights,
) -> None:
    net, optimizer = _split()
    net.forward = lambda x: net.tell(x[:, :4])  # type: ignore[method-assign]  # eye is gathered when it is called
    net(torch.ones(3, 6))
    del net.forward
    with weights.in_place([net], optimizer) as whole:
        assert whole == {}
    net(torch.ones(3, 6))
    weights.steps = lambda: 2
    with weights.in_place([net], optimizer) as whole:
        assert whole == {}


def test_of_a_large_model_and_of_a_step_that_nobody_looks_at_no_weights_are_kept(
    weights: WholeWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, optimizer = _split()
    monkeypatch.setattr(whole_weights, "MOST", 16)
    net(torch.ones(3, 6))
    weights.due = lambda: None
    monkeypatch.undo()
    net(torch.ones(3, 6))
    with weights.in_place([net], optimizer) as whole:
        assert whole == {}


def test_who_froze_a_parameter_is_known_of_its_shard_also_during_a_pass() -> None:
    with listening.listening():
        net = Net()
        net.eye.requires_grad_(False)
        fsdp.fully_shard(net, reshard_after_forward=False)
    assert [deed.kind for deed in deeds_of(net.eye.weight)] == ["registered", "frozen"]
    net(torch.ones(3, 6))
    assert not hasattr(net.eye.weight, "to_local")
    (place,) = rank_places._parameters([net])[1]
    assert place.endswith("net.eye.requires_grad_(False)")
