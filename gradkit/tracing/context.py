"""Which module's forward is running, which lines of the user's lead there, and what the running code calls a tensor.

Entering a module remembers its frame. A call inside it then looks at the frames up to there only: what lies further out
cannot have moved meanwhile, and is looked up once for each module that runs. So is a tensor's name, when the tensor
turns up for the first time.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from gradkit.core import introspection, package
from gradkit.source import frames
from gradkit.state import registered
from gradkit.tracing.ledger import Ledger, leaves


class Running:
    """The modules whose forward is running, innermost last.

    Args:
        modules: the model's modules by dotted path.
        stop: the code object at which the user's frames end.

    Attributes:
        paths: their dotted paths; a module's number is its place among them, -1 for any other module.
        inside: the numbers of the modules that are running, innermost last, after a -1.
        entered: the numbers of all whose forward has begun.
        stop, waiting: what ``frames.chain`` is to be given.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], stop: CodeType) -> None:
        self.paths: list[str] = []
        self.entered: set[int] = set()
        self._numbers: dict[int, int] = {}
        for path, module in modules:
            self._numbers[id(module)] = len(self.paths)
            self.paths.append(path)
        self.stop = stop
        self.clear()

    def number(self, module: nn.Module) -> int:
        """The module's number."""
        return self._numbers.get(id(module), -1)

    def enter(self, number: int, frame: FrameType) -> None:
        """A module's forward begins; ``frame`` is going to call it."""
        self.inside.append(number)
        self.entered.add(number)
        self.waiting.append(frames.Outside(frame))

    def leave(self) -> None:
        """The innermost module's forward has ended."""
        if self.waiting:
            self.inside.pop()
            self.waiting.pop()

    def clear(self) -> None:
        """No module is running any more."""
        self.inside = [-1]
        self.waiting: list[frames.Outside] = []

    def begun(self) -> frozenset[str]:
        """The paths of all modules whose forward has begun, in whatever thread."""
        return frozenset(self.paths[number] for number in self.entered if number >= 0)

    def anew(self) -> Running:
        """The same modules, for another thread: none is running there yet."""
        other = copy.copy(self)
        other.clear()
        return other


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
        stepped_on: numbers of all values that an optimizer has stepped on.
        trained_values: those, and what the step reads the gradient of.

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
        self.stepped_on: set[int] = set()
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
            for name, held in introspection.attributes(module).items():
                if name in _SLOTS or not introspection.is_a(held, (torch.Tensor, list, tuple, dict)):
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
        known = (self._ledger.known(p) for group in optimizer.param_groups for p in group["params"])
        numbers = {number for number in known if number is not None}
        self.stepped_on |= numbers
        self.trained_values |= numbers

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


_OURS = str(package.FOLDER) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_FARTHEST, _LONGEST = 60, 64


def holder(tensor: torch.Tensor, frame: FrameType | None, stop: CodeType) -> str:
    """The variable, or the key in a dictionary of the batch, that holds a tensor; ``""`` if none does.

    The outermost frame between ``frame`` and the code object ``stop`` counts: what the step calls its batch says more
    than what a layer calls its input. Frames of torch and of gradkit do not count.

    Example:
        >>> import sys
        >>> def step(images):
        ...     return holder(images, sys._getframe(), step.__code__), holder(images, sys._getframe(), holder.__code__)
        >>> step(torch.ones(2))
        ('', 'images')
    """
    found = ""
    for _ in range(_FARTHEST):
        if frame is None or frame.f_code is stop:
            break
        file = frame.f_code.co_filename
        if frames.is_user_file(file) or not file.startswith((_TORCH, _OURS)):
            found = _name_in(frame, tensor) or found
        frame = frame.f_back
    return found


def _name_in(frame: FrameType, tensor: torch.Tensor) -> str:
    for name, value in _variables(frame):
        if value is tensor:
            return name
        if introspection.size(value) > _LONGEST:
            continue
        if introspection.is_a(value, dict):
            held = next((key for key, one in introspection.items(value) if one is tensor and type(key) is str), "")
            if held:
                return held
        if introspection.is_a(value, (list, tuple)):
            place = next((at for at, one in enumerate(introspection.entries(value)) if one is tensor), -1)
            if place >= 0:
                return f"{name}[{place}]"
    return ""


def _variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """The variables of a function, then the globals that its code mentions."""
    local: Mapping[str, Any] = frame.f_locals
    yield from list(local.items())
    if local is not frame.f_globals:
        for name in frame.f_code.co_names:
            if name in frame.f_globals:
                yield name, frame.f_globals[name]
