"""The batch with nothing to learn from, in a run with two processes: only the second one meets it.

    python -m gradkit.cases.multitask.ranks                   skip, times_zero, every_rank
    python -m gradkit.cases.multitask.ranks --fix none         as it was: one process raises, the other waits
    python -m gradkit.cases.multitask.ranks --bad_clip         the same three, with a nan in the clip
    python -m gradkit.cases.multitask.ranks --price            what a step costs in which neither has a label

In a step with DistributedDataParallel the processes wait for each other inside backward, and average their gradients.
"""

import argparse
import json
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradkit.cases.multitask.attempts import FIXES
from gradkit.cases.multitask.price import OPTIMIZERS, moved, nobody_there, write
from gradkit.cases.multitask.programs import clips
from gradkit.cases.multitask.train_multitask import build, parse
from gradkit.core import i18n
from gradkit.core.i18n import words

PATIENCE = timedelta(seconds=10)  # how long a process waits for the others; the default of gloo is half an hour


def one_rank(rank, folder, runs, language):
    """What each process does: each of the runs, one after the other, two steps each."""
    i18n.language(language)
    for number, (fix, bad_clip) in enumerate(runs):
        meet(rank, f"{folder}/meet{number}")
        said = two_steps(rank, fix, bad_clip)
        dist.destroy_process_group()
        Path(folder, f"said{number}.{rank}").write_text("\n".join(said), encoding="utf-8")


def meet(rank, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2, timeout=PATIENCE)


def two_steps(rank, fix, bad_clip):
    """In the first step the second process has no label. One line for each step that was begun."""
    args = parse(["--device", "cpu", "--no-amp"])
    model, optimizer, scaler, _, _ = build(args)
    model = DistributedDataParallel(model)
    loss_fn, step = FIXES[fix]
    empty = nobody_there() if bad_clip else clips(labelled=False)
    said = []
    for batch in (empty if rank == 1 else clips(labelled=True), clips(labelled=True)):
        try:
            loss = step(args, model, batch, optimizer, scaler, loss_fn)
        except RuntimeError as error:
            said.append(words("case.raised", error=str(error).splitlines()[0].rpartition("] ")[2]))
            break
        first = next(model.parameters())
        norm = "" if first.grad is None else f"{first.grad.norm().item():.4f}"
        gradient = words("case.gradient", norm=norm) if norm else words("case.no_gradient")
        shown = words("case.no_loss") if loss is None else f"{loss:.4f}"
        weights = f"{first.norm().item():.6f}"
        said.append(words("case.rank_step", loss=shown, gradient=gradient, weights=weights))
    return said


def together(*runs):
    """For each run, a pair of a fix and whether the clip holds a nan: what the two processes say, line by line."""
    with tempfile.TemporaryDirectory(prefix="ranks_") as folder:
        torch.multiprocessing.spawn(one_rank, (folder, runs, i18n.language()), nprocs=2)
        texts = [[Path(folder, f"said{n}.{rank}") for rank in range(2)] for n in range(len(runs))]
        said = [[text.read_text(encoding="utf-8") for text in pair] for pair in texts]
    return [[text.splitlines() for text in pair] for pair in said]


def show(*runs):
    for (fix, bad_clip), pair in zip(runs, together(*runs)):
        print(words("case.with_nan", fix=fix) if bad_clip else fix)
        for rank, steps in enumerate(pair):
            for number, text in enumerate(steps, 1):
                print(words("case.process", rank=rank, number=number, text=text))


def one_rank_of_the_price(rank, folder, fixes):
    """Three real steps with each optimizer and fix, then one in which neither process has a label."""
    meet(rank, f"{folder}/meet")
    empty = clips(labelled=False)
    moves = {fix: [moved(chosen, fix, empty, DistributedDataParallel) for chosen in OPTIMIZERS] for fix in fixes}
    Path(folder, f"moves.{rank}").write_text(json.dumps(moves))
    dist.destroy_process_group()


def prices(*fixes):
    """For each fix, how far the farthest weight of each process moves, one number for each optimizer."""
    with tempfile.TemporaryDirectory(prefix="ranks_") as folder:
        torch.multiprocessing.spawn(one_rank_of_the_price, (folder, fixes), nprocs=2)
        return [json.loads(Path(folder, f"moves.{rank}").read_text()) for rank in range(2)]


def table(*fixes):
    """The first process's; the other's are the same."""
    write(prices(*fixes)[0])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", choices=FIXES, nargs="+", default=["skip", "times_zero", "every_rank"])
    parser.add_argument("--bad_clip", action="store_true", help="the clip without a label holds a nan")
    parser.add_argument("--price", action="store_true", help="what a step costs in which neither has a label")
    args = parser.parse_args(arguments)
    if args.price:
        table("every_rank", "agreed")
    else:
        show(*((fix, args.bad_clip) for fix in args.fix))


if __name__ == "__main__":
    main()
