"""What was done about the crash: the first cure, the guard that came with it, and what does better.

Each is a loss function or a step of ``train_multitask`` with one thing changed.
"""

import logging

import torch
import torch.distributed as dist

from gradkit.cases.multitask import train_multitask
from gradkit.cases.multitask.train_multitask import focal_loss, masked_keypoint_loss

logger = logging.getLogger("train_multitask")


def times_zero(args, model, batch):
    """First cure: a zero that hangs on the model's output, so that backward has somewhere to go."""
    logits_act, keypoints = model(batch["video"], batch["pose"], batch["time"])
    if batch["action_mask"].sum() > 0:
        action_loss = focal_loss(logits_act, batch["action"], batch["action_mask"])
    else:
        action_loss = 0.0 * logits_act.sum()
    if args.model_type == "multitask":
        kp_loss = masked_keypoint_loss(keypoints, batch["keypoints"], batch["keypoint_mask"])
    else:
        kp_loss = 0.0 * logits_act.sum()
    return action_loss + (args.lambda_kp * kp_loss if args.model_type == "multitask" else 0)


def guarded_step(args, model, batch, optimizer, scaler, loss_fn=train_multitask.compute_loss):
    """The guard of the first cure: do not run backward on a loss that has no gradient."""
    optimizer.zero_grad()
    with torch.autocast(args.device, enabled=args.amp):
        loss = loss_fn(args, model, batch)
    if loss.requires_grad:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
    else:
        logger.warning("[warn] Skipping optimization step: loss doesn't require grad")
    return loss.item()


def skip(args, model, batch):
    """Add up the losses that this batch has; None if it has none."""
    logits_act, keypoints = model(batch["video"], batch["pose"], batch["time"])
    losses = []
    if batch["action_mask"].any():
        losses.append(focal_loss(logits_act, batch["action"], batch["action_mask"]))
    if args.model_type == "multitask" and batch["keypoint_mask"].any():
        losses.append(args.lambda_kp * masked_keypoint_loss(keypoints, batch["keypoints"], batch["keypoint_mask"]))
    return sum(losses) if losses else None


def skipping_step(args, model, batch, optimizer, scaler, loss_fn=skip):
    """One step; where there is no loss, none at all: no backward, no update, no gradient left over. Then None."""
    optimizer.zero_grad()
    with torch.autocast(args.device, enabled=args.amp):
        loss = loss_fn(args, model, batch)
    if loss is None:
        return None
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def every_rank(args, model, batch):
    """For runs with several processes, which wait for each other in backward: every parameter takes part, always.

    Hangs on the weights and not on the output: an infinity in the clip cannot get in.
    """
    loss = skip(args, model, batch)
    return (0 if loss is None else loss) + 0.0 * sum(p.sum() for p in model.parameters())


def agreed_step(args, model, batch, optimizer, scaler, loss_fn=every_rank):
    """All processes take the step if any of them has something to learn from; else all leave it out. Then None."""
    found = batch["action_mask"].sum()
    if args.model_type == "multitask":
        found = found + batch["keypoint_mask"].sum()
    if dist.is_initialized():
        dist.all_reduce(found)
    if found == 0:
        return None
    return train_multitask.train_step(args, model, batch, optimizer, scaler, loss_fn)


FIXES = {
    "none": (train_multitask.compute_loss, train_multitask.train_step),
    "guard": (train_multitask.compute_loss, guarded_step),
    "times_zero": (times_zero, guarded_step),
    "skip": (skip, skipping_step),
    "every_rank": (every_rank, train_multitask.train_step),
    "agreed": (every_rank, agreed_step),
}
