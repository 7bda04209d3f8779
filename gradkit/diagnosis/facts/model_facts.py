"""What is known of a model and its source before anything is run again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import nn

from gradkit.core import introspection
from gradkit.core.attempts import Attempts
from gradkit.core.records import ModuleInfo, Parameter
from gradkit.core.trace import Chain, Trace
from gradkit.diagnosis.facts import copied_leaves, frozen_along, inventory, optimizers
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.inventory import Adapter, UnregisteredParameter
from gradkit.load.step import Step
from gradkit.source import attributes, frames
from gradkit.source.constructors import plain_settings
from gradkit.state import registered
from gradkit.tracing.backward import Reached
from gradkit.tracing.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model as records.

    Attributes:
        rows: one for each parameter.
        modules: one for each module.
        adapters: the adapters that it has.
        unregistered: tensors that should train and are no parameters of the model.
        no_op_flags: a module carries a plain attribute ``requires_grad``, which does nothing.
        classes: class of every module, by path.
        settings: plain attributes of every module, by path.
        files: the user's source files that take part.
        callers: the user's frames around the call of ``diagnose``, innermost first.
        explicit: what should train was named by the user.
        wished: these names are the user's own, and not read off an optimizer.
        attached: where a gradient is missing, the parameters that hooks on a module's forward compute with, by path.
        left: parameters that should train, that no gradient reaches, and that a library's module computes with for
            nothing: no rule blames anything for their sake.
        along: parameters that were frozen along with others and were not meant, each with how that is known.
        missing: names that should train are of nothing that the model has.
    """

    rows: tuple[Parameter, ...]
    modules: tuple[ModuleInfo, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    unregistered: tuple[UnregisteredParameter, ...] = ()
    no_op_flags: bool = False
    classes: dict[str, type] = field(default_factory=dict)
    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    callers: Chain = ()
    explicit: bool = False
    wished: bool = False
    attached: dict[str, frozenset[str]] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    along: dict[str, str] = field(default_factory=dict)
    missing: bool = False

    def without(self, names: Collection[str]) -> ModelFacts:
        """The same, without asking some parameters to learn."""
        rows = tuple(replace(row, should_train=False) if row.name in names else row for row in self.rows)
        return replace(self, rows=rows)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Parameters that should train."""
        return tuple(row.name for row in self.rows if row.should_train)

    @property
    def starved(self) -> tuple[str, ...]:
        """Parameters that should train and that backward does not reach."""
        return tuple(row.name for row in self.rows if row.should_train and not row.reached)


def read(
    step: Step,
    first: FirstRun,
    want: Sequence[str],
    should_train: Sequence[str] | None,
    callers: Chain,
    ledger: Ledger,
    tries: Attempts,
    *,
    wished: bool = False,
) -> tuple[ModelFacts, tuple[str, ...]]:
    """What is known of the model of a step; and the names of the parameters that should train.

    Args:
        want: the parameters that should train as far as was asked for; empty if none requires grad.
        should_train: the names or globs that the user gave.
        ledger: of the first run.
        wished: these names are the user's own.
    """
    model, trace = step.model, first.trace
    adapters = inventory.adapters(model)
    unregistered = inventory.unregistered(model, should_train)
    if not wished:
        find = partial(optimizers.hidden_parameters, step.run, model, trace, ledger, _files(step, trace, callers))
        unregistered = tries.make("strays", lambda: (*find(), *copied_leaves.lost(model, trace, ledger)), ())
    nothing = bool(unregistered or (first.gap.elsewhere and should_train is None and not adapters))
    along = _frozen_along(model, first, _files(step, trace, callers)) if want and should_train is None else {}
    want = (*want, *along) or (() if nothing else _ought(model, adapters))
    rows = inventory.table(model, want, _used(trace), first.reached)
    placed = dict(registered.modules(model, twice=True))
    missed = [row for row in rows if row.should_train and not row.reached]
    ran = {trace.modules[call.module] for call in trace.calls if call.module >= 0} if missed else set[str]()
    left = inventory.left_to_library(model, missed, ran, first.reached.norms.keys()) if missed and not wished else []
    facts = ModelFacts(
        rows=rows,
        modules=inventory.modules(model, rows),
        adapters=adapters,
        unregistered=unregistered,
        no_op_flags=any("requires_grad" in introspection.attributes(module) for module in registered.each(model)),
        classes={path: type(module) for path, module in placed.items()},
        settings={path: plain_settings(module) for path, module in placed.items()},
        files=_files(step, trace, callers),
        callers=callers,
        explicit=should_train is not None,
        wished=wished,
        attached=tries.make("strays", lambda: inventory.attached(model), {}) if missed else {},
        left=tuple(left),
        along=along,
    )
    return facts, want


def without_a_run(model: nn.Module, reached: Reached, files: Sequence[str], callers: Chain) -> ModelFacts:
    """What is known of a model whose step cannot be run: its parameters, its classes and their files."""
    placed = dict(registered.modules(model, twice=True))
    written = attributes.class_files({type(module) for module in placed.values()})
    return ModelFacts(
        rows=inventory.table(model, (), set(), reached),
        classes={path: type(module) for path, module in placed.items()},
        settings={path: plain_settings(module) for path, module in placed.items()},
        files=tuple(dict.fromkeys([*files, *filter(frames.is_user_file, written)])),
        callers=callers,
    )


def _frozen_along(model: nn.Module, first: FirstRun, files: Sequence[str]) -> dict[str, str]:
    """What was frozen along with others and not meant, as far as names, the optimizer and the source tell."""
    flags = {name: parameter.requires_grad for name, parameter in registered.parameters(model)}
    handed = first.gap.kind and first.gap.reason == optimizers.LEFT_OUT
    held = [name for name in flags if name not in first.gap.missing] if handed else []
    return frozen_along.caught(flags, held, files)


def _ought(model: nn.Module, adapters: Iterable[Adapter]) -> tuple[str, ...]:
    """Nothing requires grad: what ought to train is the adapter if there is one, else everything."""
    adapted = tuple(name for adapter in adapters for name in adapter.parameters)
    return adapted or tuple(name for name, _ in registered.parameters(model))


def _used(trace: Trace) -> set[str]:
    touched = {number for call in trace.calls for number in call.inputs}
    names = {trace.values[number].parameter for number in touched}
    return {name for name, number in trace.parameters.items() if trace.values[number].parameter in names}


def _files(step: Step, trace: Trace, callers: Chain) -> tuple[str, ...]:
    """The user's files: those that ran, those of the model's classes, those that called us, and notebook cells."""
    ran = [code.co_filename for call in trace.calls for code, _ in call.chain]
    written = attributes.class_files({type(module) for module in registered.each(step.model)})
    called = [code.co_filename for code, _ in callers]
    return tuple(
        f for f in dict.fromkeys([*step.files, *ran, *written, *called, *frames.cell_files()]) if frames.is_user_file(f)
    )
