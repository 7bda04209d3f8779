"""What the step, or the backward after it, raised: which of autograd's errors it is, and where the user's code was.

Errors that autograd has nothing to do with (a wrong shape, a missing key) are no mishaps: they are told as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import CodeType, TracebackType

from torch.autograd import function, graph
from torch.utils import hooks

from gradkit import calls, frames, strangers
from gradkit.traces import Chain

TWICE, OVERWRITTEN, LEAF_WRITTEN, VIEW_WRITTEN = "twice", "overwritten", "leaf_written", "view_written"
UNUSED, NOT_ASKED, MANY_ELEMENTS, NO_DERIVATIVE = "unused", "not_asked", "many_elements", "no_derivative"
SCALER, REDUCTION, READY_TWICE, INFERENCE = "scaler", "reduction", "ready_twice", "inference"
BAD_GRADIENT, HOOK_REFUSED, NOT_A_LEAF, NUMPY_REFUSED = "bad_gradient", "hook_refused", "not_a_leaf", "numpy_refused"
EVAL_ONLY, INTEGER_FLAG, NO_HISTORY, HOOK_RESULT = "eval_only", "integer_flag", "no_history", "hook_result"
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
    (HOOK_RESULT, r"hook returned an invalid number"),
    (HOOK_RESULT, r"Backward hook for Modules .* return None"),
    (BAD_GRADIENT, r"returned an (incorrect number of gradients|invalid gradient)|hook .*(changed|wrong)"),
    (HOOK_REFUSED, r"register a (post accumulate grad )?hook on|BackwardHookFunctionBackward"),
    (NOT_A_LEAF, r"requires_grad flags of leaf|optimize a non-leaf"),
    (NUMPY_REFUSED, r"numpy\(\) on Tensor that requires grad"),
    (EVAL_ONLY, r"RNN backward .* training mode"),
    (INTEGER_FLAG, r"floating point (and complex )?dtype can require gradients"),
)  # fmt: skip

_FUNCTION: tuple[CodeType, ...] = (function.BackwardCFunction.apply.__code__,)
_HOOK_FILES = (hooks.__file__, graph.__file__)


@dataclass(frozen=True)
class Mishap:
    """An error of autograd's.

    Attributes:
        kind: one of this module's constants; ``""`` for any other error inside a custom Function's backward or a hook.
        message: its words.
        chain: the user's frames when it was raised, innermost first.
        inside: ``"function"`` in the backward of a custom Function, ``"hook"`` in a hook, else ``""``.
        in_step: the step raised it, not the backward that was run on what it returned.
        asked: number of the value that a gradient was asked of, -1 if not known.
        inputs: numbers of the values for which it was asked (``torch.autograd.grad``).
        freeing: the user's frames at each backward of the step's own that freed its graph, and the calls it freed.
        trained: parameters in the hands of an optimizer that stepped before.
    """

    kind: str
    message: str
    chain: Chain
    inside: str = ""
    in_step: bool = False
    asked: int = -1
    inputs: tuple[int, ...] = ()
    freeing: tuple[tuple[Chain, frozenset[int]], ...] = ()
    trained: frozenset[str] = frozenset()

    @property
    def freed(self) -> frozenset[int]:
        """Every call whose history was freed."""
        return frozenset().union(*(calls for _, calls in self.freeing))


def of(error: BaseException, *, in_step: bool = False, asked: int = -1, inputs: tuple[int, ...] = ()) -> Mishap | None:
    """The mishap behind an exception, looking through what it was raised from; None if autograd has no part in it.

    Example:
        >>> import torch
        >>> x = torch.ones(2, requires_grad=True)
        >>> try: (x * x).backward()
        ... except RuntimeError as error: print(of(error).kind)
        many_elements
    """
    for one in calls.raised_from(error):
        message = strangers.text(one) or type(one).__name__
        kind = next((kind for kind, pattern in _KINDS if re.search(pattern, message, re.S)), "")
        chain, inside = _where(one.__traceback__)
        if (isinstance(one, (RuntimeError, AssertionError, ValueError, TypeError)) and kind) or inside:
            return Mishap(kind, message, chain, inside, in_step, asked, inputs)
    return None


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
