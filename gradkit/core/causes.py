"""What is known of every cause outside of the rule that names it: one line for each, and no table of causes elsewhere.

Its words are in ``locales/<language>/report.toml`` under ``cause.<id>``, its guide in ``teaching/guides/<id>/``.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from gradkit.core.errors import GradkitError

FAMILIES = (
    RECORDING, HISTORY, DERIVATIVE, PARAMETERS, UNUSED, BACKWARD, MACHINERY, ELSEWHERE,
) = (
    "recording", "history", "derivative", "parameters", "unused", "backward", "machinery", "elsewhere",
)  # fmt: skip
FIRST, USUAL, LAST = range(3)
_SWITCHES = ("no_grad", "inference_mode", "set_grad_enabled")


@dataclass(frozen=True)
class Cause:
    """One cause by which a gradient is lost.

    Attributes:
        id: its name, ``Finding.cause``.
        family: one of ``FAMILIES``, by which lists of causes are grouped; its title is ``guide.family.<family>``.
        arrives: backward gives the parameters of a finding a gradient all the same; it is nan, exactly zero or thrown
            away by a hook, or no optimizer takes it. A report then calls them *parameters*, not *starved*.
        variants: the ways in which it shows that have words of their own, ``cause.<id>.title_<variant>`` and likewise
            ``label`` and ``help``. What is not worded there, and any other variant, is told in the cause's plain words.
        sites: the kinds of places in source code (``stops.KINDS``) that a finding of it may be about. A finding of
            another cause on the same line is about something else there.
        in_block: its line stands in the block to blame, where others name the block itself.
        rank: ``FIRST`` for what hides the faults behind it, ``LAST`` for what is to be mended after all else.
        drawn: it can be drawn as a cut, at a call of the step. What is frozen before the step has no such call.
        explains: it names what is wrong; False if all that it can say is what was seen.
        may_pass: a later step of the same program may do otherwise, so that of one step alone it is no fault.
        passing: the variants of which that is so.
        check: the point of a verification that it fails, whatever the numbers are; ``""`` for none.
        change: how its cure is derived from the user's own line, one of those that ``changes.derive_changes`` knows;
            ``""`` if a person decides.
        word: for ``change="word"``, the word to take out of the line.
    """

    id: str
    family: str
    _: KW_ONLY
    arrives: bool = False
    variants: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    in_block: bool = False
    rank: int = USUAL
    drawn: bool = True
    explains: bool = True
    may_pass: bool = False
    passing: tuple[str, ...] = ()
    check: str = ""
    change: str = ""
    word: str = ""


_HOOKS = ("zero", "nan", "emptied", "hidden", "refused")
_ZEROS = (
    "ignored", "empty", "one_class", "times_zero", "sampled", "overwritten", "weightless", "deadlock", "held",
    "silenced", "inactive", "clamped", "extinct", "itself", "masked", "no_variance",
    "beyond", "nearest", "outside", "saturated", "underflow", "scored", "parked", "alone",
    "padding", "padded",
)  # fmt: skip
_PASSING = ("weightless", "masked", "no_variance", "inactive", "clamped", "outside", "padded")
_IDLE = ("cleared", "clipped", "rate", "rate_made", "scheduled", "never", "uncalled")
_ASKED = ("asked", "branch", "again", "plain", "lost", "late", "frozen", "original", "loop")
_CONFIGS = ("config", "saved", "switched")
_KINDS = ("sparse", "refuses", "dense")
_UNUSED = (
    "dropped", "argument", "taken", "unmet", "slot", "bypass", "stopped", "left_out", "ignored", "overwritten",
    "unread", "unassigned", "unadded",
)  # fmt: skip
_FLAGS = ("caller", "default", "opposite")
_FUNCTIONS = (
    "style", "missing", "inside", "recomputed", "hidden", "zeros", "intermediate", "copied", "marked", "boxed",
    "count", "none",
)  # fmt: skip
_HISTORIES = ("frees", "carried", "loss", "kept", "once", "anew", "reset", "and_now")
_SCALER = ("skipped_update", "plain_backward", "plain_step", "early_clip", "half")

_CAUSES = (
    Cause("no_grad_block", RECORDING, sites=_SWITCHES, variants=("library",), change="block"),
    Cause("no_grad_decorator", RECORDING, sites=_SWITCHES, variants=("library",), change="decorator"),
    Cause("grad_disabled_globally", RECORDING, sites=_SWITCHES),
    Cause("inference_mode", RECORDING, sites=_SWITCHES, change="block"),
    Cause("inplace_under_no_grad", RECORDING, sites=_SWITCHES, in_block=True, change="block"),
    Cause(
        "detach",
        HISTORY,
        sites=("detach",),
        variants=("within", "sparse", "straight_through", "no_flag"),
        change="word",
        word=".detach()",
    ),
    Cause(
        "data_attr",
        HISTORY,
        sites=("data",),
        variants=("within", "straight_through", "stored"),
        change="word",
        word=".data",
    ),
    Cause("numpy_roundtrip", HISTORY, sites=("number", "numpy", "rewrap"), change="in_torch"),
    Cause("python_roundtrip", HISTORY, sites=("number", "numpy", "rewrap"), variants=("branch",), change="in_torch"),
    Cause("rewrap_tensor", HISTORY, sites=("rewrap", "parameter", "requires_grad"), change="stacked"),
    Cause("parameter_rewrap", HISTORY, sites=("parameter", "requires_grad"), change="stacked"),
    Cause(
        "new_leaf",
        HISTORY,
        sites=("freeze", "rewrap", "parameter", "requires_grad"),
        variants=("flag", "copy"),
        rank=FIRST,
        change="stacked",
    ),
    Cause("cached_tensor", HISTORY, variants=("loss",)),
    Cause("non_differentiable_op", DERIVATIVE, variants=("choices", "weights"), sites=("integer_cast",)),
    Cause("integer_cast", DERIVATIVE, sites=("integer_cast",), variants=("function",)),
    Cause("zero_gradient", DERIVATIVE, variants=_ZEROS, passing=_PASSING, arrives=True, check="nonzero"),
    Cause("nan_gradient", DERIVATIVE, variants=("masked",), arrives=True),
    Cause(
        "frozen_all",
        PARAMETERS,
        sites=("freeze",),
        variants=("module_flag", "copied", "unspared", "in_vain", "midway", "number", "picked"),
        rank=LAST,
        drawn=False,
    ),
    Cause("adapter_inference_mode", PARAMETERS, variants=_CONFIGS, drawn=False, change="trainable"),
    Cause("adapter_inactive", PARAMETERS, variants=("disabled", "midway")),
    Cause("unregistered_parameters", PARAMETERS, variants=("no_module",), arrives=True),
    Cause(
        "optimizer_mismatch",
        PARAMETERS,
        variants=("trainer", "asked_copy", "held_copies", "used_up", *_KINDS),
        arrives=True,
        check="optimizer",
    ),
    Cause("idle_optimizer", PARAMETERS, variants=_IDLE, arrives=True, drawn=False),
    Cause("params_replaced", PARAMETERS, sites=("parameter", "requires_grad"), variants=("unknown",)),
    Cause("built_in_forward", PARAMETERS, sites=("parameter",)),
    Cause("grad_on_non_leaf", PARAMETERS, sites=("requires_grad",)),
    Cause("constant_loss", UNUSED, sites=("rewrap",), variants=("nothing", "term", "without")),
    Cause("trainable_unused", UNUSED, variants=_UNUSED, may_pass=True),
    Cause("ddp_unused", UNUSED, may_pass=True),
    Cause("unused_input", UNUSED, variants=_ASKED, may_pass=True),
    Cause("non_scalar", BACKWARD),
    Cause("double_backward", BACKWARD, variants=_HISTORIES, change="kept"),
    Cause("inplace_modified", BACKWARD, variants=("kept", "once", "leaf", "layer"), change="out_of_place"),
    Cause("create_graph_missing", BACKWARD, variants=("filled", "handed", "hook", "later", "kept", *_FLAGS)),
    Cause("custom_function", MACHINERY, variants=_FUNCTIONS),
    Cause("hook_misuse", MACHINERY, variants=_HOOKS, arrives=True),
    Cause("checkpoint_reentrant", MACHINERY, variants=("by_method", "setting"), change="reentrant"),
    Cause("amp_misuse", MACHINERY, variants=_SCALER),
    Cause("library_bug", ELSEWHERE),
    Cause("unknown", ELSEWHERE, variants=("scripted",), explains=False, may_pass=True),
)
_BY_ID = {one.id: one for one in sorted(_CAUSES, key=lambda one: one.id)}


def causes() -> tuple[str, ...]:
    """The ids of all causes, in alphabetical order.

    Example:
        >>> "detach" in causes()
        True
    """
    return tuple(_BY_ID)


def cause(name: str) -> Cause:
    """What is known of one cause.

    Raises:
        GradkitError: ``no_such_guide``.

    Example:
        >>> cause("detach").family
        'history'
    """
    if name not in _BY_ID:
        raise GradkitError("no_such_guide", cause=name, known=", ".join(_BY_ID))
    return _BY_ID[name]


def may_pass(name: str, variant: str = "") -> bool:
    """Whether a later step of the same program may do otherwise than a finding says.

    Example:
        >>> may_pass("trainable_unused"), may_pass("zero_gradient", "weightless"), may_pass("detach")
        (True, True, False)
    """
    return cause(name).may_pass or variant in cause(name).passing


def families() -> dict[str, tuple[str, ...]]:
    """The ids of the causes of each family: families in the order of ``FAMILIES``, in each the commoner causes first.

    Example:
        >>> families()["derivative"]
        ('non_differentiable_op', 'integer_cast', 'zero_gradient', 'nan_gradient')
    """
    return {family: tuple(one.id for one in _CAUSES if one.family == family) for family in FAMILIES}


def failing(check: str) -> tuple[str, ...]:
    """The causes that a point of a verification is failed by, whatever the numbers are.

    Example:
        >>> failing("optimizer")
        ('optimizer_mismatch',)
    """
    return tuple(one.id for one in _CAUSES if one.check == check)
