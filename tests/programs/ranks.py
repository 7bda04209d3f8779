"""A program for several processes, in which one rank may go wrong: written, started, and its lines found again."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]
LAUNCH = (sys.executable, "-m", "torch.distributed.run")

MODEL = """\
import os
from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

class Describer(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Linear(6, 8)
        self.ear = nn.Linear(5, 8)
        self.tell = nn.Linear(8, 3)
    def forward(self, scene):
        seen = self.ear(scene["sound"])
        if "image" in scene:
            seen = seen + self.eye(scene["image"])
        return self.tell(seen)

def scene_of(rank, number):
    g = torch.Generator().manual_seed(10 * number + rank)
    made = {"sound": torch.randn(4, 5, generator=g), "image": torch.randn(4, 6, generator=g),
            "kind": torch.randint(0, 3, (4,), generator=g)}
    return {key: value.to(device) for key, value in made.items()}

backend = "BACKEND"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(device)
dist.init_process_group(backend, timeout=timedelta(seconds=60))
torch.manual_seed(0)
rank, net = dist.get_rank(), Describer().to(device)
"""

LOOP = """\
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    scene = scene_of(rank, number)
    late = rank == 1 and number >= 2
    {batch}
    guess = model(scene)
    {forward}
    loss = cross_entropy(guess, scene["kind"])
    optimizer.zero_grad()
    {before}
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""

SHARDED = """\
from torch.distributed.fsdp import fully_shard
for part in (net.eye, net.ear, net.tell, net):
    fully_shard(part)
""" + LOOP.replace("DistributedDataParallel(net)", "net")

SPLIT = """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
plan = {{"eye": ColwiseParallel(), "tell": RowwiseParallel()}}
net.ear = nn.Identity()
net.forward = lambda scene: net.tell(net.eye(scene["image"]).relu())
model = parallelize_module(net, init_device_mesh("cpu", (2,)), plan)
""" + LOOP.partition("\n")[2].replace("scene_of(rank, number)", "scene_of(0, number)")

STAGED = """\
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
class Second(nn.Linear):
    def forward(self, guess):
        {forward}
        return super().forward(guess.relu())
late, stage = False, nn.Linear(6, 8) if rank == 0 else Second(8, 3)
schedule = ScheduleGPipe(PipelineStage(stage, rank, 2, device), n_microbatches=2, loss_fn=cross_entropy)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
for number in range(6):
    scene = scene_of(0, number)
    late = rank == 1 and number >= 2
    {batch}
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(scene["image"])
    else:
        schedule.step(target=scene["kind"], losses=[])
    optimizer.step()
dist.destroy_process_group()
"""


def run(
    folder: Path, loop: str, *, model: str = MODEL, count: int = 2, options: tuple[str, ...] = (),
    backend: str = "gloo", **parts: str,
) -> tuple[int, str]:  # fmt: skip
    """The exit status of torchrun and its stderr, of ``gradkit run`` on a program in which ``parts`` stand."""
    _write(folder, loop, model, backend, parts)
    launch = ["--standalone", "--nproc-per-node", str(count), "-m", "gradkit", "run", *options, "train.py"]
    ended = subprocess.run(
        [*LAUNCH, *launch], env=_around(), cwd=folder, capture_output=True, text=True, timeout=150, check=False
    )
    return ended.returncode, _said(ended.stderr)


def run_on_two_machines(folders: tuple[Path, Path], loop: str, **parts: str) -> list[tuple[int, str]]:
    """The same of two launchers, each with a process of its own and a folder of its own, as of two machines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for node, folder in enumerate(folders):
        _write(folder, loop, MODEL, "gloo", parts)
        launch = ["--nnodes", "2", "--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]
        command = [*LAUNCH, *launch, "--nproc-per-node", "1", "-m", "gradkit", "run", "train.py"]
        started.append(
            subprocess.Popen(
                command, env=_around(), cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    ended = [(one.communicate(timeout=150)[1], one.returncode) for one in started]
    return [(status, _said(said)) for said, status in ended]


def _write(folder: Path, loop: str, model: str, backend: str, parts: dict[str, str]) -> None:
    filled = {**dict.fromkeys(("batch", "forward", "before"), "pass"), **parts}
    text = model.replace("BACKEND", backend) + loop.format(**filled)
    (folder / "train.py").write_text(text, encoding="utf-8")


def _around() -> dict[str, str]:
    path = os.pathsep.join([str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _said(stderr: str) -> str:
    return re.sub(r"^\[rank\d\]: ?", "", stderr, flags=re.MULTILINE)


def line(folder: Path, text: str) -> int:
    """The number of the first line of the program with a text."""
    lines = (folder / "train.py").read_text(encoding="utf-8").splitlines()
    return next(at for at, one in enumerate(lines, 1) if text in one)
