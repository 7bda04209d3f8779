"""What one traced forward pass leaves behind: frozen data, no tensors, no objects of the user's."""

from __future__ import annotations

import functools
import itertools
import opcode
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType

from gradkit.core.records import Location

Point = tuple[CodeType, int]
Chain = tuple[Point, ...]
Key = tuple[object, ...]


_PRECALL = opcode.opmap.get("PRECALL", -1)


def spot(chain: Chain) -> Key:
    """Equal for the same innermost place in the code. Code that reads alike is equal whatever file it stands in.

    Python 3.11 calls in two instructions, and once it has run them often enough in the first of the two.
    """
    if not chain:
        return ()
    code, at = chain[0]
    if _PRECALL >= 0 and 0 <= at < len(code.co_code) and code.co_code[at] == _PRECALL:
        at += 4  # the instruction and its cache
    return (code.co_filename, (code, at))


BLOCK, DECORATOR, SWITCH, PRESET = "block", "decorator", "switch", "preset"
INFERENCE, CHECKPOINT, FUNCTION, SAMPLE = "inference", "checkpoint", "function", "sample"
BACKWARD = "backward"
_SIDE_BY_SIDE = frozenset(("broadcast_tensors",))
OF_HOOKS = "BackwardHookFunction"  # torch's own, around a module with hooks: what it hands on is a view, never a leaf


@dataclass(frozen=True)
class Region:
    """A stretch of the run in which autograd recorded nothing.

    Attributes:
        kind: what switched recording off: ``"block"`` (a ``with``), ``"decorator"``, ``"switch"``
            (``set_grad_enabled(False)`` as a call), ``"preset"`` (off before the step began), ``"inference"``,
            ``"checkpoint"`` (reentrant), ``"function"`` (inside a custom autograd Function), ``"sample"``
            (``Distribution.sample``) or ``"backward"`` (in a hook, while a backward of the step's runs).
        key: equal for every entry of the same place in the code.
        chain: the user's frames when it was entered, innermost first.
        place: of a decorated function of the user's, where its decorator stands.
        via: name of the library function that opened it, ``""`` if the user's own code did.
        decorated: it was opened by a decorator (of a user's or a library's function).
        given: of a custom Function, the numbers of the values that were handed to its ``apply``.
        hidden: likewise, of those that stand in a container which was handed over: autograd sees
            none of them.
        through: as in ``Call``, when it was entered.
    """

    kind: str
    key: Key
    chain: Chain
    place: Location | None = None
    via: str = ""
    decorated: bool = False
    given: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    through: Chain = field(default=(), compare=False)


@dataclass(frozen=True)
class Call:
    """One call of a torch function, as the user's code made it.

    Attributes:
        name: torch's name: ``"linear"``, ``"detach"``, ``"data"``, ``"__setitem__"``.
        inputs, outputs: numbers of the values that went in and came out.
        grad_on: whether autograd was recording.
        regions: indices of the regions that kept it from recording; empty if ``grad_on``.
        module: index into ``Trace.modules`` of the module whose forward was running, -1 outside of any.
        chain: the user's frames, innermost first.
        sequence: autograd's sequence number when the call began.
        writes_state: it wrote in place into a tensor that existed before the step.
        through: the frames of installed libraries that the innermost of the user's has led to, innermost first.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    grad_on: bool
    regions: tuple[int, ...]
    module: int
    chain: Chain
    sequence: int
    writes_state: bool = False
    through: Chain = ()

    @property
    def key(self) -> Key:
        """Equal for every run of the same call in the code."""
        return (self.name, *spot(self.chain))

    def made_of(self, output: int) -> tuple[int, ...]:
        """The inputs that an output is computed from: of tensors that are brought to one shape, each from its own.

        Example:
            >>> Call(0, "broadcast_tensors", (0, 1), (2, 3), True, (), -1, (), 0).made_of(3)
            (1,)
        """
        if self.name in _SIDE_BY_SIDE and len(self.inputs) == len(self.outputs):
            return self.inputs[(at := self.outputs.index(output)) : at + 1]
        return self.inputs

    def flowing_on(self, numbers: Collection[int]) -> tuple[int, ...]:
        """The outputs that are computed from any of some values."""
        if self.name in _SIDE_BY_SIDE:
            return tuple(one for one in self.outputs if not set(self.made_of(one)).isdisjoint(numbers))
        return self.outputs


@dataclass(frozen=True)
class Value:
    """One version of one tensor (or of a number or array that came out of one).

    Attributes:
        maker: index of the call that made it, -1 if it existed before or was made where no call is seen.
        shape: its shape.
        floating: whether its dtype can carry a gradient.
        requires_grad: when it was last used.
        parameter: its name if it is a parameter of the model, else ``""``.
        buffer: its name if it is a buffer of the model, else ``""``.
        python: it is a number, a list or an array, not a tensor.
        leaf: it is a leaf that requires grad.
        attribute: the plain attribute of a module that held it when the step began (``"encoder._cache"``), else ``""``.
        stray: it is an ``nn.Parameter`` that the model does not have.
        past: its history was recorded before the step began.
        birth: index of the call that made it a Parameter or Variable in this step, -1 for any other.
        name: of a tensor from before the step, the variable that held it when it was first used, ``""`` if none did.
    """

    maker: int
    shape: tuple[int, ...]
    floating: bool
    requires_grad: bool
    parameter: str = ""
    buffer: str = ""
    python: bool = False
    leaf: bool = False
    attribute: str = ""
    stray: bool = False
    past: bool = False
    birth: int = -1
    name: str = ""


@dataclass(frozen=True)
class Trace:
    """A whole forward pass.

    Attributes:
        calls, values, regions: as above, by index.
        modules: dotted paths of the model's modules.
        loss: number of the value that the step returned; -1 if its making was not seen.
        parameters: number of the value of each parameter of the model, by name.
        newborn: likewise for those that the model did not have before the step.
        swapped: likewise for those that another tensor stood for when the step began.
        disabled: paths of modules that ran with their peft adapters switched off.
        trained: numbers of values that the step trains itself, by an optimizer or by a gradient that it asks for.
        flagged: where ``requires_grad`` was set on what the step had computed, by the number of the value.
        late: where ``requires_grad`` was set on what the step had met before, by the number of the value: how many
            values there were by then, and the user's frames.
        unfilled: parameters whose ``requires_grad`` the step took away before a backward came to them, which has not
            filled them: the user's frames, and those of a library, by name.
        begun: dotted paths of the modules whose forward began.
        rewritten: of what a call made by writing into a tensor, the number of what the tensor was before, by the number
            of the value.
    """

    calls: tuple[Call, ...]
    values: tuple[Value, ...]
    regions: tuple[Region, ...]
    modules: tuple[str, ...]
    loss: int
    parameters: dict[str, int]
    newborn: dict[str, int] = field(default_factory=dict)
    swapped: dict[str, int] = field(default_factory=dict)
    trained: frozenset[int] = frozenset()
    disabled: frozenset[str] = frozenset()
    flagged: dict[int, Chain] = field(default_factory=dict)
    late: dict[int, tuple[int, Chain]] = field(default_factory=dict)
    unfilled: dict[str, tuple[Chain, Chain]] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()
    rewritten: dict[int, int] = field(default_factory=dict)

    def latest(self, number: int) -> int:
        """The number of what a value's tensor was in the end, after all that was written into it."""
        while number in self._rewritten_as:
            number = self._rewritten_as[number]
        return number

    @functools.cached_property
    def _rewritten_as(self) -> dict[int, int]:
        return {before: number for number, before in self.rewritten.items()}

    @functools.cached_property
    def _users(self) -> dict[int, list[int]]:
        """For every value, the indices of the calls that it goes into."""
        found: dict[int, list[int]] = {}
        for index, call in enumerate(self.calls):
            for number in dict.fromkeys(call.inputs):
                found.setdefault(number, []).append(index)
        return found

    def using(self, numbers: Iterable[int]) -> list[Call]:
        """The calls that use any of these values themselves, in order."""
        return [self.calls[i] for i in sorted({i for number in numbers for i in self._users.get(number, ())})]

    def leaves(self, numbers: Collection[int], region: int) -> bool:
        """Whether any of these values is used outside of a region, or is the loss."""
        return self.loss in numbers or any(region not in call.regions for call in self.using(numbers))

    def maker(self, number: int) -> Call | None:
        """The call that made a value; None where it was there before, or was not seen to be made."""
        index = self.values[number].maker
        return self.calls[index] if index >= 0 else None

    def forms(self, number: int, names: Collection[str]) -> list[int]:
        """A value, and those that it is another form of by calls of some names, one behind the other."""
        found = [number]
        while (call := self.maker(found[-1])) is not None and call.name in names and call.inputs:
            found.append(call.inputs[0])
        return found

    def callers(self, code: CodeType) -> set[Point]:
        """From where in the user's code a function was called."""
        chains = (call.chain for call in self.calls)
        return {outer for chain in chains for (one, _), outer in itertools.pairwise(chain) if one is code}

    def sources(self, numbers: Iterable[int], through: Callable[[int], bool] | None = None) -> set[int]:
        """These values and all that they were computed from; with ``through``, by way of such values only."""
        needed = set(numbers)
        for call in reversed(self.calls):
            if wanted := needed.intersection(call.outputs):
                inputs = call.inputs if call.name not in _SIDE_BY_SIDE else [n for o in wanted for n in call.made_of(o)]
                needed.update(inputs if through is None else filter(through, inputs))
        return needed

    def behind(self, numbers: Iterable[int]) -> list[Call]:
        """The calls that these values were computed by, last first."""
        needed = self.sources(numbers)
        return [call for call in reversed(self.calls) if needed.intersection(call.outputs)]

    def meeting(self, numbers: Iterable[int]) -> Iterator[tuple[Call, list[int]]]:
        """The calls that compute with these values and with others, each with those others, in order.

        What is computed from these alone, as their transpose, stands for them.
        """
        own = set(numbers)
        for call in self.ahead(own):
            others = [number for number in call.inputs if number not in own]
            if not others:
                own.update(call.outputs)
            elif len(others) < len(call.inputs):
                yield call, others

    def named(self, first: str) -> str:
        """Of a tensor that the step knows by its first name, a name among ``parameters``; that name if it has none."""
        known = (name for name, number in self.parameters.items() if self.values[number].parameter == first)
        return first if first in self.parameters else next(known, first)

    def flow(self, numbers: Iterable[int]) -> set[int]:
        """These values and all that is computed from them."""
        flowing = set(numbers)
        for call in self.calls:
            if flowing.intersection(call.inputs):
                flowing.update(call.flowing_on(flowing))
        return flowing

    def ahead(self, numbers: Iterable[int]) -> list[Call]:
        """The calls that use any of these values, or something computed from them, in order."""
        flowing, found = set(numbers), []
        for call in self.calls:
            if flowing.intersection(call.inputs):
                flowing.update(call.flowing_on(flowing))
                found.append(call)
        return found
