"""A model, a loss and a step out of the texts that ``load.from_spec`` takes; a loss also from an expression."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from gradkit.core.errors import GradkitError
from gradkit.core.introspection import one_line
from gradkit.load import adapters, specs
from gradkit.load.batches import load_batch
from gradkit.load.signatures import accepts
from gradkit.state.reachable import model_of, modules_of
from gradkit.witness.listening import listening

FILE = "loss expression"
"""Under this name the lines of an expression are found in a report."""

_WORD = re.compile(r"[^\W\d]\w*")
NAMES = tuple(
    sorted(
        name
        for name in dir(functional)
        if name.endswith(("_loss", "cross_entropy", "_with_logits", "kl_div")) and not name.startswith("_")
    )
)


def is_text(text: str) -> bool:
    """Whether a text says a loss by itself, rather than naming one in a file.

    Example:
        >>> is_text("cross_entropy"), is_text("MSELoss"), is_text("output.square().mean()"), is_text("train.py:loss")
        (True, True, True, False)
    """
    text = text.strip()
    return _of_torch(text) is not None or (not _WORD.fullmatch(text) and _expression(text) is not None)


def build_expression(text: str) -> Callable[..., Any]:
    """The loss that a text says.

    Args:
        text: ``"cross_entropy"``, ``"CrossEntropyLoss"`` (called with output and targets), or an expression in which
            ``output``, ``batch``, ``torch``, ``nn`` and ``F`` are known.

    Raises:
        GradkitError: it is neither (``bad_loss_text``).

    Example:
        >>> build_expression("output.square().mean()")(torch.full((2,), 3.0), None)
        tensor(9.)
    """
    text = text.strip()
    known = _of_torch(text)
    if known is not None:
        return known
    tree = _expression(text)
    if tree is None:
        raise GradkitError("bad_loss_text", text=text)
    linecache.cache[FILE] = (len(text), None, [f"{text}\n"], FILE)
    code = compile(tree, FILE, "eval")
    names = {"torch": torch, "nn": nn, "F": functional}

    def loss(output: Any, batch: Any) -> Any:
        return eval(code, {**names, "output": output, "batch": batch})  # noqa: S307  the person's own line, in their own kernel

    return loss


def _of_torch(text: str) -> Callable[..., Any] | None:
    if text in NAMES:
        found: Callable[..., Any] = getattr(functional, text)
        return found
    kind = getattr(nn, text, None) if text.endswith("Loss") else None
    return kind() if isinstance(kind, type) and issubclass(kind, nn.Module) else None


def _expression(text: str) -> ast.Expression | None:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return tree if "output" in names or "batch" in names else None


Text = str | os.PathLike[str]
_BUILDER = re.compile(r"_?(make|build|create|get|setup|set_up)(_|$)")


@dataclass(frozen=True)
class Built:
    """Something that was built from a spec: the value, what to call it, its file and the folder it runs in."""

    value: Any
    label: str
    file: str = ""
    folder: str = ""


def build_model(
    spec: object, adapter: Text | None = None, weights: Text | None = None, is_trainable: bool | None = None
) -> Built | None:
    """A model from a spec, a folder or an object, with a state dict and an adapter loaded; None if nothing is given.

    Raises:
        GradkitError: what the spec names is no model and builds none, or the files do not fit.
    """
    built = _bare_model(spec)
    if weights is not None:
        if built is None:
            raise GradkitError("weights_without_model", path=weights)
        adapters.load_weights(built.value, Path(weights))
    if adapter is not None:
        with listening():
            model = adapters.load_adapter(built.value if built else None, Path(adapter), is_trainable=is_trainable)
        built = Built(model, *((built.label, built.file, built.folder) if built else (Path(adapter).name,)))
    return built


def build_loss(spec: object) -> Callable[..., Any] | None:
    """A loss from a spec or an object: a function of (output, ...) as it is, a class or a builder called."""
    if spec is None:
        return None
    if isinstance(spec, str) and is_text(spec):
        return build_expression(spec)
    found = _found(spec)
    loss = found.value
    wants = accepts(loss) if callable(loss) else None
    if isinstance(loss, type) or (specs.is_function(loss) and wants and not wants.positional and not wants.any_number):
        loss = specs.call_spec(found)
    if not callable(loss):
        raise GradkitError("not_callable", name=found.label, got=one_line(loss))
    return loss


def build_step(spec: object, model: nn.Module | None, batch: object) -> tuple[Built, nn.Module]:
    """A step without arguments, and its model.

    Args:
        spec: a step; a function of ``model`` and / or ``batch``; a builder of a ``(model, step)`` pair, or such a pair.
        model: the model, if it is known from elsewhere.
        batch: what ``load_batch`` takes, for a step that wants one.

    Raises:
        GradkitError: it is no such thing, or the model cannot be told, or the step uses another instance of it.
    """
    found = _found(spec)
    step = found.value
    wants = accepts(step).required if callable(step) else ()
    if wants:
        step = _filled(found, wants, model, batch)
    elif callable(step) and model is None and _is_builder(step):
        step = specs.call_spec(found)
    if isinstance(step, tuple) and len(step) == 2:
        model, step = step if isinstance(step[0], nn.Module) else (step[1], step[0])
    if isinstance(step, torch.Tensor):
        step, model = found.value, model_of(found.value, found.label)
    if not callable(step) or isinstance(step, nn.Module) or not isinstance(model, (nn.Module, type(None))):
        raise GradkitError("no_step", name=found.label, got=one_line(step))
    if model is None:
        model = model_of(step, found.label)
    elif isinstance(spec, str) and _uses_another(step, model):
        raise GradkitError("model_not_in_step", name=found.label, model=type(model).__name__)
    return Built(step, found.label, found.file, found.folder), model


def _bare_model(spec: object) -> Built | None:
    if spec is None:
        return None
    if isinstance(spec, (str, os.PathLike)) and os.path.isdir(spec):
        with listening():
            return Built(adapters.load_pretrained(Path(spec)), Path(spec).name)
    found = _found(spec)
    value = specs.call_spec(found) if specs.is_function(found.value) else found.value
    if not isinstance(value, nn.Module):
        raise GradkitError("not_a_module", name=found.label, got=one_line(value))
    return Built(value, found.label, found.file, found.folder)


def _found(spec: object) -> specs.Found:
    if isinstance(spec, (str, os.PathLike)):
        return specs.find_spec(os.fsdecode(spec))
    return specs.as_found(spec)


def _filled(found: specs.Found, wants: tuple[str, ...], model: nn.Module | None, batch: object) -> Callable[[], object]:
    given: dict[str, object] = {} if model is None else {"model": model}
    if batch is not None:
        device = next((one.device for one in model.parameters()), "cpu") if model is not None else "cpu"
        given["batch"] = load_batch(batch, device=device)
    if not set(wants) <= set(given):
        raise GradkitError("step_needs_arguments", name=found.label, arguments=", ".join(wants))
    assert callable(found.value)
    return functools.partial(found.value, **{name: given[name] for name in wants})


def _is_builder(function: object) -> bool:
    """Whether a function of no arguments makes a step, rather than being one: nothing that it uses is a model yet."""
    if isinstance(getattr(function, "model", None), nn.Module):
        return False
    return not modules_of(function) or bool(_BUILDER.match(getattr(function, "__name__", "")))


def _uses_another(step: object, model: nn.Module) -> bool:
    used = modules_of(step)
    family = {id(one) for one in model.modules()}
    return bool(used) and not any(id(one) in family or any(part is model for part in one.modules()) for one in used)
