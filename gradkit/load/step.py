"""Turn whatever a person has (objects, a file, a checkpoint) into one ``Step``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.core.introspection import one_line
from gradkit.load import failures, trainers
from gradkit.load.batches import load_batch
from gradkit.load.build import build_loss, build_model, build_step
from gradkit.load.call import ModelCall, StepCall
from gradkit.load.signatures import accepts, expectation
from gradkit.load.trainers import TrainerCall
from gradkit.state.reachable import files_of, model_of


def step_of(given: Any, batch: Any, model: nn.Module | None, loss: Callable[..., Any] | None) -> Step:
    """What ``diagnose`` was given, as a step.

    Raises:
        GradkitError: it is neither a model nor a step nor a Trainer.
    """
    if introspection.is_a(given, Step):
        return given
    if introspection.is_a(given, nn.Module):
        return from_objects(given, batch, loss)
    if trainers.is_trainer(given):
        return Step(TrainerCall(given), trainers.model_of(given), type(given).__name__, trainers.files(given))
    if not callable(given):
        raise GradkitError("not_a_model_or_step", kind=type(given).__name__)
    return from_step(given, model)


@dataclass(frozen=True)
class Step:
    """One forward pass that can be run again and again.

    Attributes:
        run: takes nothing, returns the loss, a tensor of any shape; or what took its place, which is to be found.
        model: the module whose parameters are to be trained.
        label: what to call it on screen, for example ``"train.py:step"``.
        files: the user's source files that are known to take part.
    """

    run: Callable[[], object]
    model: nn.Module
    label: str = ""
    files: tuple[str, ...] = ()


def from_objects(
    model: nn.Module, batch: object = None, loss: Callable[..., Any] | None = None, *, label: str = ""
) -> Step:
    """A step from a model, a batch and a loss that exist already.

    Args:
        model: any module.
        batch: a dict (``model(**batch)``), a tuple (``model(*batch)``) or anything else (``model(batch)``). In a
            tuple that is longer than forward takes, the last item is the target. A DataLoader gives its first batch.
            None calls ``model()``.
        loss: ``loss(output, batch)``; one whose second parameter is called ``target``, ``labels``, ``y`` ... gets
            the targets instead (``nn.CrossEntropyLoss()``). None: ``output.loss``, ``output["loss"]`` or the output
            itself if it has one element. ``load.call`` tells the rules in full.
        label: what to call it on screen; the model's class by default.

    Raises:
        GradkitError: the model is no module, or the loss cannot be called.

    Example:
        >>> step = from_objects(nn.Linear(3, 1), torch.ones(4, 3), lambda output, batch: output.mean())
        >>> step.run().shape, step.label
        (torch.Size([]), 'Linear')
    """
    if not introspection.is_a(model, nn.Module):
        raise GradkitError("not_a_module", name="model", got=one_line(model))
    if loss is not None and not callable(loss):
        raise GradkitError("not_callable", name="loss", got=one_line(loss))
    call = ModelCall(model, load_batch(batch) if introspection.is_a(batch, DataLoader) else batch, loss)
    return Step(call, model, label or type(model).__name__, files_of(model, loss))


def from_step(step: Callable[[], object], model: nn.Module | None = None, *, label: str = "") -> Step:
    """A step from a function that runs one forward pass and returns the loss.

    Args:
        step: called without arguments; may also return an output that holds the loss (``output.loss``).
        model: None takes ``step.model``, else the one module that the function uses.
        label: what to call it on screen; the function's name by default.

    Raises:
        GradkitError: not a function of no arguments, or the model cannot be told. What it returns is looked at when it
            is diagnosed.

    Example:
        >>> net = nn.Linear(3, 1)
        >>> from_step(lambda: net(torch.ones(4, 3)).mean()).model is net
        True
    """
    if introspection.is_a(step, nn.Module) or not callable(step):
        raise GradkitError("not_callable", name="step", got=one_line(step))
    named = introspection.ask(step, "__qualname__")
    label = label or (named if type(named) is str else type(step).__name__).replace("<locals>.", "")
    if accepts(step).required:
        raise GradkitError("step_needs_arguments", name=label, arguments=", ".join(accepts(step).required))
    if model is None:
        model = model_of(step, label)
    elif not introspection.is_a(model, nn.Module):
        raise GradkitError("not_a_module", name="model", got=one_line(model))
    return Step(StepCall(step, label), model, label, files_of(step, model))


def from_spec(
    step: object = None,
    *,
    model: object = None,
    batch: object = None,
    loss: object = None,
    adapter: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
    base: object = None,
    is_trainable: bool | None = None,
) -> Step:
    """A step from texts such as ``train.py:build_model``; every one may be the object itself as well.

    Args:
        step: ``train.py:step``, a function of no arguments; or one of ``model`` and / or ``batch``, which it then
            gets; or a function that returns the pair ``(model, step)``.
        model: a module, a class or a function that builds it, or a folder written by transformers.
        batch: what ``batches.load_batch`` takes. A data file's tensors go to the model's device.
        loss: a function of (output, batch), a class, or a function that builds it.
        adapter: a peft adapter folder to put on the model.
        weights: a state dict to load into the model, before the adapter.
        base: another name for ``model``, to go with ``adapter``.
        is_trainable: for the adapter; None leaves peft's default.

    Raises:
        GradkitError: whatever does not fit, by name.

    Example:
        >>> from_spec(model="torch.nn:Flatten", batch=lambda: torch.ones(1, 1)).run()
        tensor([[1.]])
    """
    built = build_model(model if model is not None else base, adapter, weights, is_trainable)
    if step is not None:
        made, owner = build_step(step, built.value if built else None, batch)
        ready = from_step(made.value, owner, label=made.label)
        run = StepCall(made.value, made.label, made.folder)
        return replace(ready, run=run, files=_with(made.file, *ready.files))
    if built is None:
        raise GradkitError("nothing_to_load")
    if batch is None and accepts(built.value).required:
        raise GradkitError("no_batch", expects=expectation(built.value))
    device = next((one.device for one in built.value.parameters()), torch.device("cpu"))
    call = ModelCall(built.value, load_batch(batch, device=device), build_loss(loss), built.folder)
    return Step(call, built.value, built.label, _with(built.file, *files_of(built.value, call.loss)))


def explain_failure(error: Exception, step: Step) -> GradkitError:
    """The clear error for an exception that ``step.run()`` raised; a ``GradkitError`` comes back as it is.

    Example:
        >>> step = from_objects(nn.Linear(3, 1), torch.ones(4, 5), lambda output: output.sum())
        >>> try: _ = step.run()
        ... except RuntimeError as error: print(explain_failure(error, step).key)
        wrong_shape
    """
    run = getattr(step.run, "__wrapped__", step.run)
    batch = one_line(run.batch) if isinstance(run, ModelCall) else ""
    return failures.explain(error, step.model, batch)


def _with(file: str, *others: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in (file, *others) if one))
