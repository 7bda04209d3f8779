"""Does a resumed run need the saved state of its optimizer? Three ways to go on from the same checkpoint.

    python -m gradkit.cases.resume_lora_optimizer
    python -m gradkit.cases.resume_lora_optimizer --first_epochs 1
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.utils import parameters_to_vector

from gradkit.cases.resume_lora import (
    evaluate,
    first_run,
    load_blocks,
    load_checkpoint_fixed,
    load_optimizer,
    make_base,
    train,
)
from gradkit.core.i18n import words


@dataclass(frozen=True)
class Course:
    """``losses``: without dropout, before the first step and after each. ``moved``: how far each took the weights."""

    losses: list[float]
    moved: list[float]


def go_on(model, optimizer, steps, learning_rate):
    batches, losses, moved = load_blocks(), [], []
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    losses.append(evaluate(model, batches))
    for step in range(steps):
        before = parameters_to_vector(trainable).detach().clone()
        train(model, [batches[step % len(batches)]], 1, learning_rate, optimizer)
        moved.append((parameters_to_vector(trainable).detach() - before).norm().item())
        losses.append(evaluate(model, batches))
    return Course(losses, moved)


def compare(first_epochs=6, steps=6, learning_rate=1e-2, seed=0):
    """``{"never_stopped": Course, "saved_optimizer": Course, "new_optimizer": Course}``, from one first run."""
    with tempfile.TemporaryDirectory(prefix="resume_lora_") as name, torch.random.fork_rng(devices=[]):
        base, adapter = Path(name) / "base", Path(name) / "adapter"
        make_base(base)
        torch.manual_seed(seed)
        model, optimizer = first_run(base, adapter, first_epochs, learning_rate)
        courses = {"never_stopped": go_on(model, optimizer, steps, learning_rate)}
        for way, saved in {"saved_optimizer": True, "new_optimizer": False}.items():
            model = load_checkpoint_fixed(base, adapter)
            optimizer = load_optimizer(model, adapter, learning_rate, saved)
            courses[way] = go_on(model, optimizer, steps, learning_rate)
    return courses


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m gradkit.cases.resume_lora_optimizer")
    parser.add_argument("--first_epochs", type=int, default=6, help="how long the run was before it stopped")
    parser.add_argument("--steps", type=int, default=6, help="how many steps to go on")
    parser.add_argument("--learning_rate", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    for way, course in compare(args.first_epochs, args.steps, args.learning_rate, args.seed).items():
        losses = " ".join(f"{loss:.3f}" for loss in course.losses)
        print(words("case.first_step", way=f"{way:16}", size=f"{course.moved[0]:.3f}", losses=losses))


if __name__ == "__main__":
    main()
