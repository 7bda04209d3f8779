"""How a model is called on a batch, and a loss on what comes out: what people mean by ``model, batch, loss``.

======================  ==============================================  ==========================================
batch                   the model is called with                        the loss is called with
======================  ==============================================  ==========================================
dict, BatchEncoding     ``model(**batch)``; the dict as a whole if      ``loss(output, batch)``
                        forward takes one argument that is none of its
                        keys and not annotated as a tensor; keys that
                        only the loss needs are left out
tuple or list           ``model(*batch)`` if forward takes that many,   ``loss(output, batch)``
                        else ``model(*batch[:-1])``: the last is the
                        target
anything else           ``model(batch)``                                ``loss(output, batch)``
======================  ==============================================  ==========================================

A loss whose second parameter is called ``target`` (``nn.CrossEntropyLoss()``), ``targets``, ``labels``, ``y`` ... gets
the targets in place of the batch: the last item of a tuple, the key of a dict that forward does not take (or that is
called ``labels``, ``target`` ...), and otherwise the batch itself (an autoencoder). A loss of one parameter gets the
output alone.
Without a loss it is ``output.loss``, ``output["loss"]``, or the output itself if it has one element.

A loss function or a step may hand back what is no tensor: a number, an array, nothing. That is passed on as it is, for
it is what a diagnosis is to find (``numbers_in``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from gradkit.core import introspection
from gradkit.core.errors import GradkitError
from gradkit.core.introspection import mapping_items, one_line
from gradkit.load.signatures import Accepts, accepts, expectation
from gradkit.load.specs import as_script
from gradkit.source.faults import on_behalf

_TARGETS = ("labels", "label", "targets", "target", "y", "y_true", "ground_truth", "gt")


class ModelCall:
    """One forward pass of a model on a batch, then the loss. Calling it returns the loss.

    Args:
        model: any module.
        batch: what it is called on, by the table above.
        loss: a function or module; None if the model gives its own loss.
        folder: where the user's file lies, for imports that its code makes late; ``""`` if there is none.

    Raises:
        GradkitError: when called, if what comes out is no loss.

    Example:
        >>> pair = torch.ones(4, 3), torch.zeros(4, dtype=torch.long)
        >>> ModelCall(nn.Linear(3, 2), pair, nn.CrossEntropyLoss())().shape
        torch.Size([])
    """

    def __init__(self, model: nn.Module, batch: object, loss: Callable[..., Any] | None, folder: str = "") -> None:
        self.model, self.batch, self.loss, self.folder = model, batch, loss, folder
        wants = accepts(loss) if loss is not None else Accepts((), (), (), (), False, False)
        second = wants.positional[1] if len(wants.positional) > 1 else ""
        self._alone = loss is not None and len(wants.positional) == 1 and not wants.any_number
        self._targets = second.lower() in _TARGETS
        self._arguments, self._keywords, self._target = _plan(model, batch, loss is not None, self._targets)

    @on_behalf
    def __call__(self) -> object:
        """The loss of one forward pass: a tensor, or the numbers or None that the loss function returned."""
        with as_script(self.folder):
            return self._run()

    @on_behalf
    def _run(self) -> object:
        output = self.model(*self._arguments, **self._keywords)
        if self.loss is None:
            return own_loss(output, self.model)
        second = self._target if self._targets else self.batch
        value = loss_in(self.loss(output) if self._alone else self.loss(output, second))
        if value is None or numbers_in(value) is not None:
            return value
        return as_loss(value, introspection.ask(self.loss, "__name__", type(self.loss).__name__))


@dataclass(frozen=True)
class StepCall:
    """A user's step; calling it returns its loss, or whatever else it returned: it may call ``backward()`` itself."""

    step: Callable[[], object]
    name: str
    folder: str = ""

    @on_behalf
    def __call__(self) -> object:
        """Run the step once."""
        with as_script(self.folder):
            value = self.step()
        return loss_in(value)


def loss_in(value: object) -> object:
    """What of a step's return value is its loss; the value itself if that cannot be told.

    It is the tensor or the number that an output holds as ``loss``, and the one scalar in a tuple: of several, the one
    that requires grad.

    Example:
        >>> loss_in((torch.tensor(2.0), torch.ones(3))), loss_in({"loss": 0.5}), loss_in("none")
        (tensor(2.), 0.5, 'none')
    """
    if introspection.is_a(value, torch.Tensor):
        return value
    held = _held(value)
    if introspection.is_a(held, torch.Tensor) or numbers_in(held) is not None:
        return held
    scalars = _scalars(value)
    live = [one for one in scalars if one.requires_grad]
    return next((found[0] for found in (live, scalars) if len(found) == 1), value)


def _scalars(value: object) -> list[torch.Tensor]:
    parts = introspection.entries(value) if introspection.is_a(value, tuple) else []
    tensors = (one for one in parts if introspection.is_a(one, torch.Tensor))
    return [one for one in tensors if one.numel() == 1 and one.is_floating_point()]


def numbers_in(value: object, depth: int = 8) -> list[Any] | None:
    """The numbers and arrays that something consists of; None if it consists of anything else, or of nothing.

    Args:
        depth: how many lists may lie in each other.

    Example:
        >>> numbers_in(0.5), numbers_in([1, [2.0]]), numbers_in(True), numbers_in(["a"]), numbers_in([])
        ([0.5], [1, 2.0], None, None, None)
    """
    if introspection.is_a(value, (list, tuple)):
        parts = [numbers_in(one, depth - 1) for one in introspection.entries(value)] if depth else []
        return [one for part in parts if part for one in part] if parts and all(parts) else None
    if introspection.is_a(value, np.ndarray):
        return [value] if value.dtype.kind in "iuf" and value.size else None
    number = introspection.is_a(value, (int, float, np.integer, np.floating)) and not introspection.is_a(value, bool)
    return [value] if number else None


def own_loss(output: object, model: nn.Module) -> torch.Tensor:
    """The loss that a model's output holds: ``output.loss``, ``output["loss"]``, or the output if it has one element.

    Raises:
        GradkitError: it holds none.
    """
    loss = _inside(output)
    if loss is None and introspection.is_a(output, torch.Tensor) and output.numel() == 1:
        loss = output
    if loss is None:
        raise GradkitError("no_loss", got=one_line(output), expects=expectation(model))
    return loss


def as_loss(value: object, name: str) -> torch.Tensor:
    """What a step or a loss function returned, as a tensor of any shape.

    Raises:
        GradkitError: it is no tensor, and holds none under ``loss``.

    Example:
        >>> as_loss({"loss": torch.tensor(2.0)}, "step")
        tensor(2.)
    """
    loss = value if introspection.is_a(value, torch.Tensor) else _inside(value)
    if loss is None:
        raise GradkitError("nothing_returned" if value is None else "no_tensor", name=name, got=one_line(value))
    return loss


def _inside(output: object) -> torch.Tensor | None:
    loss = _held(output)
    return loss if introspection.is_a(loss, torch.Tensor) else None


def _held(output: object) -> object:
    """What an output holds under ``loss``, None if nothing."""
    if introspection.is_a(output, dict):
        return dict(introspection.items(output)).get("loss")
    return output.get("loss") if introspection.is_mapping(output) else introspection.ask(output, "loss")


_Plan = tuple[tuple[Any, ...], dict[str, Any], Any]


def _plan(model: nn.Module, batch: Any, has_loss: bool, targets: bool) -> _Plan:
    """Arguments, keywords, and the target if the loss wants one."""
    forward = accepts(model)
    if batch is None:
        return (), {}, None
    if introspection.is_mapping(batch):
        return _plan_mapping(forward, batch, has_loss)
    if introspection.is_a(batch, (list, tuple)) and not introspection.is_a(batch, (PackedSequence, torch.Size)):
        return _plan_items(forward, batch, has_loss, targets)
    return (batch,), {}, batch


def _plan_mapping(forward: Accepts, batch: Mapping[Any, Any], has_loss: bool) -> _Plan:
    keys = dict(mapping_items(batch))
    taken = [key for key in keys if forward.any_keyword or key in forward.names]
    spare = [key for key in keys if key not in forward.names]
    named = [key for key in _TARGETS if key in keys]
    target = keys[spare[0]] if len(spare) == 1 else keys[named[0]] if named else batch
    missing = [name for name in forward.required if name not in keys]
    whole = len(missing) == 1 if forward.required else not taken and len(forward.positional) == 1
    if keys and whole and len(forward.required) <= 1 and not set(missing) & set(forward.tensors):
        return (batch,), {}, target
    keep = taken if has_loss and not missing else list(keys)
    return (), {str(key): keys[key] for key in keep}, target


def _plan_items(forward: Accepts, batch: Any, has_loss: bool, targets: bool) -> _Plan:
    held = introspection.entries(batch)
    most = float("inf") if forward.any_number else len(forward.positional)
    least, count = len([name for name in forward.positional if name in forward.required]), len(held)
    if forward.required == ("batch",) or (not has_loss and most == 1 and count > 1):
        return (batch,), {}, held[-1] if held else batch
    if count > 1 and (targets or (has_loss and count > most)):
        inputs = held[:-1]
        nested = inputs[0]
        if len(inputs) == 1 and introspection.is_mapping(nested):
            return (), {str(key): one for key, one in mapping_items(nested)}, held[-1]
        if len(inputs) == 1 and introspection.is_a(nested, (list, tuple)) and least > 1:
            return tuple(introspection.entries(nested)), {}, held[-1]
        return tuple(inputs), {}, held[-1]
    return tuple(held), {}, batch
