"""Can this step train? The diagnosis, read as a list of checks that either hold or do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from gradkit import inventory, load, optimizers, owners, registered
from gradkit.diagnose import diagnose, step_of
from gradkit.errors import letting_go
from gradkit.report import Report
from gradkit.verification import Holding, Verification


@letting_go
def verify(
    model_or_step: Any,
    batch: Any = None,
    *,
    model: nn.Module | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    should_train: Sequence[str] | None = None,
    frozen: Sequence[str] = (),
    replay: bool = True,
) -> Verification:
    """Check that a step can train: its loss, backward, every gradient, the optimizer, what is frozen.

    Args:
        model_or_step: as for :func:`gradkit.diagnose`, and so are ``batch``, ``model``, ``loss``, ``should_train`` and
            ``replay``.
        frozen: names or globs of the parameters that must not train: none of them may require grad.
        optimizer: the one that must hold all that should train. Of an optimizer that the step merely reaches, what it
            lacks is noted.

    Returns:
        A record that is true if nothing failed: ``assert gradkit.verify(step)``.

    Raises:
        GradkitError: the step cannot be run, or returns no loss; or a pattern matches no parameter.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> net.bias.requires_grad_(False)
        Parameter containing:
        ...
        >>> done = verify(net, torch.ones(3, 2), loss=lambda output: output.sum(), should_train=["weight"])
        >>> done.passed, done.counts()
        (True, {'trainable': 2, 'all': 3})
    """
    step = step_of(model_or_step, batch, model, loss)
    report = diagnose(step, optimizer=optimizer, should_train=should_train, replay=replay)
    still = frozenset(inventory.wanted(step.model, frozen)) if frozen else frozenset()
    return Verification(report, _holding(step, report, optimizer), still)


def _holding(step: load.Step, report: Report, given: torch.optim.Optimizer | None) -> Holding:
    """What the given optimizer holds; without one, those that the step can reach and that hold any of the model's."""
    wanted = {row.name for row in report.parameters if row.should_train}
    named = {n: p for n, p in registered.parameters(step.model, twice=True) if n in wanted}
    ours = {id(parameter) for parameter in named.values()}
    reachable = owners.optimizers_of(step.run, step.model)
    found = [given] if given is not None else [one for one in reachable if ours & optimizers.holding([one])]
    covered = optimizers.holding(found)
    missing = tuple(name for name, parameter in named.items() if id(parameter) not in covered)
    return Holding(tuple(type(one).__name__ for one in found), missing if found else (), given is not None)
