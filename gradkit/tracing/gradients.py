"""Gradients as values of a run: what a ``.grad`` holds that is read, and what a hook of backward is handed.

No function mode hears how backward makes them. Each becomes what a call of its own makes, ``operations.FILLED``, of the
losses that backward began from: where a ``.grad`` is read, or where backward was called.
Sources: https://pytorch.org/docs/stable/notes/autograd.html#backward-hooks-execution,
https://github.com/pytorch/pytorch/blob/main/torch/utils/hooks.py
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, cast

import torch
from torch import overrides
from torch.overrides import TorchFunctionMode
from torch.utils import hooks

from gradkit.core import patches
from gradkit.core.operations import FILLED
from gradkit.core.trace import Chain
from gradkit.source.faults import on_behalf
from gradkit.state.preserve import TENSOR_HOOKS
from gradkit.tracing.ledger import Ledger, leaves


class Gradients:
    """Knows which losses the gradients of a run come from.

    Args:
        ledger: numbers the tensors of the run.
        record: called with (name, gradient, numbers of the losses, frame) to enter the call that makes it; returns
            the number of the gradient.
        mode: returns what hears torch's calls; None if that is gone.

    Attributes:
        walks: the backwards that are running now, the innermost last: number of the loss, and the user's frames.
    """

    def __init__(
        self,
        ledger: Ledger,
        record: Callable[[str, torch.Tensor, tuple[int, ...], FrameType], int],
        mode: Callable[[], TorchFunctionMode | None],
    ) -> None:
        self._ledger, self._record, self._mode = ledger, record, mode
        self._leaves: dict[int, tuple[weakref.ref[torch.Tensor], tuple[int, ...]]] = {}
        self._nodes: list[tuple[int, frozenset[int]]] = []
        self._entered: set[int] = set()
        self._hooked = self._listens = False
        self.walks: list[tuple[int, Chain]] = []

    @contextlib.contextmanager
    def walking(self, loss: int, chain: Chain, into: Iterable[torch.Tensor]) -> Iterator[None]:
        """Held around a backward of the loss with this number, which the user's frames ``chain`` have called.

        Where there are hooks, what they compute is heard. ``into``: the leaves that the backward comes to.
        """
        before, self._listens = self._listens, self._hooked or _have_hooks(into)
        self.walks.append((loss, chain))
        try:
            yield
        finally:
            self.walks.pop()
            self._listens = before

    def filled(self, loss: int, into: Iterable[torch.Tensor], nodes: frozenset[int]) -> None:
        """A backward of a loss has come to these leaves, over the nodes with these sequence numbers."""
        for leaf in into:
            self._leaves[id(leaf)] = (weakref.ref(leaf), (*self._from(leaf), loss))
        self._nodes.append((loss, nodes))

    def read(self, tensor: torch.Tensor, grad: torch.Tensor | None, frame: FrameType) -> None:
        """The user's code has read the ``.grad`` of a tensor; one that was written in place since is another value."""
        known = self._ledger.known(grad) if grad is not None else None
        if grad is None or (known is not None and known not in self._entered):
            return
        node = -1 if tensor.grad_fn is None else tensor.grad_fn._sequence_nr()
        losses = self._from(tensor) or tuple(loss for loss, nodes in self._nodes if node in nodes)
        if losses:
            self._enter(grad, losses, frame)

    def listen(self, tensor: torch.Tensor) -> None:
        """A hook is about to be put on a tensor: what that will be handed is a gradient."""
        if tensor.requires_grad:
            self._hooked = True
            patches.later(tensor.register_hook(self._handed).remove)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """While the block runs, hooks are heard: what those of modules are handed, and what any of them computes."""
        original, run = hooks.BackwardHook.__init__, getattr(torch.autograd, "_engine_run_backward", None)

        @on_behalf
        def init(hook: Any, module: Any, of_users: Any, before: Any) -> None:
            self._hooked, first = True, [self._handed] if of_users else []
            original(hook, module, [*first, *of_users], [self._handed, *before] if before else before)

        @on_behalf
        def engine(*args: Any, **kwargs: Any) -> Any:
            with self._hear() if self._listens else contextlib.nullcontext():
                return run(*args, **kwargs)  # type: ignore[misc]  # it is put in the place of one

        with patches.undone():
            if run is not None:
                patches.replace(torch.autograd, "_engine_run_backward", engine)
            patches.replace(hooks.BackwardHook, "__init__", init)
            yield

    def _handed(self, *given: Any) -> None:
        """A hook of ours, called before the user's, with what theirs is handed."""
        for grad in leaves(given) if self.walks else ():
            if isinstance(grad, torch.Tensor) and self._ledger.known(grad) is None:
                self._enter(grad, (self.walks[-1][0],), sys._getframe(1))

    def _hear(self) -> AbstractContextManager[object]:
        """Hear on inside of a call that was heard itself, for which torch has set the mode aside."""
        mode, heard = self._mode(), cast(Any, overrides)._get_current_function_mode_stack()  # noqa: SLF001
        return contextlib.nullcontext() if mode is None or mode in heard else mode

    def _from(self, leaf: torch.Tensor) -> tuple[int, ...]:
        known = self._leaves.get(id(leaf))
        return known[1] if known is not None and known[0]() is leaf else ()

    def _enter(self, grad: torch.Tensor, losses: tuple[int, ...], frame: FrameType) -> None:
        self._entered.add(self._record(FILLED, grad, tuple(dict.fromkeys(losses)), frame))


def _have_hooks(tensors: Iterable[torch.Tensor]) -> bool:
    return any(getattr(one, table, None) for one in tensors for table in TENSOR_HOOKS)
