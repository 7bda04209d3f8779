"""Put back everything that a run could change.

``Preserved`` is a context manager around all runs of one diagnosis. It remembers by reference wherever it can (a
module's dictionaries, the ``.grad`` tensors themselves) and copies only what is written in place: buffers always (they
are small, and BatchNorm writes them unseen), parameters and other tensors at their first write, told by the tracer.
"""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.autograd import grad_mode
from torch.nn.parameter import is_lazy

from gradkit.core import introspection, patches, turns
from gradkit.core.tensors import bits, has_no_numbers, inner, is_hollow
from gradkit.state import iterators, process, reachable, registered
from gradkit.state.restore import Back, restorer

T = TypeVar("T")


class Preserved:
    """Everything as it was before, also after an exception or Ctrl-C.

    Covers the model, the random state and modes of the process, and all that ``everything_reachable`` finds from the
    step on: other modules, optimizers and schedulers, random generators, containers, objects of the user's, names, data
    that was begun. ``docs/no_trace.md`` says it in full, and what is not covered.

    Args:
        model: the model.
        step: the step that is going to be run; None if only the model is to be put back.
        tell: called with ``"waiting"`` if another diagnosis has to come to its end first.

    Attributes:
        parameters: the model's parameters by name, as they were: a step may put others in their place.
        left: what was raised by what could not be put back.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
        >>> with Preserved(model):
        ...     _ = model(torch.randn(4, 2)).sum().backward()
        >>> model[0].running_mean.tolist(), model[0].weight.grad
        ([0.0, 0.0], None)
    """

    def __init__(self, model: nn.Module, step: object = None, tell: Callable[[str], None] | None = None) -> None:
        self.model, self.step = model, step
        self.parameters: dict[str, nn.Parameter] = {}
        self.left: list[Exception] = []
        self._tell = tell
        self._around: list[Back] = []
        self._tapes: iterators.ReplayedIterators | None = None
        self._mark, self._over = -1, False
        self._memory: dict[int, _Memory] = {}
        self._contents: dict[int, tuple[torch.Tensor, torch.Tensor, Back]] = {}
        self._leaves: dict[int, _Leaf] = {}
        self._cleared: set[int] = set()
        self._modules: dict[int, nn.Module] = {}
        self._reached: dict[int, tuple[Any, Back | None]] = {}

    def during(self, body: Callable[[], T]) -> T:
        """Call ``body`` and put everything back, whatever it raises, and whenever Ctrl-C comes.

        A ``with`` block does the same but for an interrupt in the very moment at which it ends.

        Example:
            >>> model = nn.Linear(2, 1)
            >>> Preserved(model).during(lambda: model(torch.ones(1, 2)).sum().backward())
            >>> model.weight.grad is None
            True
        """
        try:
            try:
                self._begin()
                return body()
            finally:
                patches.insist(self._end)
        finally:
            if not self._over or patches.are_held():
                patches.insist(self._end)

    def __enter__(self) -> Preserved:
        try:
            self._begin()
        except BaseException:
            patches.insist(self._end)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        patches.insist(self._end)

    def _begin(self) -> None:
        turns.take(self, self._tell)
        self._mark = patches.depth()
        self._around = process.remember_process()
        self.parameters = dict(registered.parameters(self.model, twice=True))
        self.reach(self.step, self.model)
        self.watch(self.model)
        self._tapes = iterators.ReplayedIterators((thing for thing, _ in list(self._reached.values())), self.reach)
        self._tapes.start()

    def _end(self) -> None:
        if self._over:
            return
        if self._mark >= 0:
            errors = patches.undo(self._mark) + self._put_back()
            if self._tapes is not None:
                _attempt(self._tapes.end, errors)
            for leaf in self._leaves.values():
                _attempt(leaf.restore_grad, errors)
            self.left = errors
        turns.give(self)
        self._over = True
        self._forget()

    def _forget(self) -> None:
        """All is as it was: nothing of the user's is to live on because of it."""
        for table in (self._memory, self._contents, self._leaves, self._reached):
            table.clear()
        self._around.clear()
        self._tapes = None

    @property
    def modules(self) -> list[nn.Module]:
        """Every module seen: the model's, and those that a step ran beside it."""
        return list(self._modules.values())

    # -- what to remember ---------------------------------------------------------------------------------------

    def reach(self, *roots: Any) -> None:
        """Remember whatever can be reached from here, unless already known."""
        for thing in reachable.everything_reachable(*roots):
            if id(thing) not in self._reached:
                self._reached[id(thing)] = thing, restorer(thing, reachable.is_kept(thing))
                if introspection.is_a(thing, torch.Tensor) and isinstance(thing, nn.Parameter):
                    self._leaf(thing)

    def watch(self, root: nn.Module) -> None:
        """Remember a module that runs, and all below it, unless already known."""
        if id(root) not in self._reached:
            self.reach(root)
        for module in registered.each(root):
            if id(module) in self._modules:
                continue
            self._modules[id(module)] = module
            for parameter in module._parameters.values():
                if parameter is not None:
                    self.leaf(parameter)
            for buffer in module._buffers.values():
                if buffer is not None and not is_lazy(buffer):
                    self.before_write(buffer)

    def leaf(self, tensor: torch.Tensor) -> None:
        """Remember a leaf before a backward fills it; its gradient is one of those that are cleared."""
        self._leaf(tensor)
        self._cleared.add(id(tensor))

    def _leaf(self, tensor: torch.Tensor) -> None:
        """Remember a leaf's memory, ``.grad``, flag and hooks."""
        if id(tensor) not in self._leaves and not is_lazy(tensor):
            self._leaves[id(tensor)] = _Leaf(tensor)
            self._remember_memory(tensor)

    def before_write(self, tensor: torch.Tensor) -> None:
        """Copy a tensor that is about to be written in place, unless already copied."""
        for part in inner(tensor):
            self.before_write(part)
        if id(tensor) not in self._contents and not inner(tensor):
            self._remember_memory(tensor)
            copy = tensor.detach() if is_hollow(tensor) else tensor.detach().clone()
            self._contents[id(tensor)] = (tensor, copy, _count_of_writes(tensor))

    def _remember_memory(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._memory and not inner(tensor):
            self._memory[id(tensor)] = _Memory(tensor)

    def optimizer(self, optimizer: Any) -> None:
        """Remember an optimizer's state and settings, before it steps; of one that wraps others, theirs."""
        if id(optimizer) not in self._reached:
            self.reach(optimizer)

    # -- putting back -------------------------------------------------------------------------------------------

    def rewind(self) -> list[Exception]:
        """Put back all but the model's gradients, for another run of the same step. Returns what could not be."""
        errors = self._put_back()
        if self._tapes is not None:
            self._tapes.start()
        return errors

    def rewind_data(self) -> None:
        """Let data that was begun hand out the same once more, as it came, for a step that follows another one.

        Nothing else is put back: a generator would move on by what each of several steps takes.
        """
        if self._tapes is None:
            return
        for thing in reachable.everything_reachable(*self._tapes.handed_out()):
            _, back = self._reached.get(id(thing), (None, None))
            if back is not None:
                _attempt(back, [])
            if (contents := self._contents.get(id(thing))) is not None:
                _attempt(partial(_restore_contents, *contents), [])
        self._tapes.start()

    def _put_back(self) -> list[Exception]:
        errors: list[Exception] = []
        for back in self._around[1:]:
            _attempt(back, errors)
        for memory in self._memory.values():
            _attempt(memory.restore_size, errors)
        for _, known in self._reached.values():
            if known is not None:
                _attempt(known, errors)
        for memory in self._memory.values():
            _attempt(memory.restore, errors)
        for contents in reversed(self._contents.values()):
            _attempt(partial(_restore_contents, *contents), errors)
        own = {id(parameter) for parameter in self.parameters.values()}
        for key, leaf in self._leaves.items():
            _attempt(leaf.restore_flags, errors)
            if key not in own:
                _attempt(leaf.restore_grad, errors)
        for back in self._around[:1]:
            _attempt(back, errors)
        return errors

    def clear_grads(self, *, only_old: bool = False, only_own: bool = False) -> None:
        """Take gradients away, so that a backward starts from nothing: the model's, and those of whatever has run.

        Args:
            only_old: leave those that came into being since.
            only_own: leave those of other models, which a step may look at.
        """
        cleared = {id(parameter) for parameter in self.parameters.values()} if only_own else self._cleared
        for key, leaf in self._leaves.items():
            if key in cleared and (not only_old or grad_of(leaf.tensor) is leaf.grad):
                leaf.tensor.grad = None


def grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The ``.grad`` of a parameter, also where something that is no leaf was put in its place: torch warns of that.

    Example:
        >>> grad_of(torch.ones(1, requires_grad=True) * 2) is None
        True
    """
    if tensor.is_leaf or tensor.retains_grad:
        return tensor.grad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensor.grad


class _Leaf:
    """A leaf tensor with its gradient, flag and hooks as they were."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.grad, self.flag = tensor, grad_of(tensor), tensor.requires_grad
        self.hooks = {name: _copy(getattr(tensor, name, None)) for name in TENSOR_HOOKS}

    def restore_grad(self) -> None:
        if grad_of(self.tensor) is not self.grad:
            self.tensor.grad = self.grad

    def restore_flags(self) -> None:
        if self.tensor.requires_grad is not self.flag and self.tensor.is_leaf:
            self.tensor.requires_grad_(self.flag)
        for name, hooks in self.hooks.items():
            if dict(getattr(self.tensor, name, None) or {}) != (hooks or {}):
                setattr(self.tensor, name, None if hooks is None else OrderedDict(hooks))


TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _copy(hooks: Any) -> dict[Any, Any] | None:
    return None if hooks is None else dict(hooks)


def _attempt(back: Callable[[], object], errors: list[Exception]) -> None:
    """One part that cannot be put back must not keep the others from it."""
    try:
        back()
    except Exception as error:  # noqa: BLE001
        errors.append(error)


class _Memory:
    """The memory of a tensor as it was: which, and how much of it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.alias = tensor, tensor.detach()
        self._storage = _storage(self.alias)
        self._size = self._storage.nbytes() if self._storage is not None else 0

    def restore_size(self) -> None:
        """Undo ``storage.resize_()``."""
        if self._storage is not None and self._storage.nbytes() != self._size:
            self._storage.resize_(self._size)

    def restore(self) -> None:
        """Undo ``p.data = ...``, ``.to(dtype)``, ``set_`` and ``resize_``: the tensor gets its own memory back."""
        now, alias = self.tensor, self.alias
        if self._storage is None or now.is_meta or now.layout is not torch.strided:
            return
        alike = now.dtype == alias.dtype and now.shape == alias.shape and now.stride() == alias.stride()
        if not alike or now.data_ptr() != alias.data_ptr():
            now.data = alias


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    if tensor.layout is not torch.strided or (has_no_numbers(tensor) and not is_hollow(tensor)):
        return None
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def _count_of_writes(tensor: torch.Tensor) -> Back:
    """What puts autograd's count of writes back, by which it knows whether a graph may still go backward."""
    if tensor.is_inference():  # none is kept
        return lambda: None
    return grad_mode._unsafe_preserve_version_counter(tensor).__exit__  # noqa: SLF001


def _restore_contents(tensor: torch.Tensor, copy: torch.Tensor, count_back: Back) -> None:
    if not _same(tensor, copy):
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            (tensor if tensor.is_inference() else tensor.data).copy_(copy)
    count_back()


def _same(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    if tensor.is_nested and tensor.layout is torch.strided:
        return all(itertools.starmap(_same, zip(tensor.detach().unbind(), copy.unbind(), strict=False)))
    if has_no_numbers(tensor) or has_no_numbers(copy):
        return True
    if tensor.shape != copy.shape or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    with torch.no_grad(), torch._C.DisableTorchFunction():
        return torch.equal(bits(tensor.detach()), bits(copy))
