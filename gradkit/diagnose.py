"""The straight line: load, trace, reach, cut, prove, name, picture, report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradkit import (
    attempts,
    autograd,
    calling,
    causes,
    cells,
    classes,
    cuts,
    frames,
    harmless,
    imported,
    inventory,
    load,
    mending,
    mishaps,
    optimizers,
    owners,
    picture,
    questions,
    ranks,
    reach,
    registered,
    replay,
    stale,
    strangers,
    strays,
    torchviz_kept,
    unhooked,
    vanishing,
)  # fmt: skip
from gradkit.attempts import Attempts
from gradkit.batches import shown
from gradkit.errors import GradkitError, letting_go
from gradkit.evidence import Evidence
from gradkit.handing import settings
from gradkit.ledger import Ledger
from gradkit.mending import Mended
from gradkit.mishaps import Mishap
from gradkit.optimizers import Gap, gap
from gradkit.outcome import Session, outcome, read
from gradkit.preserve import Preserved
from gradkit.records import Harmless, Picture, Untried
from gradkit.report import Report
from gradkit.scalers import Misuse
from gradkit.trace import Tracer
from gradkit.traces import Chain, Trace, Value
from gradkit.unreal import has_no_numbers, shape_of


@letting_go
def diagnose(
    model_or_step: Any,
    batch: Any = None,
    *,
    model: nn.Module | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    replay: bool = True,
    should_train: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Find where the gradient is lost between the parameters that should train and the loss.

    Args:
        model_or_step: a model (with ``batch``), a callable of no arguments that runs ONE forward pass and returns the
            loss, or a ``load.Step``.
        batch: what the model is called with: a dict, a tuple or list, or a single tensor.
        model: the model whose parameters are of interest, with a step.
        loss: ``loss(output, batch)``; None takes ``output.loss``, or the output itself if it is a scalar.
        optimizer: the optimizer in use.
        replay: run the step once more with what was found undone, to prove it. False runs the step exactly once.
        should_train: names or globs of the parameters that ought to learn; None: all that require grad.
        progress: told the name of each stage as it begins; may raise to cancel.

    Returns:
        The report. The model, the random state, every ``.grad`` and what else the step can reach are as before, also
        if the step raises; ``docs/no_trace.md`` says what cannot be.

    Raises:
        GradkitError: the step cannot be run, or returns no tensor.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        >>> report = diagnose(lambda: model[1](model[0](torch.ones(1, 2)).detach()).sum(), model=model)
        >>> report.findings[0].cause, report.findings[0].parameters, report.findings[0].proof
        ('detach', ('0.weight', '0.bias'), 'proven')
    """
    callers = frames.chain(sys._getframe(1), Preserved.__init__.__code__)
    with attempts.refusing(progress) as tell:
        options = _Options(optimizer, replay, inventory.patterns(should_train), callers)
        return _diagnosed(step_of(model_or_step, batch, model, loss), options, tell, progress)


def _diagnosed(
    step: load.Step, options: _Options, tell: Callable[[str], None], waits: Callable[[str], None] | None
) -> Report:
    outer = [step.model, *owners.modules_of(strangers.ask(step.run, "step", step.run))]
    used = [module for one in outer for module in registered.each(one)]
    ranks.refuse_sharded(used)
    lazy = next(
        (n for n, p in [*registered.parameters(step.model), *registered.buffers(step.model)] if is_lazy(p)), None
    )
    if lazy is not None:
        raise GradkitError("lazy_model", name=lazy)
    if options.optimizer is not None and not optimizers.is_one(options.optimizer):
        raise GradkitError("not_an_optimizer", got=shown(options.optimizer))
    preserved = Preserved(step.model, step.run, waits)
    report = preserved.during(
        partial(_found, step, used, preserved, options, tell)
    )  # a frame keeps what a lambda closes over
    return replace(report, left=tuple(map(attempts.words, preserved.left)))


def _found(
    step: load.Step, used: Sequence[nn.Module], preserved: Preserved, options: _Options, tell: Callable[[str], None]
) -> Report:
    want = inventory.wanted(step.model, options.should_train)
    optimizer, found = options.optimizer, owners.optimizers_of(step.run, step.model)
    with imported.looking(), ranks.together(used):
        for one in found if optimizer is None else (optimizer, *found):
            preserved.optimizer(one)
        tell("trace")
        tracer = Tracer(step.model, preserved)
        run = _run(step, tracer, preserved, tell)
        run = replace(run, gap=gap(step.model, preserved.parameters, optimizer, found, tracer.took_part()))
        run = replace(run, hooks=unhooked.seen(tracer, preserved))
        preserved.rewind()
        return _conclude(step, run, want, preserved, options, tell, tracer.ledger)


@dataclass(frozen=True)
class _Options:
    optimizer: torch.optim.Optimizer | None
    replay: bool
    should_train: Sequence[str] | None
    callers: Chain


@dataclass(frozen=True)
class _Run:
    """The first run, as records: nothing of it is alive any more."""

    trace: Trace
    graph: autograd.AutogradGraph
    reached: reach.Reached
    value: str
    mishap: Mishap | None = None
    misuses: tuple[Misuse, ...] = ()
    gap: Gap = field(default_factory=Gap)
    hooks: unhooked.Seen | None = None


def step_of(given: Any, batch: Any, model: nn.Module | None, loss: Callable[..., Any] | None) -> load.Step:
    """What ``diagnose`` was given, as a step.

    Raises:
        GradkitError: it is neither a model nor a step.
    """
    if strangers.is_a(given, load.Step):
        return given
    if strangers.is_a(given, nn.Module):
        return load.from_objects(given, batch, loss)
    if not callable(given):
        raise GradkitError("not_a_model_or_step", kind=type(given).__name__)
    return load.from_step(given, model)


def _run(step: load.Step, tracer: Tracer, preserved: Preserved, tell: Callable[[str], None]) -> _Run:
    preserved.clear_grads()
    try:
        result = tracer.run(step.run)
    except GradkitError:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is explained or raised anew
        return _failed(error, tracer, step, preserved)
    tell("reach")
    own = tracer.own(result) is not None
    if not own and not strangers.is_a(result, torch.Tensor):
        result = calling.as_loss(result, step.label or "step")
    trace = tracer.trace(result)
    graph, reached = outcome(tracer, result, preserved)
    mishap = reached.mishap
    if tracer.asked is not None and not own:
        mishap = mishaps.of(tracer.asked.error, in_step=True, asked=trace.loss, inputs=tracer.asked.inputs)
    value = _shown(result) if strangers.is_a(result, torch.Tensor) else ""
    return _Run(trace, graph, reached, value, _at_length(mishap, tracer), tuple(tracer.scalers.found))


def _at_length(mishap: Mishap | None, tracer: Tracer) -> Mishap | None:
    """The mishap with what the step had done with its graphs by then."""
    if mishap is None:
        return None
    return replace(mishap, freeing=tracer.freeing(), trained=frozenset(tracer.trained))


def _failed(error: Exception, tracer: Tracer, step: load.Step, preserved: Preserved) -> _Run:
    """The step raised: if it is one of autograd's errors, that is what there is to be explained."""
    asked = tracer.asked
    tensor = asked.tensor if asked is not None else None
    number = tracer.ledger.known(tensor) if tensor is not None else None
    mishap = mishaps.of(
        error, in_step=True, asked=-1 if number is None else number, inputs=asked.inputs if asked is not None else ()
    )
    if mishap is None:
        raise load.explain_failure(error, step) from error
    graph = read([tensor], preserved) if tensor is not None else autograd.AutogradGraph()
    names = {node.label for node in graph.nodes if node.leaf}
    norms = {**dict.fromkeys(names & set(preserved.parameters)), **tracer.backwards.reached}
    reached = reach.Reached(norms, False, mishap.message)
    value = _shown(tensor) if tensor is not None else ""
    return _Run(tracer.trace(tensor), graph, reached, value, _at_length(mishap, tracer), tuple(tracer.scalers.found))


def _conclude(
    step: load.Step,
    run: _Run,
    want: Sequence[str],
    preserved: Preserved,
    options: _Options,
    tell: Callable[[str], None],
    ledger: Ledger,
) -> Report:
    trace, reached, tries = run.trace, run.reached, Attempts(preserved.rewind)
    chains = (options.callers, *(call.chain for call in trace.calls))
    imported.ran((code for chain in chains for code, _ in chain), classes.codes(map(type, registered.each(step.model))))
    adapters = inventory.adapters(step.model)
    unregistered = inventory.unregistered(step.model, options.should_train)
    if options.should_train is None:
        unregistered = tries.make("strays", lambda: strays.found(step.run, step.model, trace, ledger), ())
    want = tuple(want) or (() if unregistered else _ought(step.model, adapters))
    starved = [name for name in want if name not in reached.norms]
    tell("cuts")
    verdict = cuts.find(trace, starved)
    session = Session(step.run, step.model, preserved)
    rerun, mended = replay.Rerun(), Mended()
    crossing = mending.crossings(trace, run.mishap) if run.mishap is not None else ()
    if options.replay and run.mishap is not None:
        mend = partial(mending.mend, run.mishap, crossing, session)
        mended = tries.make("mend", mend, Mended(runs=1))
    if options.replay and verdict.cuts:
        tell("replay")
        undo = partial(replay.rerun, session, verdict.cuts)
        rerun = tries.make("replay", undo, replay.Rerun(None, 1))
    kept, runs = tries.make("stale", lambda: _kept(session, trace, verdict, options, ledger), _NOTHING_KEPT)
    rows = inventory.table(step.model, want, _used(trace), reached)
    tell("causes")
    placed = dict(registered.modules(step.model, twice=True))
    evidence = Evidence(
        trace, verdict, rows, reached, adapters, unregistered, run.gap, _no_op_flags(step.model),
        revived=rerun.revived, rerun_error=rerun.error, reruns=rerun.runs + mended.runs + runs,
        files=_files(step, trace, options.callers), callers=options.callers,
        classes={path: type(module) for path, module in placed.items()},
        settings={path: settings(module) for path, module in placed.items()},
        mishap=run.mishap, mended=mended, crossing=crossing, misuses=run.misuses, kept=kept,
        explicit=options.should_train is not None,
    )  # fmt: skip
    evidence = _asked(evidence, run, rerun, session, options, tries)
    findings = causes.name(evidence)
    backward = reached.runs and not reached.error
    modules = inventory.modules(step.model, rows)
    drawn = tries.make(
        "picture",
        lambda: picture.make(trace, verdict, run.graph, rerun, findings, rows, modules, run.value, backward),
        Picture((), (), modules, findings, run.value, backward),
    )
    keep = partial(torchviz_kept.keep, trace, run.graph, rerun, drawn)
    kept_graph = tries.make("picture", keep, torchviz_kept.Kept())
    asides = tries.make("harmless", partial(harmless.seen, evidence, findings), _NOTHING_HARMLESS)
    unread = [Untried("graph", run.graph.error)] if run.graph.error else []
    unread += [Untried("warning", one) for one in dict.fromkeys(reached.warned)]
    return Report(
        findings, rows, drawn, step.label, run.value, reached.runs, _raised(run), 1 + evidence.reruns, asides,
        run.graph.nodes[0].label if run.graph.nodes else "", untried=(*unread, *tries.untried),
        autograd=kept_graph,
    )  # fmt: skip


_NOTHING_KEPT: tuple[tuple[stale.Kept, ...], int] = ((), 1)
_NOTHING_HARMLESS: tuple[Harmless, ...] = ()


def _kept(
    session: Session, trace: Trace, verdict: cuts.Verdict, options: _Options, ledger: Ledger
) -> tuple[tuple[stale.Kept, ...], int]:
    """What holds values without history where starved parameters do not flow into the loss; and the runs it took."""
    strangers = [n for n in sorted(verdict.reaching) if _may_be_stale(trace.values[n])]
    tensors = ledger.alive(strangers) if verdict.unconnected else {}
    if not tensors:
        return (), 0
    search = stale.Search(session, trace, tensors, verdict.unconnected)
    return search.found(options.replay), search.runs


def _may_be_stale(value: Value) -> bool:
    return value.maker < 0 and value.floating and not value.requires_grad and not value.parameter


def _raised(run: _Run) -> str:
    """What the step or backward raised; also where the step asked for a derivative by name that it did not get."""
    asked = run.mishap is not None and run.mishap.in_step and bool(run.mishap.inputs)
    return run.reached.error or (run.mishap.message if asked and run.mishap is not None else "")


def _ought(model: nn.Module, adapters: Iterable[inventory.Adapter]) -> tuple[str, ...]:
    """Nothing requires grad: what ought to train is the adapter if there is one, else everything."""
    adapted = tuple(name for adapter in adapters for name in adapter.parameters)
    return adapted or tuple(name for name, _ in registered.parameters(model))


def _no_op_flags(model: nn.Module) -> bool:
    return any("requires_grad" in strangers.attributes(module) for module in registered.each(model))


def _asked(
    e: Evidence, run: _Run, rerun: replay.Rerun, session: Session, options: _Options, tries: Attempts
) -> Evidence:
    """What the first run left open, answered by further runs where those are allowed."""
    not_finite = reach.not_finite(e.reached.norms, e.wanted)
    behind = {node.label for node in run.graph.nodes if node.leaf}
    lost = [n for n in e.verdict.unexplained if n in behind and not e.reached.error]
    zero = [n for n in e.wanted if e.reached.norms.get(n, 1.0) in (0, None) and not e.reached.error]
    if run.hooks is not None and options.replay and not e.reached.error:
        dead, now, seen = (*not_finite, *lost, *zero), e, run.hooks
        e = tries.make("hooks", lambda: _of_hooks(now, seen, dead, session), e)
        told = {name for one in e.silencers for name in one.parameters}
        not_finite, lost, zero = (
            tuple(n for n in not_finite if n not in told),
            *([n for n in m if n not in told] for m in (lost, zero)),
        )
    if run.mishap is not None and run.mishap.kind == mishaps.HOOK_RESULT and options.replay:
        return tries.make("hooks", lambda: _refused(e, session), e)
    found = vanishing.find(run.graph, e.trace, zero)
    if zero and not found and any(n.label.endswith("Backward") for n in run.graph.nodes if not n.leaf):
        lost += [n for n in zero if n in behind]  # a custom Function may return zeros
    if rerun.trace is not None:
        found += vanishing.find(rerun.graph, rerun.trace, rerun.zero.intersection(e.starved))
    nan = run.value == "nan"
    barren = (
        bool(zero) and not found and (nan or (len(zero) == len(e.wanted) and vanishing.open_to_question(run.graph)))
    )
    e = replace(e, not_finite=not_finite, vanishing=found, nan_loss=nan)
    if not options.replay or not (not_finite or lost or barren):
        return e
    ask = partial(questions.ask, session, not_finite=not_finite, lost=lost, zero=barren)
    answers = tries.make("questions", ask, questions.Answers(runs=1))
    known = {(call.index, call.key): call for call in e.trace.calls}
    again = [(kind, known.get((call.index, call.key))) for kind, call in answers.swallowed]
    found += tuple(vanishing.Vanishing(kind, call, tuple(zero)) for kind, call in again if call is not None)
    return replace(e, spoiler=answers.spoiler, dropped=answers.dropped, vanishing=found, reruns=e.reruns + answers.runs)


def _refused(e: Evidence, session: Session) -> Evidence:
    """Which hooks return what cannot take the place of a gradient."""
    answer = unhooked.refused(session)
    return replace(e, silencers=answer.silencers, reruns=e.reruns + answer.runs)


def _of_hooks(e: Evidence, found: unhooked.Seen, dead: Sequence[str], session: Session) -> Evidence:
    """Whether hooks of the user's keep parameters from learning that ought to."""
    filled = found.filled.intersection(e.wanted, e.reached.emptied)
    if not dead and not filled:
        return e
    answer = unhooked.find(session, dead, filled)
    return replace(e, silencers=answer.silencers, reruns=e.reruns + answer.runs)


def _used(trace: Trace) -> set[str]:
    touched = {number for call in trace.calls for number in call.inputs}
    names = {trace.values[number].parameter for number in touched}
    return {name for name, number in trace.parameters.items() if trace.values[number].parameter in names}


def _files(step: load.Step, trace: Trace, callers: Chain) -> tuple[str, ...]:
    """The user's files: those that ran, those of the model's classes, those that called us, and notebook cells."""
    ran = [code.co_filename for call in trace.calls for code, _ in call.chain]
    written = classes.class_files({type(module) for module in registered.each(step.model)})
    called = [code.co_filename for code, _ in callers]
    return tuple(
        f for f in dict.fromkeys([*step.files, *ran, *written, *called, *cells.files()]) if frames.is_user_file(f)
    )


def _shown(loss: torch.Tensor) -> str:
    if has_no_numbers(loss) or loss.numel() != 1:
        return str(tuple(shape_of(loss)))
    with torch._C.DisableTorchFunctionSubclass():  # a subclass may answer otherwise
        return f"{loss.detach().item():.4f}"
