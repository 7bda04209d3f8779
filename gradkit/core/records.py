"""The facts that the rooms hand to each other: frozen data, never tensors, never sentences."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

PROVEN, LIKELY, OBSERVED = "proven", "likely", "observed"
STRAIGHT_THROUGH = "straight_through"
STORED, RAISED, SEVERAL, NOT_RUN, NOT_REVIVED, READ, TWIN, BEHIND = (
    "stored", "raised", "several", "not_run", "not_revived", "read", "twin", "behind",
)  # fmt: skip
OF_RANKS = "of_ranks"
"""Among the facts of a finding: only some of the ranks that train together have it; the part that they leave out."""
TIED = "tied"  # the fact of a finding that holds all names of what the model holds under several


@dataclass(frozen=True)
class Location:
    """A place in source code. Lines and columns count from 1; ``end_column`` is the first column after it.

    Attributes:
        file: the path as Python knows it.
        line: the line to look at.
        column: where the expression (or the statement) begins.
        end_column: where it ends; equal to ``column`` if not known.
        function: qualified name of the function that holds the line, ``"<module>"`` at the top level.
        text: the source line itself without its newline, ``""`` if the source cannot be read.
        end_line: the last line of the expression.
        changed: the file was changed since the code that ran was imported: the line may be another one there now.
        digest: tells the source text in which the line was found from others; ``""`` if it is not known.
    """

    file: str
    line: int
    column: int = 1
    end_column: int = 1
    function: str = ""
    text: str = ""
    end_line: int = 0
    changed: bool = False
    digest: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Note:
    """Another place that takes part in a finding. ``kind`` names its sentence: ``note.<kind>``."""

    kind: str
    location: Location | None = None
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """One row of the parameter table.

    Attributes:
        name: dotted name, as in ``model.named_parameters()``.
        shape: its shape; ``()`` for a scalar.
        numel: number of elements.
        dtype: for example ``"float32"``.
        requires_grad: its flag when the diagnosis began.
        training: whether the module that holds it is in train mode.
        should_train: whether a gradient is expected to reach it.
        used: whether the forward pass used it at all.
        reached: whether backward hands it a gradient.
        grad_norm: 2-norm of that gradient; None if there is none.
        module: class name of the module that holds it.
        same_as: the first name of this very tensor, where a model holds it under several; ``""`` for the first.
    """

    name: str
    shape: tuple[int, ...]
    numel: int
    dtype: str
    requires_grad: bool
    training: bool
    should_train: bool
    used: bool
    reached: bool
    grad_norm: float | None
    module: str
    same_as: str = ""


@dataclass(frozen=True)
class Change:
    """One line of a difference: ``sign`` is ``"-"``, ``"+"`` or ``" "``, ``number`` the line in the file as it is."""

    sign: str
    number: int
    text: str


CURES, WAITS, WITHHELD, UNTRIED = "cures", "waits", "withheld", "untried"


@dataclass(frozen=True)
class ChangeTried:
    """What came of trying a change to the user's own lines on the run.

    Attributes:
        outcome: ``"cures"`` (it is offered), ``"waits"`` (it is offered, and gives nothing by itself: something else
            is in the way), ``"withheld"`` (it does harm) or ``"untried"``.
        changes: the change that is offered; ``()`` if none is.
        kind: how it was derived: ``"word"``, ``"stored"``, ``"moved"``, ``"block"``, ``"narrowed"``, ``"no_grad"``,
            ``"decorator"``, ``"trainable"``, ``"reentrant"``, ``"flag"``, ``"earlier"``, ``"later"``, ``"anew"``, or
            of an expression written anew ``"stacked"``, ``"unwrapped"``, ``"in_torch"``, ``"out_of_place"``,
            ``"assigned"``; its sentence is ``tried.of.<kind>``.
        why: of one that is not offered, names its sentence, ``tried.why.<why>``; of one that is, how it cures:
            ``"runs"`` (the step raised before), ``"together"`` (with the others of the report), ``"replaced"`` (what is
            stored keeps the history of one pass, until the next replaces it) or ``""``.
        steps: how many steps in a row were run with it.
        gained: parameters that get a gradient with it and got none before.
        harmed: parameters that it does harm to.
        facts: further values for the sentence.
        other: another cure that was tried, and is not offered.
    """

    outcome: str
    changes: tuple[Change, ...] = ()
    kind: str = ""
    why: str = ""
    steps: int = 0
    gained: tuple[str, ...] = ()
    harmed: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    other: ChangeTried | None = None


@dataclass(frozen=True)
class Finding:
    """One thing to change, with its evidence.

    Attributes:
        cause: a cause id, the name of a folder in ``guides``.
        location: the line of the user's code to change; None if it is not known.
        notes: further places that take part.
        proof: ``"proven"`` (undoing it restored the gradient in a rerun), ``"likely"``,
            or ``"observed"`` (read from the model and the recorded run, as for frozen parameters).
        parameters: names of the parameters that get no gradient because of it.
        numel: how many elements those hold.
        module: dotted path of the module whose forward was running, ``""`` outside of any.
        call: the operation that lost the gradient, as written by torch: ``"detach"``, ``"argmax"``.
        revived: parameters that a rerun with this cut undone brought back to life.
        alone: where more stands in their way than this, those of its parameters that a rerun brought back in which
            this alone was fixed: ``()`` for none. None where nothing else does, or where that was not asked.
        reruns: how many reruns the proof took.
        facts: further values for the sentences of this cause.
        variant: the way in which the cause shows here; ``""`` for the usual one.
        library: the library's function in which it happened, ``""`` if it was in the user's own code.
        doubt: why it is no more than likely: ``"stored"`` (the value went where no rerun can undo it), ``"raised"``
            (the rerun did), ``"several"`` (lines could have done it), ``"not_run"`` (again), ``"not_revived"`` (not all
            parameters were), ``"read"`` (off run and source; a rerun has nothing to undo), ``"twin"`` (the same
            is at hand with its history, and may be what the loss was to take), ``"behind"`` (an error comes before it,
            so that no backward can show it); ``""`` if that is not known.
        rule: the rule that made it, ``"cut_lines.findings"``; for those who look into gradkit, not reported.
        tried: what came of trying the change that its cause and line suggest; None if they suggest none.
        cuts: the keys of the cuts that it is about, until the experiments with it are made; not reported.
    """

    cause: str
    location: Location | None
    notes: tuple[Note, ...] = ()
    _: KW_ONLY
    proof: str = LIKELY
    parameters: tuple[str, ...] = ()
    numel: int = 0
    module: str = ""
    call: str = ""
    revived: tuple[str, ...] = ()
    alone: tuple[str, ...] | None = None
    reruns: int = 0
    facts: dict[str, str] = field(default_factory=dict)
    variant: str = ""
    library: str = ""
    doubt: str = ""
    rule: str = field(default="", compare=False, repr=False)
    tried: ChangeTried | None = field(default=None, compare=False, repr=False)
    cuts: tuple[tuple[Any, ...], ...] = field(default=(), compare=False, repr=False)

    @property
    def also(self) -> tuple[Location, ...]:
        """The locations of the notes, for scripts."""
        return tuple(note.location for note in self.notes if note.location is not None)


@dataclass(frozen=True)
class FrozenAt:
    """A line that froze parameters which are not expected to learn.

    Attributes:
        location: the line.
        parameters: their names.
        condition: the condition on a name by which it comes to them, as it is written; ``""`` if there is none.
    """

    location: Location
    parameters: tuple[str, ...]
    condition: str = ""


@dataclass(frozen=True)
class Unadded:
    """An entry of a dictionary of losses that no loss takes in.

    Attributes:
        name: its key.
        location: the line that computes it.
    """

    name: str
    location: Location


@dataclass(frozen=True)
class Meant:
    """By what is known which parameters are to learn.

    Attributes:
        source: ``"should_train"`` (they were named), ``"optimizer"`` (it holds some of those that the step uses, and
            not these) or ``"flags"`` (they require grad).
        optimizer: its class name, ``""`` if it told nothing.
        apart: parameters that require grad, that no optimizer at hand holds and that no gradient reaches: no line is
            named for them.
        without_influence: parameters whose value makes no difference to a loss that is made of derivatives.
        left: parameters of a library's module that computes more than the loss has use for.
        unheld: parameters that a gradient reaches and that no optimizer at hand holds, where nothing says that it
            should: a body that a head is trained on.
        frozen: where what is frozen and not expected to learn was frozen, as far as that is known.
        from_before: where the step uses a history that was there before it, and that its backward frees.
        copies: parameters of modules that are kept as copies of what learns, and that no gradient reaches.
        unadded: entries beside terms of the loss that no loss of this step takes in, where that may be meant.
    """

    source: str = "flags"
    optimizer: str = ""
    apart: tuple[str, ...] = ()
    without_influence: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    unheld: tuple[str, ...] = ()
    frozen: tuple[FrozenAt, ...] = ()
    from_before: tuple[Location, ...] = ()
    copies: tuple[str, ...] = ()
    unadded: tuple[Unadded, ...] = ()


LIVE, CUT, CONSTANT, STOPPED, WEIGHTLESS = "live", "cut", "constant", "stopped", "weightless"


@dataclass(frozen=True)
class LossTerm:
    """Something that a loss is the sum of.

    Attributes:
        name: what it is called where it is made, ``""`` if that is not known.
        state: ``"live"`` (it hands on a gradient), ``"cut"`` (it should, and a finding says why it does not),
            ``"constant"`` (nothing that should train flows into it), ``"stopped"`` (something does, and is stopped
            as it seems to be meant) or ``"weightless"`` (its weight is zero in this step).
        value: what it adds to the loss, with its weight and sign; None if that is not known.
        location: the line that makes it.
        parameters: those that it hands a gradient to; of one that is cut, those that it should.
        loss: which loss it is a part of, counted from 0, where a step goes backward from several.
        count: how many terms that line makes.
    """

    name: str
    state: str
    value: float | None = None
    location: Location | None = None
    parameters: tuple[str, ...] = ()
    loss: int = 0
    count: int = 1

    @property
    def carries(self) -> bool:
        """Whether it hands any gradient on.

        Example:
            >>> LossTerm("aux", "cut").carries, LossTerm("mse", "live").carries
            (False, True)
        """
        return self.state == LIVE


BARREN = "barren"


@dataclass(frozen=True)
class Harmless:
    """A stop-gradient that was looked at and costs no parameter its gradient.

    Attributes:
        kind: ``"detach"``, ``"number"`` (leaves torch), ``"no_grad"``, ``"inference_mode"``, ``"sample"``,
            ``"join"`` (of constants), ``"zero"`` (times zero) or ``"hook"``.
        location: the user's line.
        why: names its sentence, ``harmless.<why>``: ``"log"``, ``"left"``, ``"state"``, ``"frozen"``, ``"other_way"``,
            ``"constant"``, ``"barren"``, ``"wakes"``, ``"own_hook"``, ``"returned"`` or ``"zero_<variant>"`` (in this
            step).
        call: the operation, as written by torch.
    """

    kind: str
    location: Location
    why: str
    call: str = ""


@dataclass(frozen=True)
class Untried:
    """A part of the diagnosis that broke off; what the first run found does not rest on it.

    Attributes:
        what: names its sentence, ``untried.<what>``: ``"graph"``, ``"picture"``, ``"replay"``, ``"mend"``, ``"stale"``,
            ``"strays"``, ``"returns"``, ``"hooks"``, ``"questions"``, ``"harmless"``, ``"terms"``; ``"warning"``: one
            that is an error here, and that backward was let pass; ``"earlier"``: the lines that computed the loss were
            not seen, for it was computed before the step.
        error: what was raised.
    """

    what: str
    error: str


@dataclass(frozen=True)
class Stretch:
    """Lines of one file, from ``first`` to ``last``.

    Attributes:
        file: where they stand.
        first, last: counted from 1.
    """

    file: str
    first: int
    last: int


@dataclass(frozen=True)
class Origin:
    """Which statements of a program were run again for a report, and how true to the program that was.

    Attributes:
        file: where they stand.
        function: qualified name of the function, ``"<module>"`` at the top level.
        kind: ``"loop"`` (one pass of a loop), ``"body"`` (a function from its start), ``"module"`` (statements of a
            script or cell); ``""`` if nothing could be run again, and the report says what is read off; ``"watched"``
            if nothing had to be, and it says what was seen in every step.
        loop_line: the line of the loop, 0 if there is none.
        first, last: the lines that were run, or, if nothing could be, those that failed.
        reproduced: the same came of it as in the program: the same error at the same line, or none for the same
            parameters.
        silent: nothing was raised in the program.
        caveats: what differs, each told by a sentence ``origin.caveat.<kind>``.
        before: lines of earlier cells that were run before these, in that order.
    """

    file: str
    function: str
    kind: str
    loop_line: int = 0
    first: int = 0
    last: int = 0
    reproduced: bool = False
    silent: bool = False
    caveats: tuple[Note, ...] = ()
    before: tuple[Stretch, ...] = ()


@dataclass(frozen=True)
class Node:
    """One node of a picture, before folding.

    Attributes:
        number: its stable number, counted in the order of the forward pass.
        label: ``"AddmmBackward0"`` (autograd's name), ``"linear"`` (a call: it left no grad_fn, or stands for nodes
            of a graph that is too large), a parameter's name, or what an input is called.
        kind: ``"autograd"``, ``"call"``, ``"parameter"``, ``"input"``, ``"loss"``, ``"cut"`` or ``"fixed"`` (where a
            gradient flows again; its label is the index in ``Picture.fixed``).
        status: ``"live"`` (gradient flows), ``"dead"`` (no gradient comes here), ``"starved"``
            (a parameter that should train and gets none), ``"frozen"`` or ``"cut"``.
        module: dotted path of the module it ran in, ``""`` outside of any.
        shape: shape of its value; None if not known.
        location: the line that made it.
        finding: for a cut, the index of its finding.
        order: the index of the call in which it ran, and autograd's sequence number, which differs from run to run.
        revived: it gets no gradient, and got one in the rerun in which the cuts were undone.
    """

    number: int
    label: str
    kind: str
    status: str
    module: str = ""
    shape: tuple[int, ...] | None = None
    location: Location | None = None
    finding: int | None = None
    order: tuple[int, int] = field(default=(-1, -1), compare=False, repr=False)
    revived: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class Edge:
    """Data flows from ``source`` to ``target`` (node numbers) in the forward pass; the gradient flows back if
    ``status`` is ``"live"``, never arrives if ``"dead"``, and was lost right here if ``"cut"``."""

    source: int
    target: int
    status: str


@dataclass(frozen=True)
class ModuleInfo:
    """One module of the model. ``numel`` and ``trainable`` count the parameters of its whole subtree."""

    path: str
    kind: str
    numel: int
    trainable: int
    reached: int
    training: bool


@dataclass(frozen=True)
class Fixed:
    """What was found in an earlier run, and is not there any more.

    Attributes:
        cause: that of the finding that is gone.
        location: the line that stands where it was; None if no file was changed there.
        lines: what was changed: ``"-"`` or ``"+"``, the line's number, its text.
        parameters: those of the finding that get a gradient now.
    """

    cause: str
    location: Location | None
    lines: tuple[tuple[str, int, str], ...]
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """All that a drawing needs: nodes in forward order, edges, and the model's modules by path.

    Attributes:
        loss: the loss as a short text, for example ``"2.3026"``.
        backward: whether ``loss.backward()`` would run.
        left_out: how many of autograd's nodes, those furthest from the loss, are no nodes of the picture: there are
            too many, and only the calls that made them are shown.
        more_inputs: how many further tensors of the batch took part.
        fixed: what was fixed since an earlier run that this one is compared with.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    modules: tuple[ModuleInfo, ...]
    findings: tuple[Finding, ...]
    loss: str = ""
    backward: bool = True
    left_out: int = 0
    more_inputs: int = 0
    fixed: tuple[Fixed, ...] = ()
