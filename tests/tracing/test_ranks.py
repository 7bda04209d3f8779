"""Several processes: what is spread over them is refused in a sentence, and a rank that is alone does not wait on.

All scenarios run in one process that has torch already and forks two ranks for each; they meet by gloo on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.errors import GradkitError
from gradkit.tracing import ranks

REPO = Path(__file__).parents[2]
SHORT, LONG = 0.3, 20.0
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the ranks are forked")


class Net(nn.Module):
    def __init__(self, *, cut: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.cut = nn.Linear(4, 4), nn.Linear(4, 2), cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.last(y.detach() if self.cut else y)


def said(step: Callable[[], Any], model: nn.Module) -> list[Any]:
    """What a diagnosis comes to: the error's key, or causes and proofs; and whether the model is as it was."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    try:
        report = gradkit.diagnose(step, model=model)
        got = [[finding.cause, finding.proof] for finding in report.findings] or "sound"
    except GradkitError as error:
        got = error.key
    same = all(map(torch.equal, before, model.parameters()))
    return [got, same and all(parameter.grad is None for parameter in model.parameters())]


def data_parallel(model: nn.Module, **options: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, **options)


def trains(model: nn.Module) -> bool:
    model(torch.ones(3, 4)).sum().backward()
    return all(parameter.grad is not None for parameter in model.parameters())


# -- what each of the two ranks does ----------------------------------------------------------------------------------


def sound(rank: int) -> list[Any]:
    model, x = data_parallel(Net()), torch.ones(3, 4) + rank
    return [said(lambda: model(x).sum(), model), trains(model)]


def cut(rank: int) -> list[Any]:
    model, x = data_parallel(Net(cut=True), find_unused_parameters=True), torch.ones(3, 4) + rank
    return said(lambda: model(x).sum(), model)


def alone_then_both(rank: int) -> list[Any]:
    model, x = data_parallel(Net()), torch.ones(3, 4)
    first = "-"
    if rank == 0:
        ranks.PATIENCE = SHORT
        first = said(lambda: model(x).sum(), model)
        ranks.PATIENCE = LONG
    torch.distributed.barrier()
    return [first, said(lambda: model(x).sum(), model), trains(model)]


def one_raises(rank: int) -> list[Any]:
    model, x = data_parallel(Net()), torch.ones(3, 4)

    def step() -> torch.Tensor:
        loss = model(x).sum()
        if rank == 1:
            raise ValueError("rank 1")
        ranks.PATIENCE = SHORT
        return loss

    return said(step, model)


def one_is_cut(rank: int) -> list[Any]:
    model, x = nn.ModuleList([data_parallel(Net()), nn.Linear(2, 1)]), torch.ones(3, 4)

    def step() -> torch.Tensor:
        shared = model[0](x)
        own = model[1](shared.detach())
        return shared.sum() + (own.detach() if rank == 0 else own).sum()

    ranks.PATIENCE = 3.0
    return said(step, model)


def plain_alone(rank: int) -> list[Any]:
    model, x = Net(), torch.ones(3, 4)
    return said(lambda: model(x).sum(), model) if rank == 0 else ["-", True]


def reduced_alone(rank: int) -> list[Any]:
    model, x = Net(), torch.ones(3, 4)
    ranks.PATIENCE = SHORT

    def step() -> torch.Tensor:
        loss = model(x).sum()
        torch.distributed.all_reduce(loss.detach().clone())
        return loss

    return said(step, model) if rank == 0 else ["-", True]


def fully_sharded(rank: int) -> list[Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, model, x = init_device_mesh("cpu", (2,)), Net(), torch.ones(3, 4)
    for part in (model.first, model.last, model):
        fully_shard(part, mesh=mesh)
    try:
        gradkit.diagnose(lambda: model(x).sum(), model=model)
    except GradkitError as error:
        return [error.key, trains(model)]
    return ["no error", False]


SCENARIOS = (sound, cut, alone_then_both, one_raises, one_is_cut, plain_alone, reduced_alone, fully_sharded)


def _be_a_rank(scenario: Callable[[int], Any], rank: int, folder: str) -> None:
    meet = f"file://{folder}/{scenario.__name__}"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    torch.manual_seed(0)
    answer = scenario(rank)
    Path(folder, f"{scenario.__name__}.{rank}").write_text(json.dumps(answer), encoding="utf-8")
    with contextlib.suppress(Exception):
        torch.distributed.barrier()


def _run_all() -> None:
    import torch._dynamo  # all that the ranks would import each for itself
    import torch.distributed.fsdp
    import torch.distributed.tensor

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for scenario in SCENARIOS:
            children = []
            for rank in range(2):
                child = os.fork()
                if not child:
                    try:
                        _be_a_rank(scenario, rank, folder)
                    finally:
                        os._exit(0)
                children.append(child)
            for child in children:
                os.waitpid(child, 0)
        files = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*.[01]")}
    print(json.dumps(files))


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.stdout, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def of(answers: dict[str, Any], scenario: Callable[[int], Any]) -> list[Any]:
    return [answers.get(f"{scenario.__name__}.{rank}") for rank in range(2)]


def test_both_ranks_of_a_sound_model_are_told_so_and_go_on_training(answers: dict[str, Any]) -> None:
    assert of(answers, sound) == [[["sound", True], True]] * 2


def test_both_ranks_of_a_model_that_is_cut_prove_it(answers: dict[str, Any]) -> None:
    assert of(answers, cut) == [[[["detach", "proven"]], True]] * 2


def test_a_rank_that_diagnoses_alone_is_refused_and_not_the_next_time(answers: dict[str, Any]) -> None:
    first, second = of(answers, alone_then_both)
    assert first == [["rank_alone", True], ["sound", True], True]
    assert second == ["-", ["sound", True], True]


def test_a_rank_does_not_wait_for_one_that_has_raised(answers: dict[str, Any]) -> None:
    assert of(answers, one_raises) == [["rank_alone", True], ["step_raised", True]]


def test_a_rank_that_has_more_to_ask_does_not_wait_for_one_that_is_done(answers: dict[str, Any]) -> None:
    first, second = of(answers, one_is_cut)
    assert [cause for cause, _ in first[0]] == ["detach"]
    assert first[0][0][1] != "proven"
    assert second == ["sound", True]


def test_one_rank_may_diagnose_a_model_that_waits_for_nobody(answers: dict[str, Any]) -> None:
    assert of(answers, plain_alone) == [["sound", True], ["-", True]]


def test_a_collective_of_the_steps_own_is_not_waited_for_alone(answers: dict[str, Any]) -> None:
    assert of(answers, reduced_alone) == [["rank_alone", True], ["-", True]]


@pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="this torch trains no shards without a GPU")
def test_a_fully_sharded_model_is_refused_and_goes_on_training(answers: dict[str, Any]) -> None:
    assert of(answers, fully_sharded) == [["sharded_model", True]] * 2


# -- in one process ---------------------------------------------------------------------------------------------------


@pytest.fixture
def one_rank() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def refused(step: Callable[[], Any], model: nn.Module) -> GradkitError:
    with pytest.raises(GradkitError) as error:
        gradkit.diagnose(step, model=model)
    assert error.value.key == "sharded_model"
    return error.value


def test_a_model_with_parameters_in_pieces_is_refused(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module

    model = distribute_module(Net(), init_device_mesh("cpu", (1,)))
    error = refused(lambda: model(torch.ones(3, 4)).sum(), model)
    assert "DTensor" in error.text("en")
    assert "DTensor" in error.text("zh")


def test_a_sharded_model_beside_the_one_that_trains_is_refused(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    teacher, model, x = Net(), Net(), torch.ones(3, 4)
    fully_shard(teacher, mesh=init_device_mesh("cpu", (1,)))
    refused(lambda: (model(x) - teacher(x)).square().sum(), model)


def test_a_model_on_one_rank_waits_for_nobody(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "PATIENCE", 0.0)
    model = data_parallel(Net())
    assert gradkit.diagnose(lambda: model(torch.ones(3, 4)).sum(), model=model).healthy


if __name__ == "__main__":
    _run_all()
