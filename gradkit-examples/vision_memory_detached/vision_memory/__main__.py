"""The command: train one of the programs, verify it, or compare the three attempts."""

import argparse
import time

import torch

from vision_memory import __doc__ as story
from vision_memory.adapter_only_trainer import NOTES, batches, train
from vision_memory.attempts import ATTEMPTS
from vision_memory.mem_adapter_only import MEMConfig, MEMModel, PageStore
from vision_memory.programs import PROGRAMS, build, gradients, same
from vision_memory.verify_gradient_flow import verify_gradient_flow
from gradkit.core.i18n import words


def compare():
    """Put every attempt before texts that do reach ``proj``, and lay its gradients beside those of attempt 0."""
    for dropout in (0.0, 0.1):
        before = gradients(MEMModel, dropout)
        for number, kind in enumerate(ATTEMPTS):
            after = gradients(kind, dropout)
            said = words("case.same" if same(before, after) else "case.unlike")
            size = torch.stack([g.norm() for name, g in after.items() if name != "loss"]).norm()
            print(words("case.compared", dropout=dropout, number=number, norm=f"{size:.6f}", said=said))


def count():
    """The size that was reported, built without memory for weights, and run: shapes and graph are real."""
    start = time.perf_counter()
    with torch.device("meta"):
        model = MEMModel(MEMConfig.reported(), PageStore()).train()
    model.print_trainable_parameters()
    logits = model([torch.arange(200)]).logits
    seconds = f"{time.perf_counter() - start:.1f}"
    print()
    print(words("case.logits", shape=str(tuple(logits.shape)), flag=logits.requires_grad, seconds=seconds))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m vision_memory", description=story, formatter_class=argparse.RawTextHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--attempt", type=int, choices=range(4), help="0 is what was reported (default)")
    which.add_argument("--program", choices=PROGRAMS, help="one of the programs by its name")
    which.add_argument("--compare", action="store_true", help="the gradients of the three attempts")
    which.add_argument("--counts", action="store_true", help="the size that was reported, on the meta device")
    parser.add_argument("--verify", action="store_true", help="check the first batch instead of training")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning_rate", type=float, default=1e-2)
    args = parser.parse_args(arguments)
    if args.compare:
        return compare()
    if args.counts:
        return count()

    torch.manual_seed(0)
    kind, store, texts = PROGRAMS[args.program or (f"attempt_{args.attempt}" if args.attempt else "never_called")]
    model, texts = build(kind, store), texts()
    print(words("case.texts", taken=len(texts), count=len(NOTES)))
    model.print_trainable_parameters()
    if args.verify:
        return None if verify_gradient_flow(model, batches(texts)[0]) else 1
    train(model, texts, args.epochs, args.learning_rate)
    return None


if __name__ == "__main__":
    raise SystemExit(main())
