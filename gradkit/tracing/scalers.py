"""How a step uses its gradient scaler: what is scaled, what is not, and who takes gradients that are still scaled.

The methods of ``torch.amp.GradScaler`` are wrapped while a run lasts.
Source of the right order: https://pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.amp import GradScaler
from torch.nn.utils import clip_grad

from gradkit.core import introspection, patches
from gradkit.core.trace import Chain
from gradkit.source import frames
from gradkit.source.faults import on_behalf
from gradkit.tracing.autograd_graph import leaf_of
from gradkit.tracing.backward import nodes_of

PLAIN_BACKWARD, PLAIN_STEP, EARLY_CLIP = "plain_backward", "plain_step", "early_clip"
_SCALED, _PLAIN, _UNSCALED = "scaled", "plain", "unscaled"


@dataclass(frozen=True)
class Misuse:
    """A gradient scaler out of order.

    Attributes:
        kind: ``"plain_backward"`` (a loss that was not scaled, whose gradients the scaler then divides),
            ``"plain_step"`` (an optimizer steps with scaled gradients) or ``"early_clip"`` (they are clipped scaled).
        chain: the user's frames there, innermost first.
    """

    kind: str
    chain: Chain


class Scalers:
    """Hears what a run does with gradient scalers.

    Args:
        stop: the code object at which the user's frames end.

    Attributes:
        found: what was out of order, in the order of the run.
        last: the user's frames where each method was last called, of those that were.
    """

    def __init__(self, stop: CodeType) -> None:
        self.found: dict[Misuse, None] = {}
        self.last: dict[str, Chain] = {}
        self._stop = stop
        self._scaled: list[torch.Tensor] = []
        self._state = ""
        self._backward: Chain = ()
        self._leaves: set[int] = set()
        self._inside = 0

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """While the block runs, every ``GradScaler`` reports to this object."""
        with patches.undone():
            patches.later(self._scaled.clear)
            for name in ("scale", "unscale_", "step", "update"):
                patches.replace(GradScaler, name, self._wrapped(name, vars(GradScaler)[name]))
            yield

    def backward(self, losses: Sequence[torch.Tensor], frame: FrameType) -> None:
        """A backward of the step's own begins."""
        nodes = [node for loss in losses for node in nodes_of(loss)] if self._scaled else []
        behind = {id(node) for node in nodes}
        self._state = _SCALED if any(id(one.grad_fn) in behind for one in self._scaled) else _PLAIN
        self._leaves = {id(one) for node in nodes if (one := leaf_of(node)) is not None}
        self._backward = frames.chain(frame, self._stop)

    def stepped(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        """An optimizer is about to step."""
        if not self._inside and self._holds_scaled(p for group in optimizer.param_groups for p in group["params"]):
            self._note(PLAIN_STEP, frames.chain(frame, self._stop))

    def switched(self, frame: FrameType) -> None:
        """Grad mode is about to be switched; ``torch.nn.utils.clip_grad_norm_`` and its like begin with that."""
        if frame.f_code.co_filename != clip_grad.__file__ or self._state != _SCALED:
            return
        given = [*frame.f_locals.get("args", ()), *frame.f_locals.get("kwargs", {}).values()][:1]
        if self._holds_scaled(
            x for one in given if introspection.is_a(one, (torch.Tensor, list, tuple)) for x in _tensors(one)
        ):
            self._note(EARLY_CLIP, frames.chain(frame, self._stop))

    def _holds_scaled(self, parameters: Iterable[Any]) -> bool:
        return self._state == _SCALED and any(id(p) in self._leaves and p.grad is not None for p in parameters)

    def _note(self, kind: str, chain: Chain) -> None:
        if chain:
            self.found.setdefault(Misuse(kind, chain))

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @on_behalf
        def method(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            if name in ("unscale_", "step") and scaler.is_enabled() and not self._inside:
                if self._state == _PLAIN:
                    self._note(PLAIN_BACKWARD, self._backward)
                self._state = _UNSCALED if name == "unscale_" else self._state
            if name != "scale" and not self._inside:
                self.last[name] = frames.chain(sys._getframe(1), self._stop)
            self._inside += 1
            try:
                result = original(scaler, *args, **kwargs)
            finally:
                self._inside -= 1
            if name == "scale" and scaler.is_enabled():
                self._scaled += [x for x in _tensors(result) if x.grad_fn is not None]
            if name in ("step", "update") and not self._inside:
                self._state = ""
            return result

        return method


def _tensors(made: Any) -> list[torch.Tensor]:
    if introspection.is_a(made, torch.Tensor):
        return [made]
    return [x for x in introspection.entries(made) if introspection.is_a(x, torch.Tensor)]
