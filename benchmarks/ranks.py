"""Seven programs on two ranks in which one goes wrong: are rank and line told, by gloo or NCCL, at which cost.

    python benchmarks/ranks.py [--backend nccl] [--only image detach] [--rounds 4] [--merged 64] [--json OUT.json]

Without ``--backend`` it is NCCL where there are two GPUs, else gloo on the CPU, which is said and stands in the record.
Each program runs under ``torchrun --nproc-per-node 2 -m gradkit run``; what is asked is that the report names rank 1
and the line that makes it differ, and that torchrun's exit status is not covered up. The cost is that of a sound
training of a transformer on both ranks: by turns plain and under ``gradkit run``, the median step of each start, and
the ratio of the medians; plain over plain is what the measurement itself varies by. ``merged`` is how long it takes to
read the records of so many simulated ranks from a store, of which one raised, to compare them and to write the report.
Needs torch, and two GPUs for ``--backend nccl``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from gradkit.live import rank_table
from gradkit.live.flight import MOST, Collective
from gradkit.live.rank_records import RankRecord, compared
from gradkit.live.rank_store import Exchange
from tests.programs import ranks

NEEDED = 2  # GPUs for NCCL
FAULTS = {
    "image": ({"batch": 'late and scene.pop("image")'}, "guess = model(scene)"),
    "label": ({"batch": 'late and scene.pop("kind")'}, 'scene["kind"])'),
    "nan": ({"forward": "guess = guess / 0 * 0 if late else guess"}, "guess / 0 * 0"),
    "detach": ({"forward": "guess = guess.detach() if late else guess"}, "guess.detach()"),
    "frozen": ({}, "net.eye.requires_grad_(False)"),
    "collective": ({"before": "if late:\n        dist.all_reduce(loss.detach().clone())"}, "dist.all_reduce"),
    "sharded": ({"batch": 'late and scene.pop("image")'}, "self.eye(scene"),
}
FROZEN = "rank == 1 and net.eye.requires_grad_(False)\n"
RAISES = frozenset(("image", "label", "detach", "frozen", "collective", "sharded"))

TIMED = """\
import os, statistics, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

backend = "BACKEND"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(device)
dist.init_process_group(backend)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
net = nn.TransformerEncoder(layer, LAYERS).to(device)
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(BATCH, 64, WIDTH, device=device)
times = []
for number in range(STEPS):
    began = time.perf_counter()
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if backend == "nccl":
        torch.cuda.synchronize()
    times.append(time.perf_counter() - began)
if dist.get_rank() == 0:
    print("MEDIAN", statistics.median(times[len(times) // 3 :]))
dist.destroy_process_group()
"""


def told(name: str, backend: str) -> dict[str, object]:
    """What a report says of one of the programs, and how long it took."""
    parts, text = FAULTS[name]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        loop = (FROZEN if name == "frozen" else "") + (ranks.SHARDED if name == "sharded" else ranks.LOOP)
        status, said = ranks.run(Path(folder), loop, backend=backend, **parts)
        took = time.perf_counter() - began
        line = ranks.line(Path(folder), text)
    head = re.search(r"gradkit: (rank .*)", said)
    return {
        "rank": "gradkit: rank 1 of 2" in said,
        "line": f"train.py:{line}" in said,
        "status": status == int(name in RAISES),
        "seconds": round(took, 1),
        "said": head[1] if head else said[-200:],
    }


def median_step(backend: str, *, watched: bool) -> float:
    """Seconds of the median step of a sound training on two ranks."""
    large = backend == "nccl"
    sizes = {"WIDTH": 1024 if large else 64, "LAYERS": 12 if large else 2, "BATCH": 32 if large else 4}
    text = TIMED.replace("BACKEND", backend).replace("STEPS", "90" if large else "60")
    for key, value in sizes.items():
        text = text.replace(key, str(value))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(text, encoding="utf-8")
        path = os.pathsep.join([str(ranks.REPO), *filter(None, [os.environ.get("PYTHONPATH")])])
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*launch, *(["-m", "gradkit", "run"] if watched else []), "train.py"]
        around = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, env=around, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    return float(ended.stdout.split("MEDIAN")[1])


def cost(backend: str, rounds: int) -> dict[str, object]:
    """Watched over plain, and plain over plain, over some starts by turns."""
    plain, watched, again = [], [], []
    for _ in range(rounds):
        plain.append(median_step(backend, watched=False))
        watched.append(median_step(backend, watched=True))
        again.append(median_step(backend, watched=False))
    first = statistics.median(plain)
    return {
        "plain_ms": [round(1000 * one, 3) for one in plain],
        "watched_ms": [round(1000 * one, 3) for one in watched],
        "watched_over_plain": round(statistics.median(watched) / statistics.median([*plain, *again]), 4),
        "plain_over_plain": round(statistics.median(again) / first, 4),
    }


def merged(count: int) -> float:
    """Seconds to read what so many ranks have sent, of which one raised, and to make the report and the table of it."""
    made = tuple(Collective("0", n, "all_reduce", 4096, "train.py:40", "train.py:38") for n in range(MOST))
    names = tuple(f"blocks.{n}.weight" for n in range(1000))
    batch = tuple((f"scene['{n}']", "8 x 3 x 224 x 224") for n in range(16))
    waits = RankRecord(0, count, "stuck", "train.py:40", "loss.backward()", waits=True, steps=7, collectives=20,
                       made=made, batch=batch, trainable=names)  # fmt: skip
    other = dataclasses.replace(waits, state="raised", waits=False, error="ValueError: broken", batch=batch[1:])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    said_by = [Exchange(store, n, count) for n in range(count)]
    for n, one in enumerate(said_by):
        one.post(0, dataclasses.replace(other if n == count // 2 else waits, rank=n))
    began = time.perf_counter()
    found = compared(said_by[0].gathered(0, 10.0), count)
    said = found.text() + rank_table.text(rank_table.table_of(found))
    took = time.perf_counter() - began
    if found.odd != (count // 2,) or f"of {count} raised" not in said:
        raise SystemExit(f"the merged report of {count} ranks names {found.odd}")
    return took


def chosen(backend: str) -> str:
    """The backend: that which was asked for, or what there are GPUs for; this is said."""
    gpus = torch.cuda.device_count()
    if backend == "nccl" and gpus < NEEDED:
        raise SystemExit(f"NCCL needs {NEEDED} GPUs, and there are {gpus}; --backend gloo runs the same on the CPU")
    if not backend and gpus < NEEDED:
        print(f"there are {gpus} GPUs, and NCCL needs {NEEDED}: this is gloo on the CPU", file=sys.stderr)
    return backend or ("nccl" if gpus >= NEEDED else "gloo")


def main() -> None:
    """Run what the command line asks for, print it, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="", help="default: by the GPUs that there are")
    parser.add_argument("--only", nargs="*", choices=tuple(FAULTS), default=tuple(FAULTS))
    parser.add_argument("--rounds", type=int, default=4, help="of the cost; 0 leaves it out")
    parser.add_argument("--merged", type=int, default=64, help="simulated ranks of one report; 0 leaves it out")
    parser.add_argument("--json", type=Path, help="write the record there; else it is printed at the end")
    options = parser.parse_args()
    options.backend = chosen(options.backend)
    found: dict[str, object] = {
        "backend": options.backend,
        "gpus": torch.cuda.device_count(),
        "device": torch.cuda.get_device_name(0) if options.backend == "nccl" else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "programs": {},
    }
    for name in options.only:
        one = told(name, options.backend)
        found["programs"][name] = one  # type: ignore[index]
        seen = [word if one[word] else "-" for word in ("rank", "line", "status")]
        print(f"{name:12}{' '.join(seen):20}{one['seconds']:>6} s  {one['said']}")
    if options.rounds:
        found["cost"] = cost(options.backend, options.rounds)
        print("cost", found["cost"])
    if options.merged:
        found["merged"] = {"ranks": options.merged, "seconds": round(merged(options.merged), 4)}
        print("merged", found["merged"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    else:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
