"""Which tensor is which: a number for every version of every tensor that a run touches, without keeping any alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from gradkit.core import introspection, operations
from gradkit.core.tensors import has_no_numbers, shape_of
from gradkit.core.trace import Chain, Value
from gradkit.tracing import autograd_graph, tagged_values


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory; the tensor's own id where it has no storage (sparse, functorch)."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, AttributeError):
        return id(tensor)


# Places in what is noted of a value, in the order of the fields of ``Value``.
SHAPE, DTYPE, FLAG, PARAMETER, BUFFER, PYTHON, LEAF, ATTRIBUTE, STRAY, PAST, BIRTH, NAME = range(12)
_MOST_SCALARS = 1000
_quietly: Any = torch._C.DisableTorchFunction  # what is copied here, no mode of the user's hears
_ATOMS = frozenset((int, bool, str, type(None), torch.dtype, torch.device))


def leaves(values: Iterable[Any], depth: int = 0) -> list[Any]:
    """Tensors, and numbers or arrays with origins, inside lists, tuples and dictionaries."""
    found: list[Any] = []
    for value in values:
        kind = type(value)  # an object may claim to be of another
        if issubclass(kind, torch.Tensor):
            found.append(value)
        elif kind in _ATOMS:
            continue
        elif issubclass(kind, (list, tuple, dict)):
            found += leaves(introspection.entries(value), depth + 1) if depth < 4 else ()
        elif issubclass(kind, (float, tagged_values.Float32, tagged_values.Array)):
            found.append(value)
    return found


def tensors_in(result: Any) -> Sequence[torch.Tensor]:
    """The tensors that a call returned."""
    if isinstance(result, torch.Tensor):
        return (result,)
    several = introspection.is_a(result, (tuple, list))
    return [x for x in leaves([result]) if isinstance(x, torch.Tensor)] if several else ()


class Ledger:
    """Numbers tensors by identity, and their versions by in-place writes.

    Args:
        unseen: called with (name, inputs, number) when a tensor turns up that an unseen call made from known values;
            returns the index of the call that stands in for it.
        behind: given a sequence number of autograd's, the outputs of the recorded call that made that node.
        past: whether a node with this sequence number was made before the step began.
        name: given a tensor from before the step, what the running code calls it.

    Attributes:
        wrapping: whether there are tensors that wrap others, as inside ``vmap``.
        scalars: the newest single numbers that calls have made, as copies without history, by number: what a loss
            is put together from.
        flagged: where tensors that the step had computed without a history were told to require grad, by number.
        late: where tensors that the step had met before were told to require grad, by number: how many values there
            were by then, and the user's frames.
        unfilled: parameters that a backward has come to and not filled, as the step had taken their ``requires_grad``
            away since it computed with them: where, as the user's frames and those of a library, by name.
        rewritten: of what a call made by writing into a tensor, the number of what the tensor was before.
    """

    def __init__(
        self,
        unseen: Callable[[str, tuple[int, ...], int], int],
        behind: Callable[[int], tuple[int, ...]],
        past: Callable[[int], bool],
        name: Callable[[torch.Tensor], str] = lambda _: "",
    ) -> None:
        self._unseen, self._outputs_at, self._is_past, self._name = unseen, behind, past, name
        self.makers: list[int] = []
        self._facts: list[list[Any]] = []  # a list for each: a class with slots takes three times as long to make
        self._ids: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._writes: dict[int, tuple[int, int]] = {}
        self._before: dict[int, int] = {}
        self._old: set[int] = set()
        self._held: set[int] = set()
        self.wrapping = False
        self.scalars: dict[int, torch.Tensor] = {}
        self.flagged: dict[int, Chain] = {}
        self.late: dict[int, tuple[int, Chain]] = {}
        self.unfilled: dict[str, tuple[Chain, Chain]] = {}
        self.rewritten: dict[int, int] = {}
        self._switched: dict[str, tuple[Chain, Chain]] = {}

    def known(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor's newest version, None if it was never seen."""
        entry = self._ids.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def versions(self, tensor: torch.Tensor) -> Iterator[int]:
        """The numbers of all versions of a tensor, the newest first."""
        number = self.known(tensor)
        while number is not None:
            yield number
            number = self._before.get(number)

    def alive(self, numbers: Iterable[int]) -> dict[int, torch.Tensor]:
        """Of some values, the tensors whose newest version they are, as far as somebody still holds them."""
        found = {number: reference() for reference, number in self._ids.values()}
        return {number: tensor for number in numbers if (tensor := found.get(number)) is not None}

    def old(self, tensor: torch.Tensor, parameter: str = "", buffer: str = "", attribute: str = "") -> int:
        """Enter a tensor that existed before the step."""
        number = self._enter(tensor, -1, parameter, buffer)
        facts = self._facts[number]
        facts[ATTRIBUTE] = attribute
        facts[PAST] = tensor.grad_fn is not None
        facts[STRAY] = not parameter and isinstance(tensor, torch.nn.Parameter)
        key = storage_key(tensor)
        self._old.add(key)
        if parameter or buffer or attribute:
            self._held.add(key)
        return number

    def made(self, tensor: torch.Tensor, maker: int, in_place: bool) -> int:
        """Enter what a call made, or the new version of what it wrote into."""
        before = self.known(tensor)
        facts = self._facts[before] if before is not None else None
        number = self._enter(tensor, maker, facts[PARAMETER] if facts else "", facts[BUFFER] if facts else "")
        if before is not None:
            self._before[number] = before
            if in_place:
                self.rewritten[number] = before
        if facts and facts[BIRTH] >= 0:
            self.born(number, facts[BIRTH])
        if not self._facts[number][SHAPE]:
            self._copy(tensor, number)
        if in_place or before is not None:
            self._writes[storage_key(tensor)] = (maker, number)
        return number

    def _copy(self, tensor: torch.Tensor, number: int) -> None:
        """Keep a single floating number: in place or not, it may be another one when it is asked for."""
        if type(tensor) is torch.Tensor and tensor.is_floating_point() and not self.wrapping:
            with _quietly():
                self.scalars[number] = tensor.detach().clone()
            if len(self.scalars) > _MOST_SCALARS:
                del self.scalars[next(iter(self.scalars))]

    def born(self, number: int, call: int) -> None:
        """A value is a Parameter or Variable that ``call`` made."""
        self._facts[number][STRAY], self._facts[number][BIRTH] = True, call

    def flag(self, args: Any, kwargs: Any, chains: tuple[Chain, Chain]) -> None:
        """``requires_grad`` of a tensor is about to be set, by the user's frames, and a library's in them."""
        number, on = self.known(args[0]), all(args[1:2]) and kwargs.get("requires_grad", True)
        if number is None:
            return
        parameter = self._facts[number][PARAMETER]
        if on:
            self._switched.pop(parameter, None)
            if self.makers[number] >= 0 and args[0].grad_fn is None:
                self.flagged[number] = chains[0]
            if not parameter and not args[0].requires_grad:
                self.late.setdefault(number, (len(self.makers), chains[0]))
        elif parameter and args[0].requires_grad:
            self._switched[parameter] = chains

    def came_to(self, leaves: Callable[[], Iterable[torch.Tensor]]) -> None:
        """A backward comes to some leaves: autograd fills none that does not require grad by now.

        Source: https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/functions/accumulate_grad.cpp
        """
        for leaf in leaves() if self._switched else ():
            number = None if leaf.requires_grad else self.known(leaf)
            name = "" if number is None else self._facts[number][PARAMETER]
            if name in self._switched:
                self.unfilled.setdefault(name, self._switched[name])

    def left(self, maker: int) -> int:
        """Enter a number, list or array that came out of a tensor."""
        return self._new(maker, [(), None, False, "", "", True, False, "", False, False, -1, ""])

    def use(self, tensor: torch.Tensor) -> int:
        """The number of a tensor that is being used; its ``requires_grad`` counts as it is now."""
        number = self.known(tensor)
        if number is None:
            number = self._adopt(tensor)
        facts, flag = self._facts[number], requires_grad(tensor) if self.wrapping else tensor.requires_grad
        if flag is not facts[FLAG]:
            facts[FLAG], facts[LEAF] = flag, flag and tensor.is_leaf and tensor.requires_grad
        return number

    def inputs(self, found: Iterable[Any]) -> tuple[int, ...]:
        """The numbers of all values that go into a call, and of later writes into their memory."""
        numbers: list[int] = []
        for leaf in found:
            if isinstance(leaf, torch.Tensor):
                entry = self._ids.get(id(leaf))
                if (
                    entry is None
                    or entry[0]() is not leaf
                    or (requires_grad(leaf) if self.wrapping else leaf.requires_grad) is not self._facts[entry[1]][FLAG]
                ):
                    number = self.use(leaf)
                else:
                    number = entry[1]
                numbers.append(number)
                write = self._writes.get(storage_key(leaf)) if self._writes else None
                if write is not None and write[0] > self.makers[number] and write[1] != number:
                    numbers.append(write[1])
            else:
                numbers.extend(tagged_values.origins(leaf) or tagged_values.origins_of_values(leaf))
        return tuple(numbers)

    def is_past(self, sequence: int) -> bool:
        """Whether autograd's node with this sequence number was made before the step began."""
        return self._is_past(sequence)

    def is_old(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's memory existed before the step."""
        self.use(tensor)
        return storage_key(tensor) in self._old

    def is_held(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor shares its memory with a parameter, buffer or attribute of the model."""
        return storage_key(tensor) in self._held

    def values(self) -> tuple[Value, ...]:
        """All versions, by number."""
        rows = zip(self.makers, self._facts, strict=True)
        return tuple(Value(m, tuple(f[SHAPE]), _carries(f[DTYPE]), *f[FLAG:]) for m, f in rows)

    def _enter(self, tensor: torch.Tensor, maker: int, parameter: str, buffer: str) -> int:
        flag, number = requires_grad(tensor) if self.wrapping else tensor.requires_grad, len(self.makers)
        leaf = flag and tensor.is_leaf and tensor.requires_grad
        self.makers.append(maker)
        self._facts.append(
            [shape_of(tensor), tensor.dtype, flag, parameter, buffer, False, leaf, "", False, False, -1, ""]
        )
        self._ids[id(tensor)] = (weakref.ref(tensor), number)
        return number

    def _new(self, maker: int, facts: list[Any]) -> int:
        self.makers.append(maker)
        self._facts.append(facts)
        return len(self.makers) - 1

    def _adopt(self, tensor: torch.Tensor) -> int:
        """A tensor that no recorded call made: by an unseen Function, by NumPy, or before the step."""
        if tensor.grad_fn is not None:
            name, sources = tensor.grad_fn.name().split("Backward")[0], self._behind(tensor.grad_fn, 0)
        elif tensor.device.type == "cpu" and _is_plain(tensor) and tagged_values.any_left():
            name, sources = operations.UNSEEN, tagged_values.origins_of_memory(tensor.data_ptr())
            if not sources and tensor.is_floating_point() and not isinstance(tensor, torch.nn.Parameter):
                sources = tagged_values.origins_of_values(
                    tensor.detach().flatten()[: tagged_values.MOST_VALUES].tolist()
                )
        else:
            sources = ()
        if not sources:
            number = self.old(tensor)
            self._facts[number][NAME] = self._name(tensor)
            return number
        number = self._enter(tensor, -1, "", "")
        self._facts[number][PAST] = tensor.grad_fn is not None and self._is_past(tensor.grad_fn._sequence_nr())
        self.makers[number] = self._unseen(name, sources, number)
        return number

    def meet(self, returned: Any) -> None:
        """Look at what a step returns while the arrays are known that it may share its memory with."""
        if isinstance(returned, torch.Tensor) and not returned.requires_grad and self.known(returned) is None:
            self.use(returned)

    def _behind(self, node: Any, depth: int) -> tuple[int, ...]:
        found: list[int] = []
        for parent, _ in node.next_functions:
            if parent is None:
                continue
            if (variable := autograd_graph.leaf_of(parent)) is not None:
                found.append(self.use(variable))
                continue
            outputs = self._outputs_at(parent._sequence_nr())
            found.extend(outputs if outputs or depth > 8 else self._behind(parent, depth + 1))
        return tuple(dict.fromkeys(found))


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not has_no_numbers(tensor)


def _carries(dtype: torch.dtype | None) -> bool:
    return dtype is not None and (dtype.is_floating_point or dtype.is_complex)


def requires_grad(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or one that it wraps, requires grad: inside ``vmap`` a tensor itself always says no.

    Example:
        >>> seen = []
        >>> ask = lambda x: seen.append((x.requires_grad, requires_grad(x))) or x
        >>> _ = torch.func.vmap(ask)(torch.ones(2, requires_grad=True))
        >>> seen
        [(False, True)]
    """
    functorch = torch._C._functorch
    while not tensor.requires_grad and functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor.requires_grad
