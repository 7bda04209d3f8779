"""What becomes of gradients between backward and the optimizer's step: cleared, clipped to zero, or nobody's to take.

An optimizer that finds no gradient in all that it holds passes it over and raises nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradkit.core.trace import Chain
from gradkit.tracing.interventions import Intervention, Moment
from gradkit.tracing.ledger import leaves

CLEARED, CLIPPED, FOREIGN, RATE = "cleared", "clipped", "foreign", "rate"
_CLEARING = frozenset("zero_ fill_ _foreach_zero_ grad=".split())


@dataclass(frozen=True, eq=False)
class Idle:
    """A step of an optimizer that changed nothing.

    Attributes:
        kind: ``"cleared"``, ``"clipped"``: the gradients were there, and are gone or zero; ``"foreign"``: they came to
            parameters that no optimizer holds; ``"rate"``: the learning rate is 0, and no scheduler sets it.
        chain: the user's frames where that was done; of the last two, where the optimizer steps.
        optimizer: the one that stepped.
        names: parameters that were to learn.
    """

    kind: str
    chain: Chain
    optimizer: Optimizer
    names: tuple[str, ...]


class AfterBackward(Intervention):
    """Watches in one run what becomes of the gradients that some optimizers hold, from a backward to their steps.

    Args:
        optimizers: those that may step.
        parameters: the model's, by name.

    Attributes:
        found: the steps that changed nothing.

    Example:
        >>> from gradkit.tracing.tracer import Tracer
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> def step():
        ...     model(torch.ones(1, 2)).sum().backward()
        ...     optimizer.zero_grad()
        ...     optimizer.step()
        >>> after = AfterBackward([optimizer], dict(model.named_parameters()))
        >>> Tracer(model, interventions=[after]).run(step)
        >>> [(one.kind, one.names) for one in after.found]
        [('cleared', ('weight', 'bias'))]
    """

    def __init__(self, optimizers: Iterable[Optimizer], parameters: Mapping[str, torch.Tensor]) -> None:
        self._parameters = dict(parameters)
        self._held = {id(one): one for optimizer in optimizers for one in held_by(optimizer)}
        self._watched = {**self._held, **{id(one): one for one in self._parameters.values()}}
        self._gradients: dict[int, torch.Tensor] | None = None
        self._touched: list[tuple[torch.Tensor, str, Chain]] = []
        self._lost: dict[int, tuple[str, Chain]] = {}
        self._begun, self._stepping, self._thread = False, False, 0
        self._closures: list[Any] = []
        self._chain: Chain = ()
        self.found: list[Idle] = []

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """Hear the steps of all optimizers in this thread."""
        self._thread = threading.get_ident()
        hooks = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._let_go()

    def _let_go(self) -> None:
        """Hold no parameter any longer: who holds one is asked for afterwards."""
        for kept in (self._parameters, self._held, self._watched, self._gradients or {}):
            kept.clear()
        self._touched, self._closures = [], []

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """What was lost before is given anew, or is lost to an earlier step."""
        self._begun, self._gradients = True, None
        self._touched, self._lost = [], {}
        return True

    def may_set(self, moment: Moment, name: str, tensor: torch.Tensor) -> bool:
        """A gradient is replaced, or taken away."""
        if name == "grad=" and self._is_watching() and id(tensor) in self._watched:
            self._gradients = None
            self._touch([tensor], name, moment)
        return True

    def before_write(self, moment: Moment, name: str, targets: Sequence[Any]) -> None:
        """A gradient may be written in place."""
        if not self._is_watching():
            return
        if self._gradients is None:
            filled = (one for one in self._watched.values() if one.grad is not None)
            self._gradients = {_memory(one.grad): one for one in filled}
        written = [one for one in leaves(targets) if isinstance(one, torch.Tensor)]
        self._touch([self._gradients[_memory(one)] for one in written if _memory(one) in self._gradients], name, moment)

    def _is_watching(self) -> bool:
        return self._begun and not self._stepping and threading.get_ident() == self._thread

    def _touch(self, parameters: Sequence[torch.Tensor], name: str, moment: Moment) -> None:
        self._settle()
        alive = [one for one in parameters if _has_gradient(one, finite=True)]
        if alive and not self._is_a_steps_own(moment):
            by_torch = moment.file == clip_grad.__file__
            kind, chain = CLEARED if name in _CLEARING and not by_torch else CLIPPED, moment.chain()
            self._touched = [(one, kind, chain) for one in alive]

    def _is_a_steps_own(self, moment: Moment) -> bool:
        """Whether it is an optimizer's step that writes, and not the closure that it was given."""
        code = getattr(inspect.unwrap(self._closures[-1]), "__code__", None) if self._closures else None
        return code is not None and all(one is not code for one, _ in moment.chain())

    def _settle(self) -> None:
        """What the last write has left."""
        for one, kind, chain in self._touched:
            if not _has_gradient(one):
                self._lost[id(one)] = kind, chain
        self._touched = []

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_watching() and not _closure(args, kwargs):
            self._judge(optimizer)
            self._stepping = True
        elif self._is_watching():
            self._closures.append(_closure(args, kwargs))

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:
            return
        self._stepping = False
        if _closure(args, kwargs) and self._closures:
            self._closures.pop()
        if _closure(args, kwargs) and self._begun:
            self._judge(optimizer)

    def _judge(self, optimizer: Optimizer) -> None:
        self._settle()
        held = [one for one in held_by(optimizer) if one.requires_grad and one.numel()]
        if any(map(_has_gradient, held)):
            if is_at_rest(optimizer) and not any("initial_lr" in group for group in optimizer.param_groups):
                self._note(RATE, (), optimizer, held)
            return
        lost = [one for one in held if id(one) in self._lost]
        if lost:
            kind, chain = self._lost[id(lost[0])]
            self._note(kind, chain, optimizer, lost)
        elif held:
            others = [one for one in self._parameters.values() if id(one) not in self._held and _has_gradient(one)]
            self._note(FOREIGN, (), optimizer, others)

    def _note(self, kind: str, chain: Chain, optimizer: Optimizer, parameters: Sequence[torch.Tensor]) -> None:
        ids = set(map(id, parameters))
        names = tuple(name for name, one in self._parameters.items() if id(one) in ids)
        known = any(one.kind == kind and one.optimizer is optimizer for one in self.found)
        if names and not known:
            self.found.append(Idle(kind, chain, optimizer, names))


def held_by(optimizer: Optimizer) -> list[torch.Tensor]:
    """All parameters that an optimizer holds, in the order of its groups."""
    return [one for group in optimizer.param_groups for one in group["params"]]


def is_at_rest(optimizer: Optimizer) -> bool:
    """Whether the learning rate of every group is 0.

    Example:
        >>> [is_at_rest(torch.optim.SGD([torch.ones(1)], lr=rate)) for rate in (0.0, 0.1)]
        [True, False]
    """
    rates = [group.get("lr") for group in optimizer.param_groups if group["params"]]
    return bool(rates) and all(isinstance(rate, (int, float)) and rate == 0 for rate in map(_number, rates))


def _number(rate: Any) -> Any:
    return rate.item() if isinstance(rate, torch.Tensor) and rate.numel() == 1 and rate.device.type == "cpu" else rate


def _closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[1] if len(args) > 1 else kwargs.get("closure")


def _memory(tensor: Any) -> int:
    """What two tensors share that are views of the same numbers; the tensor itself where that cannot be asked."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return tensor.data_ptr() or id(tensor) if plain else id(tensor)


def _has_gradient(parameter: torch.Tensor, *, finite: bool = False) -> bool:
    """Whether a parameter has a gradient that is not all zeros; ``finite``: and neither inf nor nan."""
    gradient = parameter.grad
    if gradient is None or not gradient.numel():
        return False
    with torch.no_grad(), torch._C.DisableTorchFunction():
        numbers = gradient._values() if gradient.layout is torch.sparse_coo else gradient  # noqa: SLF001
        if type(numbers) is not torch.Tensor or numbers.is_meta:
            return True
        if not numbers.numel():
            return False
        real = torch.view_as_real(numbers.resolve_conj()) if numbers.is_complex() else numbers
        ends = torch.stack(torch.aminmax(real)).tolist()  # reads the numbers once and writes none, as abs() would
    return any(ends) and (not finite or all(map(math.isfinite, ends)))
