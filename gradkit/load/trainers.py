"""A transformers ``Trainer`` as it is, for one forward pass: its model, a batch of its own, its own loss.

trl's trainers are of the same kind. Nothing is trained and no file is written; what the Trainer notes of itself while
it makes a batch is taken back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeGuard

from torch import nn

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.core.introspection import one_line
from gradkit.load.signatures import accepts
from gradkit.source.faults import on_behalf
from gradkit.state import process


def is_trainer(thing: object) -> TypeGuard[Any]:
    """Whether something is a ``transformers.Trainer``; where that was never imported, nothing is.

    Example:
        >>> is_trainer(nn.Linear(1, 1))
        False
    """
    kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    return kind is not None and introspection.is_a(thing, kind)


class TrainerCall:
    """One forward pass as a Trainer makes it in training. Calling it returns the loss.

    Args:
        trainer: with a model and a training set.

    Raises:
        GradkitError: it has no training set, or that is empty.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.model = trainer, trainer.model
        if trainer.train_dataset is None:
            raise GradkitError("trainer_without_data", name=type(trainer).__name__)
        with _unchanged(trainer):
            self.batch, self.items = _first(trainer)

    @on_behalf
    def __call__(self) -> Any:
        """The loss of the batch: the Trainer's settings for precision hold, and its ``compute_loss``."""
        trainer, model = self.trainer, self.model
        with ExitStack() as stack:
            stack.enter_context(trainer.accelerator.autocast())
            stack.enter_context(trainer.compute_loss_context_manager())
            model.train()
            inputs = trainer._prepare_inputs(_copied(self.batch))  # noqa: SLF001  where the batch goes to the device
            takes = accepts(trainer.compute_loss)
            extra = {"num_items_in_batch": self.items} if "num_items_in_batch" in takes.names else {}
            return trainer.compute_loss(model, inputs, **extra)


def files(trainer: Any) -> tuple[str, ...]:
    """The files of a Trainer's own classes, those of the user's among them."""
    kinds = [kind for kind in type(trainer).__mro__ if kind is not object]
    found = (getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in kinds)
    return tuple(dict.fromkeys(one for one in found if one))


@on_behalf
def _first(trainer: Any) -> tuple[Any, Any]:
    batches = iter(trainer.get_train_dataloader())
    collected, items = trainer.get_batch_samples(batches, 1, trainer.args.device)
    if not collected:
        raise GradkitError("trainer_without_data", name=type(trainer).__name__)
    return collected[0], items


@contextmanager
def _unchanged(trainer: Any) -> Iterator[None]:
    """What a Trainer and its accelerator note of a data loader is taken back, and so are the random numbers drawn."""
    noted = [one for one in (trainer, trainer.accelerator) if one is not None]
    kept = [(one, dict(vars(one)), {k: list(v) for k, v in vars(one).items() if type(v) is list}) for one in noted]
    back = process.random_draws()
    try:
        yield
    finally:
        back()
        for one, attributes, lists in kept:
            vars(one).clear()
            vars(one).update(attributes)
            for name, entries in lists.items():
                vars(one)[name][:] = entries


def _copied(batch: Any) -> Any:
    """The batch in a dictionary of its own: a ``compute_loss`` likes to take its labels out."""
    if introspection.is_mapping(batch):
        return {key: batch[key] for key in batch}
    return batch


def model_of(trainer: Any) -> nn.Module:
    """The model that a Trainer trains.

    Raises:
        GradkitError: it has none yet.
    """
    if not introspection.is_a(trainer.model, nn.Module):
        raise GradkitError("not_a_module", name="trainer.model", got=one_line(trainer.model))
    model: nn.Module = trainer.model
    return model
