"""A step of each program, on a batch of our choice: ``(model, step)``, as a diagnosis wants it."""

import torch

from gradkit.cases.multitask import attempts
from gradkit.cases.multitask.clips import CraneClips
from gradkit.cases.multitask.train_multitask import build, compute_loss, parse, train_step


def clips(labelled, seed=0):
    """The first two clips that are labelled, or the first two that are not, as a batch."""
    found = [clip for clip in CraneClips(32, 5, seed) if bool(clip["action_mask"]) is labelled][:2]
    return {name: torch.stack([clip[name] for clip in found]) for name in found[0]}


def program(loss_fn, *options, labelled=False):
    args = parse(["--device", "cpu", "--no-amp", *options])
    model, batch = build(args)[0], clips(labelled)

    def step():
        return loss_fn(args, model, batch)

    return model, step


def make():
    """Two clips, neither of them labelled."""
    return program(compute_loss)


def make_multitask():
    """The same two clips in the multitask model: it still has keypoints to learn from, and raises nothing."""
    return program(compute_loss, "--model_type", "multitask")


def make_times_zero():
    return program(attempts.times_zero)


def make_fixed():
    """Only a batch that has a loss comes as far as a step."""
    return program(attempts.skip, labelled=True)


def make_multitask_fixed():
    return program(attempts.skip, "--model_type", "multitask", labelled=True)


def make_every_rank():
    return program(attempts.every_rank, labelled=True)


def make_epoch_6():
    """Trains as the program does until backward raises. The step is the one that raised."""
    args = parse(["--device", "cpu", "--no-amp"])
    model, optimizer, scaler, loader, _ = build(args)
    for _ in range(args.epochs):
        for batch in loader:
            try:
                train_step(args, model, batch, optimizer, scaler)
            except RuntimeError:
                return model, lambda batch=batch: compute_loss(args, model, batch)
    raise AssertionError("no epoch met a batch without a label")
