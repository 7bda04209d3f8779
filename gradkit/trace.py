"""Run a step once and keep, for each torch call: what went in and out, whether autograd recorded it, and where.

A ``TorchFunctionMode`` sees every call of ``torch.*`` and ``Tensor.*``, ``.data``, and every switch of grad mode;
module hooks tell which module is running. Only numbers, shapes, code positions and weak references are kept, never
tensors.
Source of the mechanism: https://pytorch.org/docs/stable/torch.overrides.html
"""

from __future__ import annotations

import bisect
import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from gradkit import carriers, frames
from gradkit.autograd import AutogradGraph, graph
from gradkit.ledger import Ledger, leaves
from gradkit.preserve import Preserved
from gradkit.reach import Reached, arrivals, leaves_of, norms
from gradkit.switches import Switches
from gradkit.traces import Call, Trace

_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr

PROPERTIES = frozenset("data T mT H mH real imag".split())
ESCAPES = frozenset("item tolist numpy __array__ __float__ __complex__ __int__ __index__".split())
OVERWRITES = frozenset("zero_ fill_ normal_ uniform_ random_ exponential_ bernoulli_ geometric_ cauchy_".split())
NO_DATA = frozenset(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full "
    "new_empty_strided size dim numel stride is_floating_point is_complex element_size nelement ndimension get_device "
    "storage_offset is_contiguous untyped_storage storage data_ptr __len__ __bool__ is_inference requires_grad_ "
    "retain_grad register_hook register_post_accumulate_grad_hook __repr__ __format__ __hash__ is_same_size equal "
    "allclose is_nonzero _is_all_true can_cast result_type __deepcopy__ __contains__ is_shared is_pinned "
    "__reduce_ex__ __setstate__ is_coalesced is_sparse broadcast_shapes".split()
)
_WRITING = frozenset(
    "__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__".split()
)

_SLOTS = frozenset(vars(nn.Module()))
_BACKWARD: Any = torch.Tensor.backward


@dataclass(frozen=True)
class InnerBackward:
    """A ``backward()`` that the step called itself: on which value, with which graph, and what was reached by then."""

    number: int
    graph: AutogradGraph
    reached: Reached


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

    def __init__(self, model: nn.Module, preserved: Preserved | None = None) -> None:
        super().__init__()
        self.preserved = preserved
        self.switches = Switches(Tracer.run.__code__)
        self.ledger = Ledger(self._unseen, self._outputs_at)
        self._calls: list[tuple[Any, ...]] = []
        self._begins: list[int] = []
        self._stack: list[int] = []
        self._ran: set[int] = set()
        self._stopped = False
        self._held = dict(model.named_parameters(remove_duplicate=False))
        self._backwards: dict[int, InnerBackward] = {}
        self._refused: tuple[RuntimeError, torch.Tensor] | None = None
        self.inner_reached: dict[str, float | None] = {}
        self.begin = 0
        self._frame: FrameType | None = None
        self._modules = [path for path, _ in model.named_modules()]
        self._numbers = {id(module): i for i, module in enumerate(model.modules())}
        self._parameters: dict[str, int] = {}
        for name, parameter in self._held.items():
            known = self.ledger.known(parameter)
            self._parameters[name] = self.ledger.old(parameter, name) if known is None else known
        for name, buffer in model.named_buffers():
            self.ledger.old(buffer, buffer=name)
        for path, module in model.named_modules():
            for name, held in vars(module).items():
                if name in _SLOTS or not isinstance(held, (torch.Tensor, list, tuple, dict)):
                    continue
                for tensor in leaves([held]):
                    if isinstance(tensor, torch.Tensor) and self.ledger.known(tensor) is None:
                        self.ledger.old(tensor, attribute=f"{path}.{name}".lstrip("."))

    # -- the run ------------------------------------------------------------------------------------------------

    def run(self, step: Callable[[], Any]) -> Any:
        """Call ``step()`` once and return what it returned; whatever it raises comes through.

        A ``backward()`` inside the step is carried out, and what it reached is kept in ``inner_reached``. Where it
        would raise because nothing requires grad, the run ends there, and the tensor it was called on is returned.
        """
        before = module_hooks.register_module_forward_pre_hook(self._enter_module)
        after = module_hooks.register_module_forward_hook(self._leave_module, always_call=True)
        stepping = register_optimizer_step_pre_hook(self._before_step)
        self._original_backward: Callable[..., None] = torch.autograd.backward
        torch.autograd.backward = self._backward
        self.begin = _sequence()
        try:
            with _eager(), carriers.kept(), self.switches, self:
                return step()
        except Exception as error:
            if self._refused is None or self._refused[0] not in _chain(error):
                raise
            self._stopped = True
            return self._refused[1]
        finally:
            torch.autograd.backward = self._original_backward
            self._refused = None
            for handle in (stepping, after, before):
                handle.remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self.preserved is not None:
            self.preserved.optimizer(optimizer)

    def _enter_module(self, module: nn.Module, _args: Any) -> None:
        number = self._numbers.get(id(module), -1)
        if number < 0 and self.preserved is not None:
            self.preserved.watch(module)
        self._stack.append(number)
        self._ran.add(number)

    def _leave_module(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()

    # -- one call -----------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = func.__self__.__name__
            if name not in PROPERTIES:
                return func(*args, **kwargs)
        elif name == "__set__":
            name = f"{func.__self__.__name__}="
            if name != "data=":
                return func(*args, **kwargs)
        self._frame = sys._getframe(1)
        try:
            if name == "_set_grad_enabled":
                return func(*args) if self.switches.record(bool(args[0]), self._frame) else None
            if name == "backward" and func is _BACKWARD:
                return func(*args, **kwargs)
            return self.call(func, name, args, kwargs)
        finally:
            self._frame = None  # a frame holds its tensors

    def _backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Stands in for ``torch.autograd.backward`` while the step runs, which ``Tensor.backward`` ends in as well."""
        losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        loss = next((x for x in losses if x.requires_grad), losses[0])
        if not loss.requires_grad:
            self._refuse(lambda: self._original_backward(tensors, *args, **kwargs), loss)
        number, drawn = self.ledger.use(loss), graph(losses, self._held)
        preserved = self.preserved
        if preserved is not None:
            for leaf in (leaf for one in losses for leaf in leaves_of(one)):
                preserved.leaf(leaf)
            preserved.clear_grads(only_old=True)
        with contextlib.ExitStack() as stack:
            arrived = stack.enter_context(arrivals(preserved)) if preserved is not None else {}
            self._original_backward(tensors, *args, **kwargs)
        self.inner_reached.update({**arrived, **norms(self._held)})
        reached = Reached(dict(self.inner_reached), True, "", loss.numel())
        self._backwards.pop(number, None)
        self._backwards[number] = InnerBackward(number, drawn, reached)

    def _refuse(self, call: Callable[[], Any], loss: torch.Tensor) -> Any:
        """Let torch raise what it raises where nothing requires grad, and remember what it was asked of."""
        try:
            return call()
        except RuntimeError as error:
            self._refused = (error, loss)
            raise

    def call(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Carry out one call and record it."""
        found = list(leaves(args)) + (list(leaves(kwargs.values())) if kwargs else [])
        writes = (name[-1:] == "_" and name[-2:] != "__") or name in _WRITING or name == "data="
        targets = leaves(args if name.startswith("_fused") else args[:1]) if writes or kwargs.get("inplace") else ()
        state = self._before_write(name, [*targets, *leaves([kwargs.get("out")]), *_written_unseen(name, args, kwargs)])
        if name in NO_DATA:
            inputs: tuple[int, ...] = ()
        else:
            inputs = self.ledger.inputs(found[1:] if name in OVERWRITES or name == "data=" else found)
            if name in _FROM_PLAIN and not inputs:
                inputs = carriers.origins_of_values(args[0] if args else kwargs.get("data"))
        begin = _sequence()
        result = self.changed(name, inputs, found, self._carry_out(func, args, kwargs))
        if name in ESCAPES:
            return self._escape(name, inputs, result, begin)
        if name == "__setitem__" or name == "data=":
            made: Any = args[:1]
        elif isinstance(result, torch.Tensor):
            made = (result,)
        else:
            made = (
                [x for x in leaves([result]) if isinstance(x, torch.Tensor)]
                if isinstance(result, (tuple, list))
                else ()
            )
            made = made or (found[:1] if writes else ())
        if made and name != "requires_grad_":
            index = len(self._calls)
            outputs = tuple(self.ledger.made(x, index, writes) for x in made)
            followed = any(not isinstance(x, torch.Tensor) and type(x) is not float for x in found)
            self._append(name, inputs, outputs, begin, state, followed)
        return result

    def changed(self, name: str, inputs: tuple[int, ...], found: list[Any], result: Any) -> Any:
        """The result that the step gets to see: here, the true one. Reruns undo cuts by another."""
        return result

    def _carry_out(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is not torch.autograd.grad:
            return func(*args, **kwargs)
        outputs = args[0] if args else kwargs["outputs"]
        first = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        if first.requires_grad:
            return func(*args, **kwargs)
        return self._refuse(lambda: func(*args, **kwargs), first)

    def _escape(self, name: str, inputs: tuple[int, ...], result: Any, begin: int) -> Any:
        """A value leaves torch: it becomes a value of its own, and what is handed out remembers its number."""
        number = self.ledger.left(len(self._calls))
        self._append(name, inputs, (number,), begin, False, False)
        if name not in ("__int__", "__index__", "__complex__"):
            carriers.note(result, (number,))
        return result if name == "__float__" else carriers.follow(result, (number,))

    def _before_write(self, name: str, targets: list[Any]) -> bool:
        """Copy what is about to be written, if it existed before; returns whether the result then outlives the step."""
        state = False
        for target in targets:
            if not isinstance(target, torch.Tensor) or name in ("requires_grad_", "detach_"):
                continue
            if name in ("numpy", "__array__") and not self.ledger.is_held(target):
                continue
            if self.ledger.is_old(target):
                state = name not in _QUIET
                if self.preserved is not None:
                    self.preserved.before_write(target)
        return state

    # -- records ------------------------------------------------------------------------------------------------

    def _append(self, name: str, inputs: Any, outputs: Any, begin: int, state: bool, followed: bool) -> None:
        on = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        frame = self._frame
        regions = () if on or frame is None else self.switches.active(frame)
        chain = frames.chain(frame, Tracer.run.__code__)
        module = self._stack[-1] if self._stack else -1
        self._begins.append(begin)
        self._calls.append(
            (len(self._calls), name, inputs, outputs, on, regions, module, chain, begin, state, followed)
        )

    def _unseen(self, name: str, inputs: tuple[int, ...], number: int) -> int:
        self._append(name, inputs, (number,), _sequence(), False, name == "from_numpy")
        return len(self._calls) - 1

    def index_at(self, sequence: int) -> int:
        """The index of the call during which autograd's node with this sequence number was made, -1 if before all."""
        return bisect.bisect_right(self._begins, sequence) - 1

    def _outputs_at(self, sequence: int) -> tuple[int, ...]:
        index = self.index_at(sequence)
        outputs: tuple[int, ...] = self._calls[index][3] if index >= 0 else ()
        return outputs

    def backward_of(self, loss: Any) -> InnerBackward | None:
        """The step's own backward of the loss that it returned; its last one if it returned no tensor."""
        if isinstance(loss, torch.Tensor):
            number = self.ledger.known(loss)
            inner = self._backwards.get(number) if number is not None else None
        else:
            inner = next(reversed(self._backwards.values()), None)
        return None if inner is None else replace(inner, reached=replace(inner.reached, norms=dict(self.inner_reached)))

    def trace(self, loss: Any) -> Trace:
        """The run as frozen data. ``loss``: what the step returned; if no tensor, its last inner backward counts."""
        inner = self.backward_of(loss)
        number = inner.number if inner is not None else self.ledger.use(loss) if isinstance(loss, torch.Tensor) else -1
        return Trace(
            calls=tuple(Call(*call) for call in self._calls),
            values=self.ledger.values(),
            regions=self.switches.regions(),
            modules=tuple(self._modules),
            loss=number,
            parameters=dict(self._parameters),
            ran=frozenset(self._modules[i] for i in self._ran if i >= 0),
            stopped=self._stopped,
        )


def _eager() -> contextlib.AbstractContextManager[object]:
    """Run what ``torch.compile`` compiled as it was written: the user's lines are not in compiled code."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def _chain(error: BaseException | None) -> list[BaseException]:
    """An exception and those that it was raised from."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


_FROM_PLAIN = frozenset("tensor as_tensor asarray new_tensor".split())
_QUIET = frozenset("batch_norm instance_norm embedding embedding_bag numpy __array__".split())


def _written_unseen(name: str, args: Any, kwargs: Any) -> list[Any]:
    """Tensors that a call may write without its name saying so, or hand out to be written through NumPy."""
    if name in ("batch_norm", "instance_norm"):
        return [*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var")]
    if name in ("embedding", "embedding_bag") and (
        kwargs.get("max_norm") is not None or args[3:4] not in ((), (None,))
    ):
        return [*args[1:2], kwargs.get("weight")]
    return list(args[:1]) if name in ("numpy", "__array__") else []
