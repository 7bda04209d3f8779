"""What may be changed or watched while a step runs again: the points at which a tracer asks, and who is asked.

An experiment subclasses ``Intervention`` and overrides the points that it needs. A tracer without interventions asks
nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from gradkit.core.trace import Chain
from gradkit.source import faults, frames
from gradkit.tracing.ledger import Ledger

Instead = tuple[Any, Any, Any]


class Moment:
    """Where a run stands; hold it no longer than the point lasts.

    Attributes:
        index: the number of calls that were recorded so far, which is the index of the one under way.
        ledger: numbers the tensors of the run.
    """

    __slots__ = ("_frame", "_stop", "index", "ledger")

    def __init__(self, frame: FrameType | None, stop: CodeType, index: int, ledger: Ledger) -> None:
        self._frame, self._stop, self.index, self.ledger = frame, stop, index, ledger

    def chain(self) -> Chain:
        """The user's frames, innermost first."""
        return frames.chain(self._frame, self._stop)

    @property
    def file(self) -> str:
        """The file of the code that called, whoever wrote it; ``""`` if that is not known."""
        return self._frame.f_code.co_filename if self._frame is not None else ""


class Intervention:
    """One thing that is changed, or watched, while a step runs. As it stands here it changes nothing.

    Attributes:
        skip: keys of the switches of grad mode that are not to be carried out.

    Example:
        >>> from gradkit.tracing.tracer import Tracer
        >>> class Doubling(Intervention):
        ...     def after_call(self, moment, name, inputs, given, result):
        ...         return result * 2 if name == "square" else result
        >>> step = lambda: torch.tensor(3.0).square()
        >>> Tracer(torch.nn.Linear(1, 1), interventions=[Doubling()]).run(step)
        tensor(18.)
    """

    skip: frozenset[Any] = frozenset()

    def during(self) -> contextlib.AbstractContextManager[object]:
        """Held around the run and around the backward of what it returned."""
        return contextlib.nullcontext()

    def during_step(self) -> contextlib.AbstractContextManager[object]:
        """Held around the run alone, outside of all that listens to it."""
        return contextlib.nullcontext()

    def before_write(self, moment: Moment, name: str, targets: Sequence[Any]) -> None:
        """The call ``name`` may write into ``targets``, if those are tensors at all."""

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """What is to be called instead of ``func(*args, **kwargs)``."""
        return func, args, kwargs

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """What the step gets to see of a call's result.

        Args:
            inputs: numbers of the values that the call makes use of.
            given: all tensors, and numbers or arrays with origins, among its arguments.
        """
        return result

    def may_set(self, moment: Moment, name: str, tensor: torch.Tensor) -> bool:
        """Whether a property is to be set: ``name`` is ``"requires_grad="`` or ``"grad="``, for example."""
        return True

    def after_collective(self, moment: Moment, name: str, targets: Sequence[torch.Tensor], read: Sequence[Any]) -> None:
        """A collective of ``torch.distributed`` has filled ``targets`` from ``read``."""

    def parameter_made(self, moment: Moment, name: str, made: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        """A Parameter or Variable was ``made`` of ``data``: what is handed out instead.

        Args:
            name: as in ``listeners.hear_parameters``.
        """
        return made

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """The step's own backward of ``losses`` is about to begin, the ``count``-th from 1: whether to carry it out.

        Raises:
            EndOfStep: the step is to end here.
        """
        return True

    def recorded(self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """A call was entered into the record, with the numbers of what went in and out."""


class EndOfStep(BaseException):
    """Raised by an intervention to end the step as if it returned ``loss``; no ``except Exception`` of it gets hold."""

    def __init__(self, loss: torch.Tensor) -> None:
        super().__init__()
        self.loss = loss


class StopAtBackward(Intervention):
    """The step ends at a backward of its own, wherever in the code that stands, and returns what it was asked of.

    Args:
        count: which, from 1.
        skip: leave out those before it: what they reach would hide what this one does not.

    Attributes:
        chain: the user's frames where a run was ended, innermost first.

    Example:
        >>> from gradkit.tracing.tracer import Tracer
        >>> model = torch.nn.Linear(1, 1)
        >>> step = lambda: model(torch.ones(2, 1)).backward()
        >>> Tracer(model, interventions=[StopAtBackward(1)]).run(step).shape
        torch.Size([2, 1])
    """

    def __init__(self, count: int, *, skip: bool = False) -> None:
        self._count, self._skip = count, skip
        self.chain: Chain = ()

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """End the step at the one, and at any that follows where the step has swallowed that."""
        if count < self._count:
            return not self._skip
        self.chain = moment.chain()
        raise EndOfStep(next((one for one in losses if one.requires_grad), losses[0]))


class Together(Intervention):
    """Several interventions as one: each is asked in turn, and changes what those before it have left.

    Attributes:
        faults: what they raised themselves.
    """

    def __init__(self, parts: Sequence[Intervention]) -> None:
        self._parts = tuple(parts)
        self.skip = frozenset[Any]().union(*(part.skip for part in self._parts))
        self.faults: list[Exception] = []

    def refuse(self) -> None:
        """Raise what an intervention has raised, also where the step has caught it."""
        for fault in self.faults:
            raise fault

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """All of them, the first outermost."""
        with contextlib.ExitStack() as stack:
            for part in self._parts:
                stack.enter_context(part.during())
            yield

    @contextlib.contextmanager
    def during_step(self) -> Iterator[None]:
        """All of them, the first outermost."""
        with contextlib.ExitStack() as stack:
            for part in self._parts:
                stack.enter_context(part.during_step())
            yield

    def before_write(self, moment: Moment, name: str, targets: Sequence[Any]) -> None:
        """Ask each."""
        with _Noting(self.faults):
            for part in self._parts:
                part.before_write(moment, name, targets)

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """Ask each, with what the one before it said."""
        with _Noting(self.faults):
            for part in self._parts:
                func, args, kwargs = part.before_call(moment, func, args, kwargs)
        return func, args, kwargs

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """Ask each, with what the one before it said."""
        with _Noting(self.faults):
            for part in self._parts:
                result = part.after_call(moment, name, inputs, given, result)
        return result

    def may_set(self, moment: Moment, name: str, tensor: torch.Tensor) -> bool:
        """Whether none of them objects."""
        with _Noting(self.faults):
            return all(part.may_set(moment, name, tensor) for part in self._parts)

    def after_collective(self, moment: Moment, name: str, targets: Sequence[torch.Tensor], read: Sequence[Any]) -> None:
        """Ask each."""
        with _Noting(self.faults):
            for part in self._parts:
                part.after_collective(moment, name, targets, read)

    def parameter_made(self, moment: Moment, name: str, made: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        """Ask each, with what the one before it said."""
        with _Noting(self.faults):
            for part in self._parts:
                made = part.parameter_made(moment, name, made, data)
        return made

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """Whether none of them objects."""
        with _Noting(self.faults):
            return all(part.before_backward(moment, count, losses) for part in self._parts)

    def recorded(self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """Tell each."""
        with _Noting(self.faults):
            for part in self._parts:
                part.recorded(name, inputs, outputs)


class _Noting:
    """Keeps what is raised inside, and lets it pass."""

    def __init__(self, noted: list[Exception]) -> None:
        self._noted = noted

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            self._noted.append(faults.claim(error))
