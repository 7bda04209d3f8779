"""What stands around a step: the models that an optimizer trains, and what of them nobody trains.

That an optimizer holds only part of a model may be meant so: a head is trained on a backbone that nobody froze. What
is suspicious is a parameter in the midst of those that are trained; or any, where the optimizer has an empty group or
holds the parameters of a layer that is gone.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Collection, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gradkit.core import introspection
from gradkit.diagnosis.facts import inventory, plain_leaves
from gradkit.live import beside_model, beside_used_up, plain_names
from gradkit.source import frames, locations
from gradkit.state import registered
from gradkit.tracing.after_backward import held_by
from gradkit.witness import histories, listening
from gradkit.witness.deeds import BUILT, CREATED, REGISTERED
from gradkit.witness.histories import deeds_of

LEFT_OUT, STRAY, BESIDE, ADAPTER, ANEW, USED_UP = "left_out", "stray", "beside", "adapter", "anew", "used_up"
_MOST = 64


def look(
    frame: FrameType | None, optimizer: Optimizer, model: nn.Module | None = None, before: Collection[str] = ()
) -> tuple[frozenset[str], tuple[torch.Tensor, ...]]:
    """What is suspicious around an optimizer's step, of this module's constants, and the parameters that it is about.

    Args:
        frame: the innermost frame that waits for the step.
        model: the model, if it is known; None looks for it in the frames.
        before: what the look at the step before found suspicious. Once nobody listens any more, what was made anew in
            that step is taken to be so in this one.
    """
    held = {id(one) for one in held_by(optimizer)}
    models = [model] if model is not None else models_of(frame, held)
    left_out = _not_held if _holds_nothing_or_what_is_gone(optimizer, models) else _in_the_midst
    about = {
        LEFT_OUT: [out for one in models for out in (*left_out(one, held), *_late(one, held, optimizer))],
        STRAY: [stray for one in models for stray in _strays(one)],
        BESIDE: _beside(frame, held) if models else [],
        USED_UP: _used_up(frame, optimizer, held) if models else [],
    }
    if any(about.values()):
        trained = _trained_by_anyone()
        about = {kind: [one for one in found if id(one) not in trained] for kind, found in about.items()}
    found = {kind for kind, some in about.items() if some}
    if _is_made_anew(optimizer, held) or (ANEW in before and not listening.hears()):
        found.add(ANEW)
    if any(_has_frozen_adapter(one) for one in models):
        found.add(ADAPTER)
    return frozenset(found), tuple(one for some in about.values() for one in some)


def models_of(frame: FrameType | None, held: Collection[int]) -> list[nn.Module]:
    """The models of which an optimizer trains something: those that the frames from here outwards can name, without
    those that are part of another."""
    found: dict[int, nn.Module] = {}
    while frame is not None:
        for value in list(locals_of(frame).values()):
            for module in _modules_in(value):
                if id(module) not in found and any(id(one) in held for _, one in registered.parameters(module)):
                    found[id(module)] = module
        frame = frame.f_back
    return registered.outermost(found.values())


def _beside(frame: FrameType | None, held: Collection[int]) -> list[torch.Tensor]:
    """What stands beside the model and was made to learn, of all that the frames from here outwards can name."""
    modules, values, files = dict[int, nn.Module](), dict[str, Any](), dict[str, None]()
    while frame is not None:
        for name, value in list(locals_of(frame).items()):
            modules.update((id(one), one) for one in _modules_in(value))
            if introspection.is_a(value, nn.Parameter):
                values.setdefault(name, value)
        if frames.is_user_file(frame.f_code.co_filename):
            files[frame.f_code.co_filename] = None
        frame = frame.f_back
    return list(beside_model.left_alone(modules.values(), values, held, tuple(files)))


def _used_up(frame: FrameType | None, optimizer: Optimizer, held: Collection[int]) -> list[torch.Tensor]:
    """What stands beside the model and was handed to the optimizer by a generator that was used up."""
    variables, files = list[tuple[str, str, Any]](), dict[str, None]()
    while frame is not None:
        if frames.is_user_file(frame.f_code.co_filename):
            function = locations.qualified_name(frame.f_code).replace("<module>", "")
            variables += [(function, name, value) for name, value in locals_of(frame).items()]
            files[frame.f_code.co_filename] = None
        frame = frame.f_back
    return list(beside_used_up.left_out(optimizer, variables, held, files))


def ids_of(names: Collection[str], frame: FrameType | None, wanted: Collection[int]) -> dict[str, frozenset[int]]:
    """Which tensors the names of a report may mean, of those that are wanted: a name may begin with a variable's."""
    found: dict[str, set[int]] = {}
    for model in models_of(frame, wanted):
        plain = plain_names.names_in(model)
        held = registered.parameters(model, twice=True)
        ends = {end: id(one) for name, one in held for end in (name, plain[name])}
        for name in names:
            for end in (name, name.partition(".")[2]):
                if end in ends:
                    found.setdefault(name, set()).add(ends[end])
    return {name: frozenset(ids) for name, ids in found.items()}


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A frame's variables. What Python keeps for the asking (up to 3.12) is let go again: it would keep alive what the
    frame itself has long let go."""
    kept = frame.f_locals
    values = dict(kept)
    is_copy = frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(kept) is dict
    if is_copy and sys.getrefcount(kept) <= _OWN_REFERENCES:  # nobody has called locals() for it
        kept.clear()
    return values


def _own_references() -> int:
    kept = sys._getframe().f_locals
    return sys.getrefcount(kept)


_OWN_REFERENCES = _own_references()


def _modules_in(value: Any) -> Iterator[nn.Module]:
    """A value, its attributes, or what a short list or dictionary holds, as far as these are modules."""
    if introspection.is_a(value, nn.Module):
        yield value
    elif introspection.is_a(value, (list, tuple, dict)):
        yield from (one for one in _entries(value) if introspection.is_a(one, nn.Module))
    elif not isinstance(value, (type, torch.Tensor)) and not inspect.ismodule(value):
        for one in list(introspection.entries(introspection.attributes(value)))[:_MOST]:
            if introspection.is_a(one, nn.Module):
                yield one


def _entries(value: Any) -> list[Any]:
    if len(value) > _MOST:
        return []
    return list(dict.values(value)) if introspection.is_a(value, dict) else list(value)


def _in_the_midst(model: nn.Module, held: Collection[int]) -> Iterator[torch.Tensor]:
    """Parameters that may train and that an optimizer does not hold, although it holds all else of their module."""
    for module in registered.each(model):
        own = [one for one in module._parameters.values() if one is not None and one.requires_grad]
        out = [one for one in own if id(one) not in held]
        if out:
            others = {id(one) for _, one in registered.parameters(module) if one.requires_grad} - set(map(id, out))
            if others and others <= set(held):
                yield from out


def _late(model: nn.Module, held: Collection[int], optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """Parameters that a gradient reaches, and that joined a model after its optimizer was built and saw all of it."""
    built = next((deed.order for deed in deeds_of(optimizer) if deed.kind == BUILT), None)
    out = list(_not_held(model, held)) if built is not None else []
    if all(one.grad is not None and (deeds := deeds_of(one)) and deeds[0].order > (built or 0) for one in out):
        yield from out


def _is_made_anew(optimizer: Optimizer, held: Collection[int]) -> bool:
    """Whether a gradient reaches a Parameter that was made while a module ran, after this optimizer was built."""
    built = next((deed.order for deed in deeds_of(optimizer) if deed.kind == BUILT), None)
    if built is None:
        return False
    for thing, deeds in histories.of_all():
        late = deeds[0].order > built and deeds[0].kind in (CREATED, REGISTERED)
        if late and introspection.is_a(thing, nn.Parameter) and id(thing) not in held and thing.grad is not None:
            if any(_is_forward(code) for code, _ in deeds[0].chain):
                return True
    return False


def _is_forward(code: CodeType) -> bool:
    return code.co_name == "forward"


def _not_held(model: nn.Module, held: Collection[int]) -> Iterator[torch.Tensor]:
    return (one for _, one in registered.parameters(model) if one.requires_grad and id(one) not in held)


def _holds_nothing_or_what_is_gone(optimizer: Optimizer, models: Iterable[nn.Module]) -> bool:
    """Whether a group is empty (its generator was used up), or holds what got no gradient and is in no model."""
    known = {id(parameter) for one in models for _, parameter in registered.parameters(one)}
    gone = any(one.requires_grad and one.grad is None and id(one) not in known for one in held_by(optimizer))
    return bool(known) and (gone or not all(group["params"] for group in optimizer.param_groups))


def _strays(model: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters that may train, in plain lists, tuples and dictionaries of a model's modules; and what a gradient has
    reached of the plain tensors there that require one."""
    known = {id(one) for _, one in registered.parameters(model)}
    for module in registered.each(model):
        for name, value in list(vars(module).items()):
            if not name.startswith("_") and introspection.is_a(value, (list, tuple, dict)):
                for one in _leaves(_entries(value)):
                    if one.requires_grad and id(one) not in known:
                        yield one
    for one in plain_leaves.held_plainly(model):
        if one.grad is not None and bool(one.grad.any()):
            yield one


def _leaves(values: Iterable[Any], depth: int = 2) -> Iterator[torch.Tensor]:
    for one in values:
        if introspection.is_a(one, nn.Module):
            yield from (parameter for _, parameter in registered.parameters(one))
        elif introspection.is_a(one, nn.Parameter):
            yield one
        elif depth and introspection.is_a(one, (list, tuple, dict)):
            yield from _leaves(_entries(one), depth - 1)


def _trained_by_anyone() -> set[int]:
    """The ids of all that any optimizer holds that is alive."""
    found = set[int]()
    for thing in gc.get_objects():
        if issubclass(type(thing), Optimizer) and introspection.is_a(introspection.ask(thing, "param_groups"), list):
            found |= {id(one) for one in held_by(thing)}
    return found


def _has_frozen_adapter(model: nn.Module) -> bool:
    """Whether an adapter of peft's is in use and cannot learn, or only in part."""
    if "peft" not in sys.modules:
        return False
    parameters = dict(registered.parameters(model))
    adapters = [one for one in inventory.adapters(model) if one.active]
    return any(not parameters[name].requires_grad for one in adapters for name in one.parameters if name in parameters)
