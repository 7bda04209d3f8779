"""Horses: several processes train a net to tell the gait by the hoofbeats; the head for three gaits is there, idle."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel, distributed

import gradkit


class Herd(nn.Module):
    def forward(self, hoofbeats):
        return self.four_gaits(torch.tanh(self.ear(hoofbeats)))


class Horses(Herd):
    # [wrong]
    def __init__(self):
        super().__init__()
        self.ear = nn.Linear(6, 8)
        self.three_gaits = nn.Linear(8, 3)  # CUT
        self.four_gaits = nn.Linear(8, 4)
    # [end]


class FixedHorses(Herd):
    # [fixed]
    def __init__(self):
        super().__init__()
        self.ear = nn.Linear(6, 8)
        self.four_gaits = nn.Linear(8, 4)
    # [end]


class SilentHorses(Horses):
    def forward(self, hoofbeats):
        idle = sum(parameter.sum() for parameter in self.three_gaits.parameters())
        return super().forward(hoofbeats) + 0.0 * idle


def distributed_over_processes(model, **options):
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return DistributedDataParallel(model, **options)


def frozen_in_time():
    # [freeze]
    model = Horses()
    model.three_gaits.requires_grad_(False)
    model = distributed_over_processes(model)
    # [end]
    return model


def stepping(model):
    torch.manual_seed(1)
    hoofbeats, gait = torch.randn(9, 6), torch.randint(0, 4, (9,))
    return lambda: F.cross_entropy(model(hoofbeats), gait)


def program(kind, **options):
    torch.manual_seed(0)
    model = distributed_over_processes(kind(), **options)
    step = stepping(model)
    step().backward()
    model.zero_grad()
    return model, step


def make():
    return program(Horses)


FAILS = "step raises: Expected to have finished reduction in the prior iteration"


def make_fixed():
    return program(FixedHorses)


# [see]
def idle(model, step):
    model.zero_grad()
    step().backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
# [end]


# [verify]
def several_steps(model, step):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = step()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[-1] < losses[0]
# [end]


TRAIN = """\
# [ranks]
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Meadow(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear = nn.Linear(6, 8)
        self.eye = nn.Linear(5, 8)
        self.four_gaits = nn.Linear(8, 4)

    def forward(self, batch):
        sense = self.ear(batch["hoofbeats"])
        if "picture" in batch:
            sense = sense + self.eye(batch["picture"])
        return self.four_gaits(torch.tanh(sense))


def load(number):
    batch = {"hoofbeats": torch.randn(9, 6), "gait": torch.randint(0, 4, (9,))}
    if rank == 0 or number < 2:
        batch["picture"] = torch.randn(9, 5)
    return batch


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(Meadow())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    batch = load(number)
    loss = F.cross_entropy(model(batch), batch["gait"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
# [end]
"""

USED = """\
            sense = sense + self.eye(batch["picture"])
"""

TOGETHER = """\
# [together]
        else:
            sense = sense + 0 * sum(p.sum() for p in self.eye.parameters())
# [end]
"""

SHARDED = TRAIN.replace("torch.nn.parallel import DistributedDataParallel", "torch.distributed.fsdp import fully_shard").replace(
    "DistributedDataParallel(Meadow())",
    "Meadow()\nfor part in (model.ear, model.eye, model.four_gaits, model):\n    fully_shard(part)",
)

CALLED = """\
# [called]
        else:
            sense = sense + 0 * self.eye(torch.zeros(9, 5))
# [end]
"""

LOADED = """\
    batch = load(number)
"""

SKIPS = """\
    if "picture" not in batch:
        continue
"""

AVERAGED = """\
    loss.backward()
"""

ALONE = """\
    alone = torch.autograd.grad(loss, model.module.eye.weight, retain_graph=True)[0]
"""

SHARE = """\
    if rank == 0:
        print(f"eye: {model.module.eye.weight.grad.norm() / alone.norm():.2f} of rank 0's own gradient")
"""


def two_ranks(program, language="en"):
    """What this prints: torchrun --nproc-per-node 2 -m gradkit run train.py"""
    command = f"torch.distributed.run --standalone --nproc-per-node 2 -m gradkit run --language {language} train.py"
    around = {**os.environ, "PYTHONPATH": str(Path(gradkit.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    lines = [line for line in program.splitlines() if not line.startswith("# [")]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text("\n".join(lines))
        ran = subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, env=around, capture_output=True, timeout=150)
    return (ran.stdout + ran.stderr).decode()


UNFINISHED = "Expected to have finished reduction in the prior iteration before starting a new one"
IDLE = ["three_gaits.weight", "three_gaits.bias"]


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    return ""


def experiment_the_first_pass_runs_and_the_second_raises():
    torch.manual_seed(0)
    model = distributed_over_processes(Horses())
    step = stepping(model)
    step().backward()
    assert dist.get_world_size() == 1 and UNFINISHED in refused(step)


def experiment_without_ddp_the_same_net_trains():
    torch.manual_seed(0)
    model = Horses()
    assert several_steps(model, stepping(model))


def experiment_the_message_counts_trainable_parameters():
    model, step = make()
    line = next(line for line in refused(step).splitlines() if "did not receive grad for rank 0" in line)
    trainable = [name for name, parameter in model.module.named_parameters() if parameter.requires_grad]
    assert [trainable[int(number)] for number in line.split(":")[1].split()] == IDLE


REPORT = [
    "gradkit: rank 1 of 2 raised an error; the others go on waiting for it.",
    "rank 1: train.py:36 raised RuntimeError: Expected to have finished reduction",
    "rank 0: waits at train.py:38, loss.backward()",
    "the batch of rank 1 lacks batch['picture']",
    "picture is not given here, so the branch that uses them does not run",
    "= no gradient: eye.weight, eye.bias",
]


def experiment_one_report_tells_what_rank_1_lacks_and_where_rank_0_waits():
    said = two_ranks(TRAIN)
    print(said.partition("[rank")[0])
    assert [line for line in REPORT if line not in said] == []
    assert "loss + 0 * sum(p.sum() for p in eye.parameters())" in said


def experiment_zero_times_the_branch_holds_on_both_ranks_and_a_rank_that_skips_alone_leaves():
    cured = TRAIN.replace(USED, USED + TOGETHER).replace(AVERAGED, ALONE + AVERAGED + SHARE)
    skipping = TRAIN.replace(LOADED, LOADED + SKIPS)
    with ThreadPoolExecutor() as pool:
        together, apart = pool.map(two_ranks, [cured, skipping])
    print(together)
    print(apart.partition("[rank")[0])
    assert "gradkit: 4 optimizer steps, nothing to report" in together
    assert together.count("eye: 0.50 of rank 0's own gradient") == 2
    assert "rank 1 ended after 2 steps, and rank 0 goes on" in apart


def experiment_a_sharded_branch_is_called_on_every_rank_or_named_with_its_condition():
    if hasattr(torch.cpu.Stream, "record_event"):  # else this torch shards on a GPU only
        with ThreadPoolExecutor() as pool:
            apart, together = pool.map(two_ranks, [SHARDED, SHARDED.replace(USED, USED + CALLED)])
        print(apart[apart.find("gradkit:") :].partition("[rank")[0])
        print(together)
        assert "gradkit: rank 1 of 2 runs different parts of the sharded model from the other ranks" in apart
        assert 'by the condition at train.py:17, if "picture" in batch; on rank 1 it is not given' in apart
        assert "gradkit: 4 optimizer steps, nothing to report" in together


def experiment_without_the_wrapping_the_idle_ones_are_listed():
    for kind, found in [(Horses, IDLE), (FixedHorses, [])]:
        model = kind()
        assert idle(model, stepping(model)) == found


def experiment_freezing_before_the_wrapping_cures_and_after_it_does_not():
    model = frozen_in_time()
    assert several_steps(model, stepping(model))
    late = distributed_over_processes(Horses())
    late.module.three_gaits.requires_grad_(False)
    step = stepping(late)
    step().backward()
    assert UNFINISHED in refused(step)


def experiment_the_cure_trains_and_its_gradients_are_those_without_ddp():
    assert several_steps(*make_fixed())
    model, step = make_fixed()
    alone = FixedHorses()
    alone.load_state_dict(model.module.state_dict())
    step().backward()
    stepping(alone)().backward()
    assert all(torch.allclose(p.grad, q.grad) for p, q in zip(model.parameters(), alone.parameters()))


def experiment_finding_them_is_a_search_in_every_pass():
    for find, passes in [(True, 3), (False, 0)]:
        model, step = program(FixedHorses, find_unused_parameters=find)
        with mock.patch.object(distributed, "_find_tensors", wraps=distributed._find_tensors) as search:
            for _ in range(3):
                step().backward()
        assert search.call_count == passes


def experiment_finding_them_silences_a_head_that_should_have_learned():
    model, step = program(Horses, find_unused_parameters=True)
    assert several_steps(model, step)
    assert model.module.three_gaits.weight.grad is None


def experiment_zero_times_the_weights_lets_weight_decay_eat_them():
    for kind, stays in [(Horses, True), (SilentHorses, False)]:
        model, step = program(kind, find_unused_parameters=stays)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
        before = model.module.three_gaits.weight.detach().clone()
        step().backward()
        optimizer.step()
        assert torch.equal(model.module.three_gaits.weight, before) is stays
