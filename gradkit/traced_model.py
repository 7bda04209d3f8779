"""The model that a tracer is interested in: what it held before the step, and what the step has made of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from gradkit import registered, strangers
from gradkit.ledger import Ledger, leaves

_SLOTS = frozenset(vars(nn.Module()))


class TracedModel:
    """A model whose parameters, buffers and other tensors are numbered before the step runs.

    Args:
        model: the model.
        ledger: numbers them, parameters first.

    Attributes:
        modules: every module under the first of its dotted paths; its place among them is its number.
        held: its parameters by name, as they were before the step; one that is held twice has two names.
        parameters: their numbers, by name.
        adapted: the numbers of the modules that peft made.
        trained: names of the parameters that an optimizer has stepped on.
        trained_values: numbers of all values that an optimizer has stepped on.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> ledger = Ledger(lambda *_: -1, lambda _: (), lambda _: False)
        >>> TracedModel(model, ledger).parameters, len(ledger.values())
        ({'weight': 0, 'bias': 1}, 2)
    """

    def __init__(self, model: nn.Module, ledger: Ledger) -> None:
        self._model, self._ledger = model, ledger
        places = list(registered.modules(model, twice=True))  # walking takes long: once for all
        self.modules = _once(places)
        self.held: dict[str, Any] = dict(_entries(places, "_parameters"))
        self.parameters: dict[str, int] = {}
        self.adapted = {i for i, module in enumerate(self.modules.values()) if _has_adapters(module)}
        self._disabled: set[str] = set()
        self._enabled: set[str] = set()
        self.trained: set[str] = set()
        self.trained_values: set[int] = set()
        self._enter_registered()
        self._enter_attributes()

    def _enter_registered(self) -> None:
        for name, parameter in self.held.items():
            known = self._ledger.known(parameter)
            self.parameters[name] = self._ledger.old(parameter, name) if known is None else known
        for name, buffer in _entries(self.modules.items(), "_buffers"):
            if self._ledger.known(buffer) is None:
                self._ledger.old(buffer, buffer=name)

    def _enter_attributes(self) -> None:
        """Tensors that modules hold without having registered them, also inside of lists and dictionaries."""
        for path, module in self.modules.items():
            for name, held in strangers.attributes(module).items():
                if name in _SLOTS or not strangers.is_a(held, (torch.Tensor, list, tuple, dict)):
                    continue
                for tensor in leaves([held]):
                    if isinstance(tensor, torch.Tensor) and self._ledger.known(tensor) is None:
                        self._ledger.old(tensor, attribute=f"{path}.{name}".lstrip("."))

    # -- what the step does with it -----------------------------------------------------------------------------

    def adapter_runs(self, path: str, module: Any) -> None:
        """A module of peft's is entered: are its adapters in use?"""
        off = module._disable_adapters  # noqa: SLF001  peft's own property asks the same
        (self._disabled if off else self._enabled).add(path)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step on what it holds."""
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self.trained.update(name for name, p in self.held.items() if id(p) in held)
        others = (self._ledger.known(p) for group in optimizer.param_groups for p in group["params"])
        self.trained_values.update(number for number in others if number is not None)

    def disabled(self) -> frozenset[str]:
        """Paths of the modules that ran with their adapters out of use, and never with them."""
        return frozenset(self._disabled - self._enabled)

    def put_in_place(self) -> dict[str, int]:
        """The parameters that the model has got in the step, with their numbers."""
        now = {name: p for name, p in registered.parameters(self._model) if self.held.get(name) is not p}
        return {name: number for name, p in now.items() if (number := self._ledger.known(p)) is not None}


def _once(places: Iterable[tuple[str, nn.Module]]) -> dict[str, nn.Module]:
    """Every module under the first of its paths."""
    seen: set[int] = set()
    return {path: m for path, m in places if not (id(m) in seen or seen.add(id(m)))}  # type: ignore[func-returns-value]


def _entries(places: Iterable[tuple[str, nn.Module]], kind: str) -> Iterator[tuple[str, Any]]:
    """What modules have registered: ``kind`` is ``"_parameters"`` or ``"_buffers"``, the names are dotted."""
    for path, module in places:
        for name, held in getattr(module, kind).items():
            if held is not None:
                yield (f"{path}.{name}" if path else name), held


def _has_adapters(module: nn.Module) -> bool:
    """Whether peft made a module. Asked of the class: what a module does not have, it looks up long."""
    return hasattr(type(module), "_disable_adapters") or "_disable_adapters" in vars(module)
