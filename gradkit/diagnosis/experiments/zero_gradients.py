"""Why a gradient is exactly zero in this run, though no derivative is zero everywhere: what the last call that was
handed a gradient multiplied it by, or where its slope is flat.

The step is run a few times in a row first: a gradient that comes back once others have moved is meant to be zero
here, as behind a factor or a gate that starts at zero. What stays zero is asked about in one more run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gradkit.core.tensors import has_no_numbers
from gradkit.core.trace import Call, Trace
from gradkit.diagnosis.experiments import lost_gradients
from gradkit.diagnosis.experiments.trial import trial
from gradkit.tracing import backward
from gradkit.tracing.autograd_graph import leaf_of
from gradkit.tracing.interventions import Instead, Intervention, Moment
from gradkit.tracing.run import Session
from gradkit.tracing.tracer import Tracer

STEPS = 4
INACTIVE, CLAMPED, OUTSIDE, MASKED, IGNORED, ITSELF, FACTOR, WEIGHT, ONE_CLASS, SAMPLED, CANCELS, PADDED = (
    "inactive", "clamped", "outside", "masked", "ignored", "itself", "factor", "weight", "one_class", "sampled",
    "cancels", "padded",
)  # fmt: skip
_GATES = re.compile(r"(MkldnnRnnLayer|CudnnRnn|MiopenRnn|ThnnFused\w+Cell)Backward\d+$")
_KINDS = (
    (INACTIVE, re.compile(r"(Relu|Threshold|Gelu|Silu|Mish|Elu|LeakyRelu|RreluWithNoise|Softplus)Backward\d+$")),
    (
        CLAMPED,
        re.compile(
            r"(Clamp\w*|Hardtanh|Hardsigmoid|Hardswish|Maximum|Minimum|Fmax|Fmin|Sigmoid|LogSigmoid|Tanh|Softmax|Erfc?|"
            r"FakeQuantize\w+)Backward\d+$"
        ),
    ),
    (CLAMPED, _GATES),
    (OUTSIDE, re.compile(r"(Exp2?|Expm1|Hardshrink|Softshrink|GridSampler\dD|Fmod|Remainder)Backward\d+$")),
    (MASKED, re.compile(r"(Where|MaskedFill|MaskedScatter|MaskedSelect)Backward\d+$")),
    (IGNORED, re.compile(r"NllLoss\w*Backward\d+$")),
    (SAMPLED, lost_gradients.DRAWS),
    (PADDED, re.compile(r"Embedding(Bag|Dense|Sparse)?Backward\d+$")),
    (ITSELF, re.compile(r"(MseLoss|SmoothL1Loss|HuberLoss|Abs|Pow|Norm|LinalgVectorNorm)Backward\d+$")),
    (FACTOR, re.compile(r"(Mul|Div|Mm|Bmm|Mv|Dot|Addmm|Addmv|Baddbmm|Convolution|Addcmul)Backward\d+$")),
)
_SHAPES = frozenset((
    "T", "mT", "t", "transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "expand", "contiguous", "to",
    "flatten",
))  # fmt: skip
_FEW = 4
_BOUND = -1.0  # where the slope ends is what comes out
_LEAST = -104.0  # of 32 bits; below, exp is 0
_MASK = 0.01  # of a number: what differs by less is shut out by one number that was added to all, as a mask is
_EDGES = {
    "relu": 0.0, "relu_": 0.0, "clamp": _BOUND, "clip": _BOUND, "clamp_": _BOUND, "hardtanh": _BOUND, "sigmoid": 16.0,
    "sigmoid_": 16.0, "tanh": 9.0, "tanh_": 9.0, "hardsigmoid": _BOUND, "gelu": 0.0, "silu": 0.0, "mish": 0.0,
    "elu": 0.0, "celu": 0.0, "selu": 0.0, "softplus": 0.0, "exp": _LEAST, "exp_": _LEAST, "erf": 4.0,
}  # fmt: skip
_BOTH_SIDES = ("sigmoid", "sigmoid_", "tanh", "tanh_")
_FAR_OUT = 4  # times where the slope ends, as a rule
_ROWS, _MANY = 8, 16  # examples, and numbers: fewer may all be far out by chance
_PULLED = 0.1  # a part of them: what the loss holds at a bound, as a policy that has learned it, is not pulled back
_CAPS = re.compile(r"(clamp|clip|hardtanh|relu|threshold|maximum|minimum)")
_PART = 0.05  # an optimizer that has just stepped over a bound is nearer
_PRODUCTS = frozenset("mul mul_ __mul__ __rmul__ __imul__ matmul __matmul__ __rmatmul__ mm bmm mv linear".split())


@dataclass(frozen=True)
class Flat:
    """A call that was handed a gradient, and handed on zeros.

    Attributes:
        kind: ``"inactive"`` (no input of a relu is positive), ``"clamped"`` (every input is beyond the bounds, or so
            far out that the slope is 0), ``"masked"``, ``"ignored"`` (no label counts), ``"itself"`` (a difference
            that is zero everywhere), ``"sampled"`` (a draw hands on zeros), ``"factor"`` (what it is multiplied by is
            zero), ``"weight"`` (that is a number of Python's), ``"padded"`` (every row that it looks up is padding) or
            ``"cancels"`` (it hands on a gradient, and others hand on the opposite of it).
        call: the call; of a factor, the one that multiplies by it.
        parameters: those that get nothing but zeros because of it.
        origin: of a factor, the number of the first value that was zero on the way to it; -1 if there is none.
        far: every input of the call lies on one side of its slope, by more than they differ among themselves; of a
            factor, likewise of the call that made the zero.
        beyond: every input of the call lies on one side of a bound, and not just by the last step; of a factor,
            likewise of the call that made the zero.
        pulled: the inputs of the call lie far out on both sides of its slope, and the loss would have some come back.
        padded: of a factor, the call that made the zero looks up nothing but rows of padding.
    """

    kind: str
    call: Call
    parameters: tuple[str, ...]
    origin: int = -1
    far: bool = False
    beyond: bool = False
    pulled: bool = False
    padded: bool = False


@dataclass(frozen=True)
class Zeros:
    """What is known of parameters whose gradient is exactly zero.

    Attributes:
        woken: those that get a gradient in one of the next steps, once others have moved.
        flat: why the others get none, as far as that can be told.
        runs: how many times the step was run.
    """

    woken: tuple[str, ...] = ()
    flat: tuple[Flat, ...] = ()
    runs: int = 0


def behind_gates(trace: Trace, gates: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Those whose ways to the loss all lead through a product with a factor that is zero and about to move.

    Their gradient comes back with the first step of that factor: there is nothing to be tried.

    Args:
        gates: parameters of nothing but zeros that have a gradient other than zeros.

    Example:
        >>> from gradkit.core.trace import Value
        >>> call = Call(0, "mul", (0, 1), (2,), True, (), -1, (), 0)
        >>> values = Value(-1, (), True, True, "w"), Value(-1, (), True, True, "gate"), Value(0, (), True, True)
        >>> behind_gates(Trace((call,), values, (), (), 2, {"w": 0, "gate": 1}), ["gate"], ["w"])
        ('w',)
    """
    closed = {trace.parameters[name] for name in gates if name in trace.parameters}
    for call in trace.calls:
        if call.name in _SHAPES and closed.issuperset(call.inputs) and call.inputs:
            closed.update(call.outputs)
    return tuple(name for name in names if name in trace.parameters and _is_behind(trace, closed, name))


def _is_behind(trace: Trace, closed: set[int], name: str) -> bool:
    flowing, passed = {trace.parameters[name]}, False
    for call in trace.calls:
        if not flowing.intersection(call.inputs):
            continue
        if closed.intersection(_factors(call)) and call.name in _PRODUCTS:
            passed = True
        else:
            flowing.update(call.outputs)
    return passed and trace.loss not in flowing


def ask(session: Session, names: Sequence[str]) -> Zeros:
    """Why the gradient of some parameters is zero, and whether it stays so.

    Example:
        >>> from gradkit.state.preserve import Preserved
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
        >>> _ = torch.nn.init.constant_(model[0].bias, -9.0)
        >>> with Preserved(model) as preserved:
        ...     session = Session(lambda: (model(torch.ones(1, 1)) - 1).square().sum(), model, preserved)
        ...     [one.kind for one in ask(session, ["0.bias"]).flat]
        ['inactive']
    """
    parameters = session.preserved.parameters
    wanted = {id(parameters[name]): name for name in names}
    made = trial(session, steps=STEPS, until=frozenset(wanted))
    runs = made.steps + bool(made.error)
    woken = tuple(name for key, name in wanted.items() if key in made.later)
    still = [name for name in names if name not in woken]
    if not still or made.steps < min(2, STEPS):
        return Zeros(woken, (), runs)
    watch = _Watch()
    flat = session.ask(partial(_flat, watch, session, still), watch)
    return Zeros(woken, flat, runs + 1)


def _flat(watch: _Watch, session: Session, names: Sequence[str], tracer: Tracer, loss: Any) -> tuple[Flat, ...]:
    try:
        own = tracer.own(loss) is not None
        if not own and isinstance(loss, torch.Tensor) and loss.grad_fn is not None:
            watch.hang_on([loss])
            backward.backward(loss, session.preserved)
        trace = tracer.trace(loss)
        found: dict[tuple[str, int, int], dict[str, None]] = {}
        for name in names:
            for node, kind in watch.ends(session.preserved.parameters[name]):
                index = tracer.index_at(node._sequence_nr())
                watch.compare(index, node)
                if index >= 0 and (kind != PADDED or index in watch.padded):
                    told = _of_call(watch, trace, kind, trace.calls[index], trace.parameters.get(name, -1))
                    found.setdefault(told, {})[name] = None
        return tuple(
            Flat(
                kind, trace.calls[index], tuple(told), origin, slope in watch.far, slope in watch.beyond,
                kind == CLAMPED and index in watch.pulled, kind == FACTOR and slope in watch.padded,
            )
            for (kind, index, origin), told in found.items()
            for slope in [_flattens(trace, index, origin)]
        )  # fmt: skip
    finally:
        watch.clear()


def _of_call(watch: _Watch, trace: Trace, kind: str, call: Call, parameter: int) -> tuple[str, int, int]:
    """What a node of a kind comes down to: its own call, or what made the zero that it multiplies by.

    Args:
        parameter: the number of the one that gets only zeros: what it flows into is the other factor.
    """
    if kind != FACTOR:
        return kind, call.index, -1
    zero = [n for n in _factors(call) if n in watch.zero]
    other = [n for n in zero if parameter not in trace.sources([n], lambda one: trace.values[one].requires_grad)]
    if not other and not zero:
        return (WEIGHT if call.index in watch.by_zero else FACTOR), call.index, -1
    origin = (other or zero)[0]
    while (maker := trace.values[origin].maker) >= 0 and maker not in watch.padded:
        inner = next((n for n in _factors(trace.calls[maker]) if n in watch.zero and n != origin), -1)
        if inner < 0:
            break
        origin = inner
    return FACTOR, call.index, origin


def _flattens(trace: Trace, index: int, origin: int) -> int:
    return trace.values[origin].maker if origin >= 0 else index


def _factors(call: Call) -> tuple[int, ...]:
    """What a call computes with, without what it only adds at the end."""
    if call.name in ("addmm", "addmv", "baddbmm", "addcmul"):
        return call.inputs[1:3]
    return call.inputs[:2] if call.name == "linear" or call.name.startswith("conv") else call.inputs


class _Watch(Intervention):
    """Watches which values are zero throughout, and through which nodes a gradient ends.

    Attributes:
        zero: numbers of values that hold nothing but zeros.
        by_zero: indices of the calls that were handed the number 0.
        far: indices of the calls whose inputs are all far on one side of the slope.
        beyond: indices of the calls whose inputs all lie beyond a bound, by more than the last steps add up to.
        pulled: indices of the calls whose inputs lie far out on both sides, some of which the loss would have back.
        padded: indices of the calls that look up nothing but rows of padding.
    """

    def __init__(self) -> None:
        self.zero: set[int] = set()
        self.by_zero: set[int] = set()
        self.far: set[int] = set()
        self.beyond: set[int] = set()
        self.pulled: set[int] = set()
        self.padded: set[int] = set()
        self._positive: dict[int, torch.Tensor] = {}
        self._pulls: dict[int, torch.Tensor] = {}
        self._ranges: dict[int, tuple[float, float]] = {}
        self._sides: dict[int, tuple[float, float, float]] = {}
        self._nodes: dict[int, Any] = {}
        self._handed: dict[int, tuple[bool, list[bool]]] = {}
        self._handles: list[Any] = []

    def clear(self) -> None:
        """Let go of the graph."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._nodes, self._handed = [], {}, {}
        self._positive, self._pulls = {}, {}

    def compare(self, index: int, node: Any) -> None:
        """Take note of a call that is flat at both ends, if what its node was handed leads inwards for a part."""
        positive, pull = self._positive.get(index), self._pulls.get(id(node))
        if positive is not None and pull is not None and pull.shape == positive.shape:
            inwards = torch.where(positive, pull > 0, pull < 0)
            if float(inwards.double().mean()) >= _PULLED:
                self.pulled.add(index)

    def before_call(self, moment: Moment, func: Any, args: Any, kwargs: Any) -> Instead:
        """Take note of a number of Python's that is zero."""
        if any(type(one) in (int, float, bool) and one == 0 for one in args):
            self.by_zero.add(moment.index)
        if getattr(func, "__name__", "") in ("embedding", "embedding_bag") and _is_all_padding(args, kwargs or {}):
            self.padded.add(moment.index)
        if getattr(func, "__name__", "") == "softmax" and args and _is_torn_apart(args[0], *args[1:2], **kwargs or {}):
            self.far.add(moment.index)
        if args and getattr(func, "__name__", "") in _BOTH_SIDES and _is_far_out(func.__name__, args[0]):
            self._positive[moment.index] = args[0].detach() > 0
        side = _side(getattr(func, "__name__", ""), args[0]) if args else None
        if side is not None:
            self._sides[moment.index] = side
        if args and _CAPS.match(getattr(func, "__name__", "")) and (lowest_and_highest := _range(args[0])) is not None:
            self._ranges[moment.index] = lowest_and_highest
        return func, args, kwargs

    def after_call(self, moment: Moment, name: str, inputs: tuple[int, ...], given: Sequence[Any], result: Any) -> Any:
        """Look at what was given, and hand the result on as it is."""
        if moment.index in self._sides and _is_far(*self._sides.pop(moment.index), result):
            self.far.add(moment.index)
        if moment.index in self._ranges and _is_beyond(*self._ranges.pop(moment.index), result):
            self.beyond.add(moment.index)
        for one in given:
            if isinstance(one, torch.Tensor) and is_zero(one):
                number = moment.ledger.known(one)
                if number is not None:
                    self.zero.add(number)
        return result

    def before_backward(self, moment: Moment, count: int, losses: Sequence[torch.Tensor]) -> bool:
        """Watch a backward of the step's own."""
        self.hang_on(losses)
        return True

    def hang_on(self, losses: Iterable[torch.Tensor]) -> None:
        """Watch the backward of some losses."""
        for loss in losses:
            for node in backward.nodes_of(loss):
                if id(node) not in self._nodes:
                    self._nodes[id(node)] = node
                    if leaf_of(node) is None:
                        self._handles.append(node.register_hook(partial(self._passes, id(node))))

    def _passes(self, key: int, handed_on: Any, handed: Any) -> None:
        was, before = self._handed.get(key, (False, [False] * len(handed_on)))
        now = [_holds_more(one) for one in handed_on]
        self._handed[key] = (
            was or any(map(_holds_more, handed)), [a or b for a, b in zip(before, now, strict=False)],
        )  # fmt: skip
        if self._positive and len(handed) == 1 and not any(now) and _holds_more(handed[0]):
            self._pulls[key] = handed[0].detach().sign().to(torch.int8)

    def ends(self, parameter: torch.Tensor) -> Iterator[tuple[Any, str]]:
        """The nodes that were handed a gradient, and handed on only zeros towards a parameter; with their kinds.

        Of several that handed on what adds up to zeros, each.

        Nothing, if there is one of which no kind is known: then that is not all there is to say.
        """
        users: dict[int, list[tuple[int, int]]] = {}
        for key, node in self._nodes.items():
            for place, (parent, _) in enumerate(node.next_functions if leaf_of(node) is None else ()):
                if parent is not None:
                    users.setdefault(id(parent), []).append((key, place))
        waiting = [key for key, node in self._nodes.items() if leaf_of(node) is parameter]
        seen, found = set(waiting), list[tuple[Any, str]]()
        while waiting:
            for key, place in users.get(waiting.pop(), ()):
                handed, on = self._handed.get(key, (False, []))
                if not handed:
                    waiting += [key] if key not in seen else []
                    seen.add(key)
                else:
                    ended = place >= len(on) or not on[place]
                    found.append((self._nodes[key], _kind(self._nodes[key], on) if ended else CANCELS))
        if all(kind for _, kind in found):
            yield from found


def _kind(node: Any, handed_on: Sequence[bool]) -> str:
    """The kind of a node; of a whole recurrent layer only if nothing gets past it: it may be given zeros."""
    if _GATES.match(node.name()) and any(handed_on):
        return ""
    return next((kind for kind, pattern in _KINDS if pattern.match(node.name())), "")


def _holds_more(grad: Any) -> bool:
    """Whether a gradient holds anything but zeros."""
    return backward.is_strided(grad) and not has_no_numbers(grad) and bool((grad != 0).any())


def _is_all_padding(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether every index that an embedding looks up is its ``padding_idx``.

    Example:
        >>> table, rows = torch.ones(3, 2), torch.tensor([2, 2])
        >>> _is_all_padding((rows, table), {"padding_idx": -1}), _is_all_padding((rows, table), {"padding_idx": 0})
        (True, False)
    """
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    indices = next((one for one in tensors if not one.is_floating_point()), kwargs.get("input"))
    table = next((one for one in tensors if one.is_floating_point()), kwargs.get("weight"))
    padding = kwargs.get("padding_idx", next((one for one in args[2:3] if type(one) is int), None))
    if not isinstance(indices, torch.Tensor) or not isinstance(table, torch.Tensor) or padding is None:
        return False
    if has_no_numbers(indices) or not table.dim() or not indices.numel():
        return False
    return bool((indices == (padding + len(table) if padding < 0 else padding)).all())


def _side(name: str, given: Any) -> tuple[float, float, float] | None:
    """Where a function stops having a slope, and the mean and the spread of what it is given; None if it is no such."""
    known = name in _EDGES and backward.is_strided(given) and not has_no_numbers(given)
    if not known or given.numel() < _FEW or not given.is_floating_point():
        return None
    return _EDGES[name], float(given.detach().double().mean()), float(given.detach().double().std())


def _is_far_out(name: str, given: Any) -> bool:
    """Whether what a function with two flat ends is given lies beyond its slope, most of it far, in many examples."""
    if not backward.is_strided(given) or has_no_numbers(given) or not given.is_floating_point():
        return False
    if given.dim() < 2 or given.shape[0] < _ROWS or given.numel() < _MANY:
        return False
    size = given.detach().abs().double()
    return bool(size.min() > _EDGES[name] * 0.9) and bool(size.median() > _FAR_OUT * _EDGES[name])


def _is_torn_apart(given: Any, dim: Any = None, **_: Any) -> bool:
    """Whether a softmax has one 1 in each row and zeros beside it, from numbers twice as far apart as that takes."""
    known = backward.is_strided(given) and not has_no_numbers(given) and given.is_floating_point()
    if not known or type(dim) is not int or not given.dim() or given.shape[dim] < 2 or not given.numel():
        return False
    first, second = given.detach().double().topk(2, dim).values.unbind(dim)
    smallest = torch.finfo(given.dtype).smallest_normal * torch.finfo(given.dtype).eps
    return bool((first - second).mean() > 2 * -math.log(smallest))


def _is_far(edge: float, mean: float, spread: float, result: Any) -> bool:
    """Whether all that a function was given lies on one side of its slope, three standard deviations from it."""
    out = result.detach().flatten() if backward.is_strided(result) and result.numel() else None
    if out is None or not bool((out == out[0]).all()):
        return False
    if edge == _BOUND:
        return abs(mean - float(out[0])) > 3 * spread
    if edge == _LEAST and spread < _MASK * abs(mean):
        return False
    return (abs(mean) if edge > 0 else -mean) - abs(edge) > 3 * spread


def _range(given: Any) -> tuple[float, float] | None:
    """The lowest and the highest number of a tensor."""
    if not backward.is_strided(given) or has_no_numbers(given) or not given.numel() or not given.is_floating_point():
        return None
    return float(given.detach().min()), float(given.detach().max())


def _is_beyond(lowest: float, highest: float, result: Any) -> bool:
    """Whether all that a bound was given lies on one side of it, by more than a part of the bound itself."""
    out = _range(result)
    if out is None or out[0] != out[1] or lowest <= out[0] <= highest:
        return False
    return min(abs(lowest - out[0]), abs(highest - out[0])) > _PART * abs(out[0])


def is_zero(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds numbers, and nothing but zeros."""
    plain = backward.is_strided(tensor) and not has_no_numbers(tensor) and tensor.numel() > 0
    return plain and not bool((tensor != 0).any())
