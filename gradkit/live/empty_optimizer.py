"""Why an optimizer was handed no parameters at all: told from the model as it is, for no step has run yet.

The model made its layers in ``forward``, or keeps them in plain lists; all of it is frozen; or what was handed over had
been used up. Nothing is run again, so nothing is proven.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from gradkit.core import introspection
from gradkit.core.records import Finding, Location, Origin, Picture
from gradkit.core.trace import Trace
from gradkit.diagnosis.facts import inventory, seen
from gradkit.diagnosis.facts.cuts import Verdict
from gradkit.diagnosis.facts.first_run import FirstRun
from gradkit.diagnosis.facts.inventory import UnregisteredParameter
from gradkit.diagnosis.facts.model_facts import ModelFacts
from gradkit.diagnosis.rules import setup
from gradkit.diagnosis.rules.evidence import Evidence
from gradkit.live import candidates, plain_names, pruning, stack, whose
from gradkit.live.stack import Point
from gradkit.report.report import Report
from gradkit.source import attributes, faults, frames, locations, syntax
from gradkit.state import registered
from gradkit.tracing.autograd_graph import AutogradGraph
from gradkit.tracing.backward import Reached

_EMPTY = re.compile(r"optimizer got an empty parameter list")
_HOLDS = re.compile(r"\b(Parameter|Linear|LayerNorm|register_parameter)\(")


def of_error(error: BaseException) -> Report | None:
    """What is wrong with the model of an optimizer that was not made; None if that is not what was raised.

    Example:
        >>> of_error(ValueError("bad learning rate")) is None
        True
    """
    raised = next((one for one in faults.raised_from(error) if _is_of_an_optimizer(one)), None)
    points = stack.of_error(error, raised) if raised is not None else ()
    users = [point for point in points if frames.is_user_file(point.code.co_filename)]
    models = _models(users[-1]) if users else []
    found = tuple(one for model in models for one in _findings(model, users[-1], candidates.files(points)))
    if not found:
        return None
    inner, label = users[-1], whose.name_of(users[-1])
    origin = Origin(inner.code.co_filename, label, "", first=inner.line, last=inner.line)
    picture, said = Picture((), (), (), found, backward=False), introspection.text(raised)
    made = Report(found, (), picture, label, backward=False, error=said, runs=0, origin=origin)
    return plain_names.in_report(made, models)


def _is_of_an_optimizer(error: BaseException) -> bool:
    return isinstance(error, ValueError) and bool(_EMPTY.search(introspection.text(error)))


def _models(point: Point) -> list[nn.Module]:
    """The modules that the failing call names; if it names none, those that its function knows."""
    frame, node = point.frame, locations.node_at((point.code, point.lasti))
    spaces = (frame.f_locals, frame.f_globals)
    named = [x for x in ast.walk(node) if isinstance(x, (ast.Name, ast.Attribute))] if node is not None else []
    told = [pruning.looked_up(x, spaces) for x in named]
    known = [one for one in told if introspection.is_a(one, nn.Module)] or [
        one for one in list(frame.f_locals.values()) if introspection.is_a(one, nn.Module)
    ]
    return registered.outermost(known)


def _findings(model: nn.Module, point: Point, files: Sequence[str]) -> list[Finding]:
    names = [name for name, _ in registered.parameters(model)]
    if not names:
        hidden, spots = _hidden(model), _built_outside_init(model)
        return [*setup.built_in_methods(spots), *(setup.findings(_evidence(model, hidden, files)) if hidden else ())]
    if any(one.requires_grad for _, one in registered.parameters(model)):
        return [setup.handed_nothing(locations.locate((point.code, point.lasti), whole=True), names)]
    return setup.seen_to_freeze(seen.read(model), names)


def _hidden(model: nn.Module) -> tuple[UnregisteredParameter, ...]:
    """What the model's modules keep in plain lists, tuples and dictionaries."""
    parts = [
        one for path, module in registered.modules(model) for one in _kept(path.split(".") if path else [], module)
    ]
    return tuple(one for one in (inventory.follow(model, each) for each in parts) if one is not None)


def _kept(path: list[str], module: nn.Module) -> Iterator[list[Any]]:
    for name, value in list(vars(module).items()):
        if name.startswith("_") or not introspection.is_a(value, (list, tuple, dict)):
            continue
        is_table = introspection.is_a(value, dict)
        for key, one in introspection.items(value) if is_table else enumerate(introspection.entries(value)):
            if introspection.is_a(one, nn.Module):
                yield from ([*path, name, key, *inner.split(".")] for inner, _ in registered.parameters(one))
            elif introspection.is_a(one, nn.Parameter):
                yield [*path, name, key]


def _evidence(model: nn.Module, hidden: tuple[UnregisteredParameter, ...], files: Sequence[str]) -> Evidence:
    nothing = Trace(calls=(), values=(), regions=(), modules=(), loss=-1, parameters={})
    classes = {path: type(module) for path, module in registered.modules(model)}
    facts = ModelFacts(rows=(), unregistered=hidden, classes=classes, files=tuple(files))
    first = FirstRun(nothing, AutogradGraph(), Reached(), "")
    return Evidence(first=first, facts=facts, verdict=Verdict((), (), (), frozenset()))


def _built_outside_init(model: nn.Module) -> list[Location]:
    kinds = dict.fromkeys(map(type, registered.each(model)))
    found = {(spot.file, spot.line): spot for cls in kinds for spot in _made_outside_init(cls)}
    return list(found.values())


def _made_outside_init(cls: type) -> list[Location]:
    """Where the methods of a class, beside ``__init__``, make layers or Parameters."""
    found = []
    for file, body in attributes.bodies(cls):
        space = vars(sys.modules.get(cls.__module__, inspect))
        methods = [node for node in body.body if isinstance(node, syntax.FUNCTIONS) and node.name != "__init__"]
        for method in methods:
            calls = [node for node in ast.walk(method) if isinstance(node, ast.Call)]
            made = [node for node in calls if _holds_parameters(pruning.looked_up(node.func, (space,)))]
            found += [locations.place(file, node, f"{cls.__name__}.{method.name}") for node in made]
    return sorted(found, key=lambda spot: (spot.file, spot.line))


def _holds_parameters(cls: Any) -> bool:
    """Whether a class is ``nn.Parameter``, or one of modules that hold some."""
    if not inspect.isclass(cls) or not issubclass(cls, (nn.Module, nn.Parameter)):
        return False
    if issubclass(cls, nn.Parameter) or frames.is_user_file(inspect.getsourcefile(cls) or ""):
        return True
    return any(_HOLDS.search(_source_of_init(one)) for one in cls.__mro__ if one not in (nn.Module, object))


def _source_of_init(cls: type) -> str:
    try:
        return inspect.getsource(vars(cls)["__init__"])
    except (KeyError, OSError, TypeError):
        return ""
