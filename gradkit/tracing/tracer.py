"""Run a step once and keep, for each torch call: what went in and out, whether autograd recorded it, and where.

A ``TorchFunctionMode`` sees every call of ``torch.*`` and ``Tensor.*``, ``.data``, and every switch of grad mode;
module hooks tell which module is running. Only numbers, shapes, code positions and weak references are kept, and no
tensors but copies of single numbers.
Source of the mechanism: https://pytorch.org/docs/stable/torch.overrides.html
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from gradkit.core import introspection, operations, patches, turns
from gradkit.core.introspection import weakly
from gradkit.core.trace import Chain, Trace
from gradkit.source import frames
from gradkit.source.faults import on_behalf
from gradkit.state import process
from gradkit.state.preserve import Preserved
from gradkit.tracing import context, listeners, no_loss, ranks, tagged_values
from gradkit.tracing.backward import leaves_of
from gradkit.tracing.call_log import CallLog
from gradkit.tracing.context import Running, TracedModel
from gradkit.tracing.grad_mode import Switches
from gradkit.tracing.gradients import Gradients
from gradkit.tracing.interventions import EndOfStep, Intervention, Moment, Together
from gradkit.tracing.ledger import Ledger, leaves, tensors_in
from gradkit.tracing.own_backwards import Asked, OwnBackward, OwnBackwards
from gradkit.tracing.scalers import Scalers

_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr
_is_recording, _is_inference = torch.is_grad_enabled, torch.is_inference_mode_enabled
_NAMED = 32  # tensors from before the step that are looked up among the user's variables
_BACKWARD: Any = torch.Tensor.backward


class Tracer(TorchFunctionMode):
    """Records one run of a step.

    Args:
        model: the model whose parameters are of interest.
        preserved: told of tensors before they are written in place, and of modules outside of the model; None to trace
            without being able to put things back.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> tracer = Tracer(model)
        >>> loss = tracer.run(lambda: model(torch.ones(1, 2)).sum().detach())
        >>> [call.name for call in tracer.trace(loss).calls]
        ['ones', 'linear', 'sum', 'detach']
    """

    def __init__(
        self, model: nn.Module, preserved: Preserved | None = None, interventions: Sequence[Intervention] = ()
    ) -> None:
        super().__init__()
        self.interventions = Together(interventions)
        self._changed_by = self.interventions if interventions else None
        self.preserved = preserved
        self.log = CallLog()
        past, name = weakly(self._is_past), weakly(self._called)
        self.ledger = Ledger(weakly(self._unseen), self.log.outputs_at, past, name)
        self.switches = Switches(Tracer.run.__code__, self.ledger.inputs)
        self.switches.skip = self.interventions.skip
        self._calls = self.log.rows
        self._model = TracedModel(model, self.ledger)
        self.stepped_on = self._model.stepped_on
        self.running = Running(self._model.modules.items(), Tracer.run.__code__)
        self.begin = self._thread = self._named = 0
        self.outer: Chain | None = None
        self._branches: dict[int, Tracer] = {}
        self._over: list[bool] = []
        self._lock = threading.RLock()
        self.asked: Asked | None = None
        self.no_loss: no_loss.NoLoss | None = None
        self.hooked = self._aside = False
        self._frame: FrameType | None = None
        self.backwards = OwnBackwards(self.ledger, self._model.held, Tracer.run.__code__, preserved)
        self.gradients = Gradients(self.ledger, weakly(self._made_of), weakref.ref(self))
        self.scalers = Scalers(Tracer.run.__code__)
        self.backwards.gradients, self.switches.walks = self.gradients, self.gradients.walks
        self.backwards.threads = self.switches.threads
        self.backwards.heard, self.switches.heard = self.scalers.backward, self.scalers.switched
        if self._changed_by is not None:
            self.backwards.begins = weakly(self._before_backward)

    # -- the run ------------------------------------------------------------------------------------------------

    @on_behalf
    def run(self, step: Callable[[], Any]) -> Any:
        """Call ``step()`` once and return what it returned; whatever it raises comes through.

        A ``backward()`` inside the step is carried out, and what it reached is kept in ``backwards``. Where it
        would raise because nothing requires grad, or an intervention ends the step, that tensor is returned. A number
        in the place of the loss is returned as a tensor, and ``no_loss`` tells so, unless a backward was made.
        """
        with self.interventions.during_step():
            return self._run(step)

    def _run(self, step: Callable[[], Any]) -> Any:
        self.begin, self._thread = _sequence(), threading.get_ident()
        try:
            ranks.meet_ranks()
            with patches.undone():
                patches.later(self._end)
                patches.later(process.modes_left_open())
                self._listen()
                patches.nest_deeper()
                return self._inside(step)
        except EndOfStep as end:
            return end.loss
        except Exception as error:
            self.asked = self.backwards.asked(error)
            if self.asked is None or not self.asked.refused:
                raise
            return self.asked.tensor

    def _listen(self) -> None:
        """Hear modules and optimizers of the whole process; each kind of hook is undone by its handle."""
        patches.later(register_optimizer_step_pre_hook(self._before_step).remove)
        after = module_hooks.register_module_forward_hook(self._leave_module, always_call=True)
        patches.later(after.remove)
        before = module_hooks.register_module_forward_pre_hook(self._enter_module)
        patches.later(before.remove)
        patches.replace(module_hooks, "_has_any_global_hook", partial(listeners.has_other_hooks, {before.id, after.id}))

    @on_behalf
    def _inside(self, step: Callable[[], Any]) -> Any:
        with (
            listeners.eager(),
            tagged_values.kept(),
            self.scalers.heard(),
            self.gradients.heard(),
            listeners.hear_parameters(self._born),
            listeners.hear_vmap(self._wrapped),
            listeners.hear_collectives(self._filled),
            listeners.hear_threads(self._fork),
            self.backwards,
            self.switches,
            self,
        ):
            result, stand_in = no_loss.run(step)
            if stand_in is not None and (stand_in.asked or self.backwards.of(None) is None):
                self.no_loss = stand_in
                return no_loss.as_tensor(result) if stand_in.kind == no_loss.NUMBER else None
            if not self.backwards.begun:
                self.ledger.meet(result)
            return result

    def _end(self) -> None:
        self._over.append(True)
        self.running.clear()

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        here = self._here()
        if here is None:
            return
        self.scalers.stepped(optimizer, sys._getframe(1))
        self._model.stepped(optimizer)
        if self.preserved is not None:
            here.remember(self.preserved.optimizer, optimizer)

    def remember(self, remember: Callable[[Any], None], thing: Any) -> None:
        """Copy what is met in the run: no call of the step's, and made in its first run only."""
        self._aside = True
        try:
            remember(thing)
        finally:
            self._aside = False

    def _here(self) -> Tracer | None:
        """The tracer of this thread; None if it is one that the step did not start: what runs there is no matter."""
        thread = threading.get_ident()
        return self if thread == self._thread else self._branches.get(thread)

    def _fork(self, frame: FrameType) -> AbstractContextManager[None] | None:
        """What a thread is to run inside of that the step starts in ``frame``."""
        here = self._here()
        if here is None:
            return None
        branch = copy.copy(here)
        branch.outer = frames.chain(frame, here.running.stop, here.running.waiting) + (here.outer or ())
        branch.running = here.running.anew()
        return self._alongside(branch)

    @contextlib.contextmanager
    def _alongside(self, branch: Tracer) -> Iterator[None]:
        """Listen in another thread by a tracer of its own, which shares all that is found."""
        thread = threading.get_ident()
        self._branches[thread] = branch
        self.switches.threads.add(thread)
        turns.enter(thread)
        try:
            with branch:
                yield
        finally:
            turns.leave(thread)
            self.switches.threads.discard(thread)
            del self._branches[thread]

    def _enter_module(self, module: nn.Module, _args: Any) -> None:
        here = self._here()
        if here is None:
            return
        number = here.running.number(module)
        if number < 0 and self.preserved is not None:
            here.remember(self.preserved.watch, module)
        elif number in self._model.adapted:
            self._model.adapter_runs(self.running.paths[number], module)
        here.running.enter(number, sys._getframe(1))

    def _leave_module(self, module: nn.Module, args: Any, output: Any) -> None:
        here = self._here()
        if here is None:
            return
        if isinstance(module, torch.jit.ScriptModule):
            here.scripted(module, args, output, sys._getframe(1))
        here.running.leave()

    def scripted(self, module: torch.jit.ScriptModule, args: Any, output: Any, frame: FrameType) -> None:
        """Record as one call what no function mode hears: a scripted module that handed out values without history."""
        given = [*leaves(args), *module.parameters(), *module.buffers()]
        made = [x for x in leaves([output]) if isinstance(x, torch.Tensor) and x.grad_fn is None]
        made = [x for x in made if not any(x is one for one in given)]
        if not made:
            return
        inputs, index = self.ledger.inputs(given), len(self._calls)
        outputs = tuple(self.ledger.made(x, index, False) for x in made)
        self._frame = frame
        try:
            self._append(getattr(module, "original_name", type(module).__name__), inputs, outputs, _sequence(), False)
        finally:
            self._frame = None

    # -- one call -----------------------------------------------------------------------------------------------

    @on_behalf
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in operations.ABOUT or self._over or self._aside:  # no data; a thread that outlives the step; ours
            return func(*args, **kwargs)
        if name == "__get__":
            name = func.__self__.__name__
            if name not in operations.PROPERTIES:
                return self._read(func, args[0], sys._getframe(1)) if name == "grad" else func(*args, **kwargs)
        elif name == "__set__":
            name = f"{func.__self__.__name__}="
            if name == "requires_grad=":
                self.ledger.flag(args, {}, self._chains(sys._getframe(1)))
            if name != "data=":
                moment = self._moment(sys._getframe(1))
                return func(*args) if self.interventions.may_set(moment, name, args[0]) else None
        self._frame = sys._getframe(1)
        try:
            if name == "_set_grad_enabled":
                return func(*args) if self.switches.record(bool(args[0]), self._frame) else None
            if name == "backward" and func is _BACKWARD:
                return func(*args, **kwargs)
            with self._lock:
                return self.call(func, name, args, kwargs)
        finally:
            self._frame = None  # a frame holds its tensors

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Carry out one call and record it."""
        found = leaves((*args, *kwargs.values())) if kwargs else leaves(args)
        plain = operations.is_plain(name) and not (kwargs and ("out" in kwargs or kwargs.get("inplace")))
        writes, state = (False, False) if plain else self._writes(name, args, kwargs)
        inputs = self.ledger.inputs(found) if plain else self._inputs(name, args, kwargs, found)
        if not plain:
            name = operations.full_name(func, name, args, kwargs)
        begin = _sequence()
        if self._changed_by is None:
            result = self._carry_out(func, args, kwargs)
        else:
            result = self._carry_out(*self._changed_by.before_call(self._moment(), func, args, kwargs))
            result = self._changed_by.after_call(self._moment(), name, inputs, found, result)
        if plain and isinstance(result, torch.Tensor):
            for given in found:  # no generator: every call comes through here
                if given is result and not operations.may_write(args, kwargs):
                    return result
            self._append(name, inputs, (self.ledger.made(result, len(self._calls), False),), begin, False)
            return result
        if name in operations.ESCAPES:
            return self._escape(name, inputs, result, begin)
        made = args[:1] if name == "__setitem__" or name == "data=" else tensors_in(result) or found[: int(writes)]
        if made and not writes and not operations.may_write(args, kwargs):  # as broadcast_tensors: what it was given
            if name == "broadcast_tensors":
                inputs = self.ledger.inputs([x for x in found if not any(x is one for one in made)])
            made = [x for x in made if not any(x is given for given in found)]
        if made and name != "requires_grad_":
            index = len(self._calls)
            outputs = tuple(self.ledger.made(x, index, writes) for x in made)
            self._append(name, inputs, outputs, begin, state)
        return result

    def _writes(self, name: str, args: Any, kwargs: Any) -> tuple[bool, bool]:
        """Whether a call writes in place, and whether what it writes outlives the step; that is copied first."""
        writes = operations.writes(name)
        targets = leaves(args if name.startswith("_fused") else args[:1]) if writes or kwargs.get("inplace") else []
        targets += [*leaves([kwargs.get("out")]), *operations.written_unseen(name, args, kwargs)]
        return writes, self._before_write(name, targets)

    def _inputs(self, name: str, args: Any, kwargs: Any, found: list[Any]) -> tuple[int, ...]:
        """The numbers of the values that a call makes use of."""
        if name in operations.NO_DATA:
            self.hooked |= name in operations.HOOKS
            if name == "register_hook":
                self.gradients.listen(args[0])
            if name == "requires_grad_":
                self.ledger.flag(args, kwargs, self._chains(self._frame))
            return ()
        inputs = self.ledger.inputs(found[1:] if name in operations.OVERWRITES or name == "data=" else found)
        if name in operations.FROM_PLAIN and not inputs:
            inputs = tagged_values.origins_of_values(args[0] if args else kwargs.get("data"))
        return inputs

    def _read(self, read: Any, tensor: torch.Tensor, frame: FrameType) -> Any:
        """The user's code looks at a gradient: to move the tensor by it, or to compute something of it."""
        grad = read(tensor)
        if frames.is_user_file(frame.f_code.co_filename):
            self._model.trained_values.add(self.ledger.use(tensor))
            self.gradients.read(tensor, grad, frame)
        return grad

    def _wrapped(self, made: torch.Tensor, given: torch.Tensor, frame: FrameType) -> None:
        """A transform of ``torch.func`` made of a tensor one that it hands on, or the other way round."""
        self.ledger.wrapping = True
        self._made_of(listeners.NAME, made, self.ledger.inputs([given]), frame)

    def _born(self, name: str, made: torch.Tensor, data: torch.Tensor, frame: FrameType) -> torch.Tensor:
        """A Parameter or Variable was made of ``data``; returns what is handed out for it."""
        if self._changed_by is not None:
            made = self._changed_by.parameter_made(self._moment(frame), name, made, data)
        index = len(self._calls)
        self.ledger.born(self._made_of(name, made, self.ledger.inputs([data]), frame), index)
        return made

    def _made_of(self, name: str, made: torch.Tensor, inputs: tuple[int, ...], frame: FrameType) -> int:
        """Record what no function mode hears: a tensor made of some values. Returns its number."""
        begin, self._frame = _sequence(), frame
        try:
            number = self.ledger.made(made, len(self._calls), False)
            self._append(name, inputs, (number,), begin, False)
        finally:
            self._frame = None
        return number

    def _filled(
        self, name: str, written: list[Any], read: list[Any], carry_out: Callable[[], Any], frame: FrameType
    ) -> Any:
        """A collective of ``torch.distributed`` fills tensors."""
        targets, self._frame = [x for x in leaves(written) if isinstance(x, torch.Tensor)], frame
        try:
            state = self._before_write(name, targets)
            inputs, begin, result = self.ledger.inputs(leaves(read)), _sequence(), carry_out()
            if self._changed_by is not None:
                self._changed_by.after_collective(self._moment(frame), name, targets, leaves(read))
            index = len(self._calls)
            outputs = tuple(self.ledger.made(x, index, True) for x in targets)
            self._frame = frame  # calls that were heard in between, of torch 2.6, have let go of it
            self._append(name, inputs, outputs, begin, state)
        finally:
            self._frame = None
        return result

    def _before_backward(self, losses: list[torch.Tensor], frame: FrameType) -> bool:
        return self.interventions.before_backward(self._moment(frame), self.backwards.begun, losses)

    def _moment(self, frame: FrameType | None = None) -> Moment:
        return Moment(frame or self._frame, self.running.stop, len(self._calls), self.ledger)

    @on_behalf
    def _carry_out(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.autograd.grad:
            return self.backwards.grad(func, args, kwargs)
        return func(*args, **kwargs)

    def _escape(self, name: str, inputs: tuple[int, ...], result: Any, begin: int) -> Any:
        """A value leaves torch: it becomes a value of its own, and what is handed out remembers its number."""
        number = self.ledger.left(len(self._calls))
        self._append(name, inputs, (number,), begin, False)
        if name not in ("__int__", "__index__", "__complex__"):
            tagged_values.note(result, (number,))
        return result if name == "__float__" else tagged_values.follow(result, (number,))

    def _before_write(self, name: str, targets: list[Any]) -> bool:
        """Copy what is about to be written, if it existed before; returns whether the result then outlives the step."""
        if self._changed_by is not None:
            self._changed_by.before_write(self._moment(), name, targets)
        state = False
        for target in targets:
            if not isinstance(target, torch.Tensor) or name in ("requires_grad_", "detach_"):
                continue
            if name in ("numpy", "__array__") and not self.ledger.is_held(target):
                continue
            if self.ledger.is_old(target):
                state |= name not in operations.QUIET and name not in operations.RAW
                if self.preserved is not None:
                    self.preserved.before_write(target)
        return state

    # -- records ------------------------------------------------------------------------------------------------

    def _append(self, name: str, inputs: Any, outputs: Any, begin: int, state: bool) -> None:
        if self._changed_by is not None:
            self._changed_by.recorded(name, inputs, outputs)
        on, frame, running = _is_recording() and not _is_inference(), self._frame, self.running
        regions = () if on or frame is None else self.switches.active(frame, name, inputs)
        (chain, through), module = frames.chains(frame, running.stop, running.waiting), running.inside[-1]
        if self.outer is None:
            self.log.begins.append(begin)
            self.log.numbers.append(len(self._calls))
        else:
            chain, begin = chain + self.outer, -1  # autograd counts in each thread anew
        self._calls.append((len(self._calls), name, inputs, outputs, on, regions, module, chain, begin, state, through))

    def _chains(self, frame: FrameType | None) -> tuple[Chain, Chain]:
        return frames.chains(frame, self.running.stop, self.running.waiting)

    def _unseen(self, name: str, inputs: tuple[int, ...], number: int) -> int:
        here = self._here() or self
        here._append(name, inputs, (number,), _sequence(), False)  # noqa: SLF001  a tracer too
        return len(self._calls) - 1

    def index_at(self, sequence: int) -> int:
        """The index of the call during which autograd's node with this sequence number was made, -1 if before all."""
        return self.log.index_at(sequence)

    def took_part(self) -> Callable[[torch.Tensor], bool]:
        """Tells whether any call of the run was handed a tensor."""
        used = self.log.used()
        return lambda tensor: not used.isdisjoint(self.ledger.versions(tensor))

    def own(self, loss: Any) -> OwnBackward | None:
        """The step's own backward that counts for what it returned: a loss, what it logs of its losses, or no tensor.

        A loss that requires grad and whose history is still there is no matter of the step's own.
        """
        if not introspection.is_a(loss, torch.Tensor):
            return self.backwards.of(None)
        number = self.ledger.known(loss)
        if number is None:
            return None
        if loss.grad_fn is not None:
            sequence = loss.grad_fn._sequence_nr()
            freed = any(sequence in one.sequences for one in self.backwards.passes if one.freed)
            return self.backwards.of(number, sequence if freed else -1) or self.backwards.of_logged(loss, number)
        number = self.log.original(number, self.ledger.makers)
        made = self.log.span(self.ledger.makers[number])
        walked = (sequence for one in self.backwards.passes for sequence in one.sequences if sequence in made)
        return self.backwards.of(number, next(walked, -1))

    def _is_past(self, sequence: int) -> bool:
        return sequence < self.begin

    def _called(self, tensor: torch.Tensor) -> str:
        """The variable that holds a tensor from before the step; the names of the first few are looked up."""
        self._named += 1
        return context.holder(tensor, self._frame, self.running.stop) if self._named <= _NAMED else ""

    def trace(self, loss: Any) -> Trace:
        """The run as frozen data. ``loss``: what the step returned; if no tensor, its last inner backward counts."""
        inner, is_loss = self.own(loss), introspection.is_a(loss, torch.Tensor)
        number = inner.number if inner is not None else self.ledger.use(loss) if is_loss else -1
        self.ledger.came_to(lambda: leaves_of(loss) if inner is None and is_loss else [])
        now, before = self._model.put_in_place(), self._model.held
        return Trace(
            calls=self.log.calls(),
            values=self.ledger.values(),
            regions=self.switches.regions(),
            modules=tuple(self.running.paths),
            begun=self.running.begun(),
            loss=number,
            parameters=dict(self._model.parameters),
            newborn={name: number for name, number in now.items() if name not in before},
            swapped={name: number for name, number in now.items() if name in before},
            trained=frozenset(self._model.trained_values.union(*(one.inputs for one in self.backwards.passes))),
            disabled=self._model.disabled(),
            flagged=dict(self.ledger.flagged),
            late=dict(self.ledger.late),
            unfilled=dict(self.ledger.unfilled),
            rewritten=dict(self.ledger.rewritten),
        )
