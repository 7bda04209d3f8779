"""Where and by what autograd's recording was switched off: a grad mode, or the forward of a custom Function.

The function mode hears ``torch._C._set_grad_enabled``; which context manager called it, and whether it is entered
or left, is read off the frames of ``torch/autograd/grad_mode.py``. ``inference_mode`` makes no such call, so its
``__enter__`` is wrapped while a run lasts. Inside the forward of a custom Function autograd records nothing either; it
is called by compiled code in torch 2.14 and newer, so that only the frame of ``forward`` tells.
Sources: https://pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation,
https://pytorch.org/docs/stable/notes/extending.html#extending-torch-autograd
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch.autograd import Function, function, grad_mode
from torch.autograd.function import BackwardCFunction
from torch.utils import _contextlib, checkpoint, hooks

from gradkit.core import patches
from gradkit.core.records import Location
from gradkit.core.trace import (
    BACKWARD,
    BLOCK,
    CHECKPOINT,
    DECORATOR,
    FUNCTION,
    INFERENCE,
    OF_HOOKS,
    PRESET,
    SAMPLE,
    SWITCH,
    Chain,
    Region,
    spot,
)
from gradkit.source import frames, locations
from gradkit.source.faults import on_behalf


@dataclass(frozen=True)
class Forward:
    """A forward that is running.

    Attributes:
        name: the name of the Function.
        handed: what it was called with, without ``ctx``: the values that its arguments have by now.
        frame: its frame; where it is wrapped (``custom_fwd``), the wrapper's.
    """

    name: str
    handed: tuple[Any, ...]
    frame: FrameType


class Forwards:
    """Knows the forwards of all custom Functions by their code."""

    def __init__(self) -> None:
        self._owners: dict[CodeType, type[Function] | None] = {}

    def around(self, frame: FrameType | None, stop: CodeType) -> Forward | None:
        """The innermost forward that ``frame`` runs in, up to the code object ``stop``; None if it runs in none.

        Example:
            >>> import sys
            >>> class Double(Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         found.append(Forwards().around(sys._getframe(), stop))
            ...         return 2 * x
            >>> def run(): return Double.apply(3.0)
            >>> found, stop = [], run.__code__
            >>> run(), found[0].name, found[0].handed
            (6.0, 'Double', (3.0,))
        """
        while frame is not None and frame.f_code is not stop:
            owner = self._owner(_meant(frame))
            if owner is not None:
                return _outermost(frame, owner, self._owner)
            frame = frame.f_back
        return None

    def _owner(self, code: CodeType) -> type[Function] | None:
        if code not in self._owners:
            self._owners[code] = next((cls for cls in _derived(Function) if code in _codes(cls)), None)
        return self._owners[code]


def _meant(frame: FrameType) -> CodeType:
    """The code that runs in a frame; for a grad mode's decorator, whose code all functions share, the decorated one."""
    wrapped = _innermost(frame.f_locals.get("func")) if frame.f_code.co_filename == _CONTEXTLIB else None
    code = getattr(wrapped, "__code__", None)
    return code if isinstance(code, CodeType) else frame.f_code


def _outermost(frame: FrameType, owner: type[Function], owner_of: Callable[[CodeType], Any]) -> Forward:
    """The forward together with what wraps it: the frames outside of it that are the same Function's."""
    handed = _arguments(frame)
    if not (handed and isinstance(context := handed[0], BackwardCFunction)):
        return Forward(owner.__name__, handed, frame)
    outside = frame.f_back
    while outside is not None and owner_of(_meant(outside)) is not None:
        further = _arguments(outside)
        if not further or further[0] is not context:
            break
        frame, handed, outside = outside, further, outside.f_back
    return Forward(type(context).__name__.removesuffix("Backward"), handed[1:], frame)


def _arguments(frame: FrameType) -> tuple[Any, ...]:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    named = tuple(values.get(name) for name in code.co_varnames[:count])
    rest = code.co_varnames[count : count + bool(code.co_flags & inspect.CO_VARARGS)]
    return (*named, *(value for name in rest for value in values.get(name, ())))


def _derived(cls: type[Function]) -> Iterator[type[Function]]:
    for one in cls.__subclasses__():
        yield one
        yield from _derived(one)


def _codes(cls: type[Function]) -> Iterator[CodeType]:
    """The code of its own ``forward`` and ``setup_context``, and of all that they wrap."""
    for name in ("forward", "setup_context"):
        function = vars(cls).get(name)
        while function is not None:
            function = getattr(function, "__func__", function)
            if isinstance(code := getattr(function, "__code__", None), CodeType):
                yield code
            function = getattr(function, "__wrapped__", None)


_GRAD_MODE, _CONTEXTLIB, _CHECKPOINT = grad_mode.__file__, _contextlib.__file__, checkpoint.__file__
_FUNCTION, _HOOKS = function.__file__, hooks.__file__


@dataclass
class _Open:
    on: bool
    owner: Any
    region: Region
    inside: bool = False  # of the forward of a custom Function, where recording is off anyway


class _Held(threading.local):
    """What has been switched in a thread: each has a grad mode of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[_Open] = []
        self.inference: list[_Open] = []
        self.handed: dict[tuple[int, CodeType], tuple[int, tuple[int, ...], tuple[int, ...]]] = {}


class Switches:
    """Hears every switch of grad mode during a run and says which of them hold at a call.

    Args:
        stop: the code object at which the user's frames end.
        numbers: the numbers of the values among what was given to a call.

    Attributes:
        threads: those that are heard; its user adds those that the step starts.
        walks: the backwards that run now, the innermost last: number of the loss, and the user's frames.
    """

    def __init__(self, stop: CodeType, numbers: Callable[[Iterable[Any]], tuple[int, ...]] = lambda _: ()) -> None:
        self._numbers = numbers
        self.skip: frozenset[Any] = frozenset()
        self.walks: Sequence[tuple[int, Chain]] = ()
        self.heard: Callable[[FrameType], None] = lambda frame: None
        self._stop = stop
        self._held = _Held()
        self.threads: set[int] = set()
        self._known: dict[Region, int] = {}
        self._forwards = Forwards()
        self._places: dict[tuple[str, CodeType], Location] = {}
        self._patched = patches.undone()

    def __enter__(self) -> Switches:
        self.threads.add(threading.get_ident())
        self._began_on = torch.is_grad_enabled()
        mode = grad_mode.inference_mode
        self._exit = mode.__exit__
        self._patched.__enter__()
        patches.replace(mode, "__enter__", self._wrap_enter(mode.__enter__))
        patches.replace(mode, "__exit__", self._wrap_exit(mode.__exit__))
        patches.later(self._leave)
        return self

    def __exit__(self, *error: object) -> None:
        self._patched.__exit__(*error)

    def _leave(self) -> None:
        """Leave the inference modes that the step has entered and not left."""
        for entry in reversed(self._held.inference):
            with contextlib.suppress(AttributeError):  # it was about to be entered
                self._exit(entry.owner, None, None, None)
        self._held.inference.clear()

    # -- grad mode ----------------------------------------------------------------------------------------------

    def record(self, on: bool, frame: FrameType) -> bool:
        """Hear a call of ``_set_grad_enabled(on)`` made by ``frame``. Returns whether it is to be carried out."""
        action, owner, outside = _context_manager(frame)
        if outside is not None:
            self.heard(outside)
        if action == "__exit__" or action == "__call__":
            self._close(owner)
            return True
        top = self._held.open[-1] if self._held.open else None
        forward = self._forwards.around(frame, self._stop)
        inside = forward is not None and forward.frame.f_code.co_filename != _CHECKPOINT  # that is run again
        if action == "__enter__" and top is not None and top.owner is owner:
            region = self._region(outside, BLOCK)
            self._held.open[-1] = _Open(on, owner, region, inside)
        else:
            region = self._region(outside, BLOCK if action == "__enter__" else SWITCH)
            self._held.open.append(_Open(on, owner, region, inside))
            # set_grad_enabled switches as soon as it is made, before it is entered as a block or decorator
            if self.skip and action == "__init__" and self._region(outside, BLOCK).key in self.skip:
                return on
        if forward is not None and self.skip and self._function(forward)[0] in self.skip:
            return on  # it runs as a plain function, and is to be recorded
        return on or region.key not in self.skip

    def _function(self, forward: Forward) -> tuple[tuple[Any, ...], Chain]:
        """The key of a custom Function that runs, and the user's frames that apply it."""
        chain = frames.chain(forward.frame.f_back, self._stop)
        return (FUNCTION, forward.name, *spot(chain)), chain

    def _close(self, owner: Any) -> None:
        for index in range(len(self._held.open) - 1, -1, -1):
            if self._held.open[index].owner is owner:
                del self._held.open[index:]
                return

    def _region(self, frame: FrameType | None, kind: str) -> Region:
        chain, through = frames.chains(frame, self._stop)
        if frame is None:
            return Region(kind, (kind,), chain)
        code, file = frame.f_code, frame.f_code.co_filename
        decorated, target = False, None
        if file == _CONTEXTLIB:
            decorated, target = True, _innermost(frame.f_locals.get("func"))
            if hasattr(target, "__code__"):
                code, file = target.__code__, target.__code__.co_filename
        if file == _CHECKPOINT:
            return Region(CHECKPOINT, (CHECKPOINT, *spot(chain)), chain, via=_library(frame), through=through)
        if "/distributions/" in file.replace("\\", "/") and "torch" in file:
            return Region(SAMPLE, (SAMPLE, *spot(chain)), chain, via=code.co_name, through=through)
        via = "" if frames.is_user_file(file) else code.co_name
        kind = DECORATOR if decorated else kind
        # set_grad_enabled() in a `with` switches twice: as it is made, and as the block is entered.
        key = (kind, file, code) if decorated else (BLOCK, file, code, locations.line_of((code, frame.f_lasti)))
        place = self._decorator(target) if decorated and not via else None
        if decorated and via:
            through = ((code, 0), *through)
        return Region(kind, key, chain, place, via, decorated, through=through)

    def _decorator(self, function: Any) -> Location | None:
        code: CodeType | None = getattr(function, "__code__", None)
        if code is None:
            return None
        key = (code.co_filename, code)
        if key not in self._places:
            self._places[key] = locations.locate_code(code, getattr(function, "__globals__", {}))
        return self._places[key]

    # -- inference mode -----------------------------------------------------------------------------------------

    def _wrap_enter(self, original: Any) -> Any:
        @on_behalf
        def enter(owner: Any) -> None:
            if threading.get_ident() in self.threads:
                plain = self._region(sys._getframe(1), BLOCK)
                region = replace(plain, kind=INFERENCE, key=(INFERENCE, *plain.key))
                if owner.mode and region.key in self.skip:
                    owner.gradkit_skipped = True
                    return
                self._held.inference.append(_Open(not owner.mode, owner, region))
            original(owner)

        return enter

    def _wrap_exit(self, original: Any) -> Any:
        @on_behalf
        def leave(owner: Any, *error: Any) -> None:
            if owner.__dict__.pop("gradkit_skipped", False):
                return
            self._held.inference = [entry for entry in self._held.inference if entry.owner is not owner]
            original(owner, *error)

        return leave

    # -- what holds ---------------------------------------------------------------------------------------------

    def active(self, frame: FrameType, name: str, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Indices of the regions that keep autograd from recording right now, outermost first.

        Args:
            frame: where the call is made.
            name: what is called.
            inputs: numbers of the values that it is handed.
        """
        held = list(itertools.takewhile(lambda entry: not entry.on, reversed(self._held.open)))
        on = self._held.open[-len(held) - 1] if len(held) < len(self._held.open) else None
        recorded = on is not None and on.inside  # by an enable_grad in the forward
        found = [entry.region for entry in held if recorded or not entry.inside]
        if torch.is_inference_mode_enabled():
            found.extend(entry.region for entry in self._held.inference if not entry.on)
        if not found:
            found.append(self._unheard(frame, name, inputs))
        return tuple(self._known.setdefault(region, len(self._known)) for region in dict.fromkeys(reversed(found)))

    def _unheard(self, frame: FrameType, name: str, inputs: tuple[int, ...]) -> Region:
        """Recording is off and nobody was heard to switch it off: a custom Function does so, or it was off before."""
        forward = self._forwards.around(frame, self._stop)
        if forward is not None:
            key, chain = self._function(forward)
            given, hidden = self._given(forward)
            return Region(FUNCTION, key, chain, via=forward.name, given=given, hidden=hidden)
        on = self._held.open[-1].on if self._held.open else self._began_on
        if on and name == "view_as" and len(set(inputs)) == 1:
            # Its forward is gone by now: what it returned of its inputs is made a view of itself.
            chain = frames.chain(frame, self._stop)
            via = OF_HOOKS if _applied_in(frame) == _HOOKS else Function.__name__
            return Region(FUNCTION, (FUNCTION, via, *spot(chain)), chain, via=via, given=inputs)
        if on and self.walks:
            chain = self.walks[-1][1]
            return Region(BACKWARD, (BACKWARD, *spot(chain)), chain)
        return Region(PRESET, (PRESET,), ())

    def _given(self, forward: Forward) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Numbers of the tensors that a forward was handed, and of those in what else it was handed.

        Those of its first call: later on a name may be another value's.
        """
        now, key = forward.frame.f_lasti, (id(forward.frame), forward.frame.f_code)  # the next frame may have its id
        before, given, hidden = self._held.handed.get(key, (now, (), ()))
        if now <= before:
            given = self._numbers([one for one in forward.handed if isinstance(one, torch.Tensor)])  # not inside a list
            inside = [x for one in forward.handed if not isinstance(one, torch.Tensor) for x in _tensors_in(one)]
            hidden = tuple(number for number in self._numbers(inside) if number not in given)
        self._held.handed[key] = (now, given, hidden)
        return given, hidden

    def regions(self) -> tuple[Region, ...]:
        """All regions that held at some call, by the indices that ``active`` gave."""
        return tuple(self._known)


def _tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """The tensors in a container: autograd sees none of those that are handed over in it."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    parts: Iterable[Any] = ()
    if isinstance(value, (torch.nn.ParameterList, torch.nn.ParameterDict)):
        parts = tuple(value.parameters())
    elif isinstance(value, dict):
        parts = dict.values(value)
    elif isinstance(value, (list, tuple)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = getattr(value, "__dict__", {}).values()
    for part in parts if depth else ():
        yield from _tensors_in(part, depth - 1)


def _context_manager(frame: FrameType) -> tuple[str, Any, FrameType | None]:
    """The outermost method of ``grad_mode.py`` that is running, its object, and the frame outside of it."""
    inside: list[tuple[str, Any]] = []
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_filename == _GRAD_MODE:
        inside.append((outer.f_code.co_name, outer.f_locals.get("self")))
        outer = outer.f_back
    if not inside:
        return "", None, outer
    action, owner = inside[-1]
    return (
        (action, owner, outer) if action in ("__enter__", "__exit__", "__call__") else ("__init__", inside[0][1], outer)
    )


def _applied_in(frame: FrameType) -> str:
    """The file that applies a custom Function: torch 2.13 has a frame of its own for that, 2.14 has none."""
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_filename == _FUNCTION:
        outer = outer.f_back
    return outer.f_code.co_filename if outer is not None else ""


def _library(frame: FrameType) -> str:
    """The function of an installed library that called into torch's checkpointing; ``""`` if the user's code did."""
    outer: FrameType | None = frame
    while outer is not None and frames.is_torch_file(outer.f_code.co_filename):
        outer = outer.f_back
    return "" if outer is None or frames.is_user_file(outer.f_code.co_filename) else outer.f_code.co_name


def _innermost(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function
