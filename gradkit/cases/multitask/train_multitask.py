"""Tell what a crane is doing, and where its head, wing and foot are, from a clip of a marsh camera.

    python -m gradkit.cases.multitask.train_multitask --model_type action_only --batch_size 2 --epochs 8

Not every clip is labelled, so each of the two losses has a mask. The batch with nothing but unlabelled clips is rare:
it takes until epoch 6 to meet one.
"""

import argparse
import logging
import sys

import torch
import torch.nn.functional as F
from torch import nn

from gradkit.cases.multitask.clips import ACTIONS, FRAMES, KEYPOINTS, make_loaders
from gradkit.core.i18n import words

logger = logging.getLogger("train_multitask")


class CraneModel(nn.Module):
    """video [N, 1, FRAMES, SIZE, SIZE], pose [N, FRAMES * KEYPOINTS * 2], time [N, 2] -> logits, keypoints or None"""

    def __init__(self, model_type, hidden=32):
        super().__init__()
        self.video = nn.Sequential(
            nn.Conv3d(1, 4, 3, padding=1),
            nn.GELU(),
            nn.AdaptiveAvgPool3d((FRAMES, 2, 2)),
            nn.Flatten(),
            nn.Linear(4 * FRAMES * 4, hidden),
        )
        self.pose = nn.Linear(FRAMES * KEYPOINTS * 2, hidden)
        self.time = nn.Linear(2, hidden)
        self.trunk = nn.Sequential(nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.action_head = nn.Linear(hidden, len(ACTIONS))
        self.keypoint_head = nn.Linear(hidden, KEYPOINTS * 2) if model_type == "multitask" else None

    def forward(self, video, pose, time):
        features = self.trunk(self.video(video) + self.pose(pose) + self.time(time))
        logits_act = self.action_head(features)
        if self.keypoint_head is None:
            return logits_act, None
        return logits_act, torch.sigmoid(self.keypoint_head(features)).unflatten(1, (KEYPOINTS, 2))


def focal_loss(logits, target, mask, gamma=2.0):
    """Cross-entropy of the labelled clips, with less weight on what is easy: `stand` is everywhere."""
    labelled = mask > 0
    log_p = F.log_softmax(logits[labelled].float(), dim=-1)
    log_p = log_p.gather(1, target[labelled, None]).squeeze(1)
    return (-(1 - log_p.exp()) ** gamma * log_p).mean()


def masked_keypoint_loss(keypoints, target, mask):
    """Mean squared error of the points that can be seen."""
    error = (keypoints.float() - target).square().sum(-1)
    return (error * mask).sum() / mask.sum().clamp(min=1)


def compute_loss(args, model, batch):
    """The loss of one batch, as it was written: a scalar tensor."""
    device = batch["video"].device
    logits_act, keypoints = model(batch["video"], batch["pose"], batch["time"])
    if batch["action_mask"].sum() > 0:
        action_loss = focal_loss(logits_act, batch["action"], batch["action_mask"])
    else:
        action_loss = torch.tensor(0.0, device=device)
    if args.model_type == "multitask":
        kp_loss = masked_keypoint_loss(keypoints, batch["keypoints"], batch["keypoint_mask"])
    else:
        kp_loss = torch.tensor(0.0, device=device)
    return action_loss + (args.lambda_kp * kp_loss if args.model_type == "multitask" else 0)


def train_step(args, model, batch, optimizer, scaler, loss_fn=compute_loss):
    """One step in mixed precision, clipped. Returns the loss, before the step."""
    optimizer.zero_grad()
    with torch.autocast(args.device, enabled=args.amp):
        loss = loss_fn(args, model, batch)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


def train_epoch(args, model, loader, optimizer, scaler, loss_fn=compute_loss, step=train_step):
    """Mean loss of the steps that were taken; a step that was left out returns None."""
    model.train()
    losses = [step(args, model, to_device(batch, args.device), optimizer, scaler, loss_fn) for batch in loader]
    taken = [loss for loss in losses if loss is not None]
    if len(taken) < len(losses):
        logger.warning(words("case.unlabelled", skipped=len(losses) - len(taken), count=len(losses)))
    return sum(taken) / max(1, len(taken))


@torch.no_grad()
def validate(args, model, loader, loss_fn=compute_loss):
    """Mean loss of the batches that have one, and how many of the labelled actions are told right."""
    model.eval()
    losses, right, labelled = [], 0, 0
    for batch in (to_device(batch, args.device) for batch in loader):
        losses.append(loss_fn(args, model, batch))
        logits_act, _ = model(batch["video"], batch["pose"], batch["time"])
        hit = (logits_act.argmax(-1) == batch["action"]).float() * batch["action_mask"]
        right, labelled = right + hit.sum().item(), labelled + batch["action_mask"].sum().item()
    losses = [loss.item() for loss in losses if loss is not None]
    return sum(losses) / max(1, len(losses)), right / max(1, labelled)


def to_device(batch, device):
    return {name: value.to(device) for name, value in batch.items()}


def parse(arguments=()):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    return parser.parse_args(arguments)


def add_arguments(parser):
    parser.add_argument("--model_type", choices=["action_only", "multitask"], default="action_only")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    parser.add_argument("--lambda_kp", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=7, help="of the weights and of the order of the clips")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())


def build(args):
    """Model, optimizer, scaler and the two loaders: the same from the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(args.seed)
        model = CraneModel(args.model_type).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    scaler = torch.amp.GradScaler(args.device, enabled=args.amp)
    return model, optimizer, scaler, *make_loaders(args.batch_size, args.seed)


def run(args, loss_fn=compute_loss, step=train_step):
    logging.basicConfig(format="%(message)s")
    model, optimizer, scaler, train_loader, val_loader = build(args)
    for epoch in range(1, args.epochs + 1):
        train_loss = train_epoch(args, model, train_loader, optimizer, scaler, loss_fn, step)
        val_loss, accuracy = validate(args, model, val_loader, loss_fn)
        shown = {"train": f"{train_loss:.4f}", "val": f"{val_loss:.4f}", "accuracy": f"{accuracy:.2f}"}
        print(words("case.epoch", epoch=epoch, **shown))
    return model


if __name__ == "__main__":
    run(parse(sys.argv[1:]))
