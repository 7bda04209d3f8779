"""The kinds of pass that are measured: a plain one, and what different tools make of it."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import gradkit
from gradkit.tracing.tracer import Tracer

Inputs = tuple[torch.Tensor, ...]
PEERS = ("torchlens", "torchview", "torchvista")


class Bare(TorchFunctionMode):
    """The least that a tracer has to do: note each call, its line, requires_grad and the grad mode."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Any, ...]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry the call out."""
        frame = sys._getframe(1)
        result = func(*args, **(kwargs or {}))
        wants = getattr(result, "requires_grad", None)
        self.rows.append((func, frame.f_code, frame.f_lasti, wants, torch.is_grad_enabled()))
        return result


def plain(model: nn.Module, inputs: Inputs) -> object:
    """A forward pass with its loss."""
    return model(*inputs)


def mode(model: nn.Module, inputs: Inputs) -> object:
    """The same under a bare function mode."""
    with Bare():
        return model(*inputs)


def traced(model: nn.Module, inputs: Inputs) -> object:
    """The same as a diagnosis traces it, with a new tracer for each."""
    return Tracer(model).run(lambda: model(*inputs))


def backward(model: nn.Module, inputs: Inputs) -> object:
    """A forward pass and a backward pass, for comparison: a diagnosis has to make both."""
    model(*inputs).backward()
    model.zero_grad()
    return None


def diagnose(model: nn.Module, inputs: Inputs) -> object:
    """A whole diagnosis."""
    return gradkit.diagnose(lambda: model(*inputs), model=model)


def torchlens(model: nn.Module, inputs: Inputs) -> object:
    """TorchLens' trace of a forward pass."""
    import torchlens as tool

    return tool.trace(model, list(inputs))


def torchview(model: nn.Module, inputs: Inputs) -> object:
    """torchview's graph of a forward pass, which it runs under no_grad."""
    import torchview as tool

    return tool.draw_graph(model, input_data=list(inputs), device=inputs[0].device)


def torchvista(model: nn.Module, inputs: Inputs) -> object:
    """torchvista's page of a forward pass, which it runs under no_grad."""
    import torchvista as tool

    with tempfile.TemporaryDirectory() as folder:
        return tool.trace_model(model, inputs, export_format="html", export_path=f"{folder}/page.html")


KINDS: dict[str, Callable[[nn.Module, Inputs], object]] = {
    "plain": plain, "mode": mode, "traced": traced, "backward": backward, "diagnose": diagnose,
    "torchlens": torchlens, "torchview": torchview, "torchvista": torchvista,
}  # fmt: skip


def missing(kind: str) -> bool:
    """Whether a kind needs a peer that is not installed."""
    return kind in PEERS and importlib.util.find_spec(kind) is None
