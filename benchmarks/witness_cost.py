"""What listening costs while a program is set up: a model is built, loaded, trained for two steps, with it and without.

    python benchmarks/witness_cost.py [--pairs 7] [--only layers gpt2]

Seconds of this process alone on one thread, plain builds and heard ones by turns; the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import nn

from gradkit.witness.listening import listening

Program = Callable[[], object]


def layers() -> object:
    """Two thousand small layers: next to no numbers to draw, so that everything else counts."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()) for _ in range(1000)))


def blocks() -> object:
    """A transformer encoder of torch's own, 57 million parameters."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True), 8)


def frozen() -> object:
    """Layers of which most are frozen one by one, and an optimizer of the rest."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(1000)))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("99")
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])


def trained() -> object:
    """Two steps of a small model."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(64, 64)).mean().backward()
        optimizer.step()
    return model


def gpt2() -> object:
    """GPT-2 of 124 million parameters, from its config."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def loaded() -> object:
    """The same, from a folder."""
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(_saved())


_folder = tempfile.TemporaryDirectory()


def _saved() -> str:
    path = Path(_folder.name) / "gpt2"
    if not path.exists():
        from transformers import GPT2Config, GPT2LMHeadModel

        GPT2LMHeadModel(GPT2Config()).save_pretrained(path)
    return str(path)


PROGRAMS: dict[str, Program] = {one.__name__: one for one in (layers, blocks, frozen, trained, gpt2, loaded)}


def seconds(run: Program, around: AbstractContextManager[object], calls: int) -> float:
    """What a program takes of this process's time, each call; what it made is let go outside of that."""
    gc.collect()
    with around:
        begin = time.process_time()
        made = [run() for _ in range(calls)]
        took = time.process_time() - begin
    del made
    return took / calls


def main() -> int:
    """Print a line for each program."""
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--pairs", type=int, default=7)
    ask.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    told = ask.parse_args()
    torch.set_num_threads(1)
    for name in told.only:
        run, calls = PROGRAMS[name], 10 if name == "trained" else 1
        seconds(run, contextlib.nullcontext(), calls)
        rows = []
        for pair in range(told.pairs):
            kinds = [contextlib.nullcontext, listening]
            took = {kind: seconds(run, kind(), calls) for kind in (kinds if pair % 2 else kinds[::-1])}
            rows.append((took[kinds[0]], took[kinds[1]], took[kinds[1]] / took[kinds[0]]))
        plain, heard, ratio = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:8} plain {1e3 * plain:9.2f} ms   heard {1e3 * heard:9.2f} ms   {ratio:.3f}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
