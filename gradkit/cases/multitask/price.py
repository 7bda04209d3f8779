"""What one step on a batch without labels does to the weights, after three real steps.

    python -m gradkit.cases.multitask.price
"""

import torch

from gradkit.cases.multitask.attempts import FIXES
from gradkit.cases.multitask.programs import clips
from gradkit.cases.multitask.train_multitask import build, parse
from gradkit.core.i18n import words

OPTIMIZERS = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1),
    "SGD, momentum": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "SGD, weight decay": lambda weights: torch.optim.SGD(weights, lr=0.1, weight_decay=0.01),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.01),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.01),
}


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def warmed_up(optimizer, fix, wrap=lambda model: model):
    """After three real steps: the model, and a function that takes one more step on a batch."""
    args = parse(["--device", "cpu", "--no-amp"])
    model, _, scaler, _, _ = build(args)
    model = wrap(model)
    chosen, (loss_fn, step) = OPTIMIZERS[optimizer](model.parameters()), FIXES[fix]

    def take(batch):
        return step(args, model, batch, chosen, scaler, loss_fn)

    for _ in range(3):
        take(clips(labelled=True))
    return model, take


def moved(optimizer, fix, batch, wrap=lambda model: model):
    """How far the farthest weight moves in a step on this batch; nan if a weight becomes nan."""
    model, take = warmed_up(optimizer, fix, wrap)
    before = weights(model)
    take(batch)
    return (weights(model) - before).abs().max().item()


def nobody_there():
    """Two clips without a label as there is no bird in them: the detector's points are 0, and so is its height."""
    batch = clips(labelled=False)
    batch["pose"] = batch["pose"] * 0 / 0
    return batch


def table(batch):
    fixes = ["times_zero", "skip", "every_rank"]
    write({fix: [moved(optimizer, fix, batch) for optimizer in OPTIMIZERS] for fix in fixes})


def write(columns):
    print(" " * 18, *(f"{fix:>11}" for fix in columns))
    for optimizer, moves in zip(OPTIMIZERS, zip(*columns.values())):
        print(f"{optimizer:18}", *(f"{move:11.1e}" for move in moves))


def main():
    print(words("case.farthest"))
    table(clips(labelled=False))
    print(words("case.farthest_nan"))
    table(nobody_there())


if __name__ == "__main__":
    main()
