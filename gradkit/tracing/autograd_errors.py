"""Which of autograd's errors was raised, where, and which calls used a history that was freed."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from types import CodeType, TracebackType

from torch.autograd import function, graph
from torch.utils import hooks

from gradkit.core import introspection
from gradkit.core.operations import ADDS, JOINS
from gradkit.core.trace import FUNCTION, Call, Chain, Trace
from gradkit.source import faults, frames, locations
from gradkit.tracing import resets


def stale_histories(trace: Trace, mishap: AutogradError) -> tuple[tuple[Call, int], ...]:
    """The calls that should have let a value's history go, with the number of that value.

    They are those on the way to the loss that use a value whose history is older than the step, or was freed in it. But
    where an optimizer has stepped since, and trains nothing of what made the value, the earlier loss had no business
    with it: then they are those by which that one comes to it, unless it has a term of its own that teaches others.
    """
    found = _late(trace, mishap.freed)
    early = strays(trace, mishap)
    spared = bool(early) and not _teach_others(trace, mishap, early)
    kept = [one for one in found if trace.values[one[1]].past or not spared]
    return tuple(sorted([*(early if spared else ()), *kept], key=lambda one: one[0].index))


def strays(trace: Trace, mishap: AutogradError) -> list[tuple[Call, int]]:
    """The calls by which losses that an optimizer was stepped by come to what it trains nothing of, and others need.

    Each with the number of the value that it was handed. ``[]`` where such a loss is itself needed again.
    """
    later = trace.sources([trace.loss])
    if not mishap.stepped_on or any(one.loss in later for one in mishap.freeing):
        return []
    serving = {call.index for call in trace.calls if later.intersection(call.outputs)}
    values, freed = trace.values, mishap.freed
    shared = {n for n in later if values[n].requires_grad and not values[n].leaf and not values[n].past}
    alone = [call for call in trace.calls if call.index in freed and call.index not in serving]
    found = [(call, n) for call in alone for n in dict.fromkeys(call.inputs) if n in shared]
    return [] if trained_by(trace, mishap).intersection(n for _, n in found) else found


def trained_by(trace: Trace, mishap: AutogradError) -> set[int]:
    """The values that an optimizer which stepped before holds, and all that is computed from them."""
    names = {trace.values[n].parameter for n in mishap.stepped_on} - {""}
    held = (n for n, value in enumerate(trace.values) if n in mishap.stepped_on or value.parameter in names)
    return trace.flow(held)


def has_terms_of_its_own(trace: Trace, mishap: AutogradError) -> bool:
    """Whether a loss that an optimizer was stepped by has a term without anything that it trains: it teaches others."""
    return _teach_others(trace, mishap, strays(trace, mishap))


def _teach_others(trace: Trace, mishap: AutogradError, early: list[tuple[Call, int]]) -> bool:
    trained, freed = trained_by(trace, mishap) if early else set[int](), mishap.freed
    return any(_is_of_its_own(trace, freed, trained, call) for call, _ in early)


def _is_of_its_own(trace: Trace, freed: frozenset[int], trained: set[int], first: Call) -> bool:
    """Whether what a call makes is no more than added to what was trained by, all the way to the loss."""
    flowing = set(first.outputs)
    for call in trace.calls[first.index :]:
        own = call is first or flowing.intersection(call.inputs)
        if not own or call.index not in freed:
            continue
        if call.name not in ADDS | JOINS and trained.intersection(n for n in call.inputs if n not in flowing):
            return False
        flowing.update(call.outputs)
    return True


def _late(trace: Trace, freed: frozenset[int]) -> list[tuple[Call, int]]:
    live, found = {trace.loss}, []
    for call in reversed(trace.calls):
        if call.index in freed or not live.intersection(call.outputs):
            continue
        for number in _handed(trace, call):
            value = trace.values[number]
            if value.parameter or value.leaf or not value.requires_grad:
                continue
            if value.past or value.maker in freed or resets.of_value(trace, number, freed) is not None:
                found.append((call, number))
            else:
                live.add(number)
    return found


def _handed(trace: Trace, call: Call) -> tuple[int, ...]:
    """What a call hands gradients on to: its inputs; inside of a custom Function, what that was given."""
    inside = (trace.regions[at] for at in call.regions)
    return call.inputs if call.grad_on else next((one.given for one in inside if one.kind == FUNCTION), ())


def taken_over(trace: Trace, mishap: AutogradError) -> tuple[tuple[Call, int, Freeing], ...]:
    """The calls that take over a value from before the last backward that freed some of its history.

    Only of what is made anew in each pass, out of what it was in the pass before: a memory, a hidden state. A value
    that was made once and that several losses use is none of these.

    Returns:
        Each call, the number of the value, and that backward.
    """
    for freeing in reversed(mishap.freeing):
        brought = _brought(trace, freeing, mishap.freed)
        if brought:
            return tuple((call, number, freeing) for call, number in brought if _made_of_itself(trace, number, freeing))
    return ()


def _brought(trace: Trace, freeing: Freeing, freed: frozenset[int]) -> list[tuple[Call, int]]:
    """The calls after a backward that use a value from before it, some of whose history it freed.

    A value that was given new numbers in place since is none of these: nothing of it is meant to be taken over.
    """
    live, found = {trace.loss}, []
    for call in reversed(trace.calls):
        if not live.intersection(call.outputs):
            continue
        for number in _handed(trace, call):
            value = trace.values[number]
            if value.parameter or value.leaf or value.past or not value.requires_grad:
                continue
            if resets.of_value(trace, number, freed) is not None:
                continue
            if number >= freeing.values:
                live.add(number)
            elif min(call.outputs) >= freeing.values:
                found.append((call, number))
    stale = {number for number in {number for _, number in found} if _is_freed(trace, number, freeing)}
    return [one for one in reversed(found) if one[1] in stale]


def _is_freed(trace: Trace, number: int, freeing: Freeing) -> bool:
    behind = trace.sources([number], lambda one: trace.values[one].requires_grad)
    return any(trace.values[one].maker in freeing.calls for one in behind)


def _made_of_itself(trace: Trace, number: int, freeing: Freeing) -> bool:
    """Whether what made a value makes another of it after a backward."""
    maker = trace.values[number].maker
    key = trace.calls[maker].key if maker >= 0 else None
    later = (call for call in trace.ahead([number]) if call.key == key)
    return any(output >= freeing.values for call in later for output in call.outputs)


TWICE, OVERWRITTEN, LEAF_WRITTEN, VIEW_WRITTEN = "twice", "overwritten", "leaf_written", "view_written"
UNUSED, NOT_ASKED, MANY_ELEMENTS, NO_DERIVATIVE = "unused", "not_asked", "many_elements", "no_derivative"
SCALER, REDUCTION, READY_TWICE, INFERENCE = "scaler", "reduction", "ready_twice", "inference"
BAD_GRADIENT, HOOK_REFUSED, NOT_A_LEAF, NUMPY_REFUSED = "bad_gradient", "hook_refused", "not_a_leaf", "numpy_refused"
EVAL_ONLY, INTEGER_FLAG, NO_HISTORY, HOOK_RESULT = "eval_only", "integer_flag", "no_history", "hook_result"
OLD_STYLE, NO_METHOD = "old_style", "no_method"
NAN_RETURNED = "nan_returned"
NOT_TAKEN = "not_taken"
IN_FUNCTION, IN_HOOK = "function", "hook"

_KINDS: tuple[tuple[str, str], ...] = (
    (TWICE, r"backward through the graph a second time"),
    (OVERWRITTEN, r"has been modified by an inplace operation"),
    (VIEW_WRITTEN, r"is a view.*being modified inplace|view was created (in|inside)|views?,? .*modified inplace"),
    (LEAF_WRITTEN, r"leaf Variable that requires grad"),
    (UNUSED, r"appears to not have been used in the graph"),
    (NOT_ASKED, r"differentiated Tensors? (at index \d+ )?does not require grad"),
    (NO_HISTORY, r"does not require grad and does not have a grad_fn"),
    (MANY_ELEMENTS, r"can be implicitly created only for scalar outputs"),
    (NO_DERIVATIVE, r"[Dd]erivative for .* is not implemented|not implemented the derivative"),
    (SCALER, r"unscale FP16 gradients|No inf checks were recorded|unscale_\(\) has already been called"),
    (SCALER, r"step\(\) has already been called since the last update|unscale_\(\) is being called after step"),
    (SCALER, r"No scale factor|Attempted (unscale_|step|update) but _scale is None|_scale is None"),
    (REDUCTION, r"finished reduction in the prior iteration"),
    (READY_TWICE, r"mark a variable ready only once"),
    (INFERENCE, r"[Ii]nference tensor"),
    (HOOK_RESULT, r"hook '.*' has changed the (size|type)|but hook returned|grad hooks should return None"),
    (HOOK_RESULT, r"hook returned an invalid number|hook '.*' has returned an incorrect number"),
    (HOOK_RESULT, r"Backward hook for Modules .* return None"),
    (BAD_GRADIENT, r"returned a gradient different than None at position"),
    (BAD_GRADIENT, r"returned an (incorrect number of gradients|invalid gradient)|hook .*(changed|wrong)"),
    (OLD_STYLE, r"Legacy autograd function"),
    (NO_METHOD, r"must implement (either the backward|the forward function)"),
    (HOOK_REFUSED, r"register a (post accumulate grad )?hook on|BackwardHookFunctionBackward"),
    (NOT_A_LEAF, r"requires_grad flags of leaf|optimize a non-leaf"),
    (NUMPY_REFUSED, r"numpy\(\) on Tensor that requires grad"),
    (EVAL_ONLY, r"RNN backward .* training mode"),
    (NAN_RETURNED, r"Function '\w+' returned nan values"),
    (NOT_TAKEN, r"does not support (sparse|dense) grad"),
    (INTEGER_FLAG, r"floating point (and complex )?dtype can require gradients"),
)  # fmt: skip

_FUNCTION: tuple[CodeType, ...] = (function.BackwardCFunction.apply.__code__,)
_HOOK_FILES = (hooks.__file__, graph.__file__)


@dataclass(frozen=True)
class Freeing:
    """A backward of the step's own that freed its graph.

    Attributes:
        chain: the user's frames.
        calls: indices of the calls whose history it freed.
        values: how many values the run had by then.
        loss: number of the value that it went back from; -1 if several, or not known.
    """

    chain: Chain
    calls: frozenset[int]
    values: int
    loss: int = -1


@dataclass(frozen=True)
class AutogradError:
    """An error of autograd's.

    Attributes:
        kind: one of this module's constants; ``""`` for any other error inside a custom Function's backward or a hook.
        message: its words.
        chain: the user's frames when it was raised, innermost first.
        inside: ``"function"`` in the backward of a custom Function, ``"hook"`` in a hook, else ``""``.
        in_step: the step raised it, not the backward that was run on what it returned.
        asked: number of the value that a gradient was asked of, -1 if not known.
        inputs: numbers of the values for which it was asked (``torch.autograd.grad``); of what are no leaves, of these.
        freeing: each backward of the step's own that freed its graph, in order.
        stepped_on: the numbers of all values in the hands of an optimizer that stepped before.
    """

    kind: str
    message: str
    chain: Chain
    inside: str = ""
    in_step: bool = False
    asked: int = -1
    inputs: tuple[int, ...] = ()
    freeing: tuple[Freeing, ...] = ()
    stepped_on: frozenset[int] = frozenset()

    @property
    def freed(self) -> frozenset[int]:
        """Every call whose history was freed."""
        return frozenset().union(*(one.calls for one in self.freeing))


def classify(
    error: BaseException, *, in_step: bool = False, asked: int = -1, inputs: tuple[int, ...] = ()
) -> AutogradError | None:
    """The mishap behind an exception, looking through what it was raised from; None if autograd has no part in it.

    Example:
        >>> import torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> try: (x * x).backward()
        ... except RuntimeError as error: print(classify(error).kind)
        many_elements
    """
    for one in faults.raised_from(error):
        found = classify_one(one, in_step=in_step, asked=asked, inputs=inputs)
        if found is not None:
            return found
    return None


def classify_one(
    error: BaseException, *, in_step: bool = False, asked: int = -1, inputs: tuple[int, ...] = ()
) -> AutogradError | None:
    """The mishap that an exception is itself, whatever it was raised from."""
    message = introspection.text(error) or type(error).__name__
    kind = next((kind for kind, pattern in _KINDS if re.search(pattern, message, re.S)), "")
    chain, inside = _where(error.__traceback__)
    if inside == IN_FUNCTION and kind in (TWICE, OVERWRITTEN) and _takes_out_what_was_saved(chain):
        chain, inside = chain[1:], ""  # the Function's backward is where it shows, as any other node's would be
    if (isinstance(error, (RuntimeError, AssertionError, ValueError, TypeError)) and kind) or inside:
        return AutogradError(kind, message, chain, inside, in_step, asked, inputs)
    return None


def of_no_leaf(error: BaseException, numbers: tuple[int, ...]) -> AutogradError:
    """The mishap that the ``.grad`` of values was read which are no leaves: whatever the error says of that."""
    return AutogradError(
        NOT_A_LEAF, introspection.text(error), _where(error.__traceback__)[0], in_step=True, inputs=numbers
    )


def _takes_out_what_was_saved(chain: Chain) -> bool:
    node = locations.node_at(chain[0]) if chain else None
    return isinstance(node, ast.Attribute) and node.attr in ("saved_tensors", "saved_variables")


def _where(trace: TracebackType | None) -> tuple[Chain, str]:
    """The user's frames, innermost first, and whether they were called by autograd itself."""
    found: list[tuple[CodeType, int]] = []
    inside, before = "", None
    while trace is not None:
        code = trace.tb_frame.f_code
        if frames.is_user_file(code.co_filename):
            if before in _FUNCTION:
                inside = IN_FUNCTION
            elif not inside and before is not None and _calls_hooks(before):
                inside = IN_HOOK
            found.append((code, trace.tb_lasti))
        before, trace = code, trace.tb_next
    return tuple(reversed(found)), inside


def _calls_hooks(code: CodeType) -> bool:
    return code.co_filename in _HOOK_FILES
