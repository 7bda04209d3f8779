"""Names without those of wrappers, so that a parameter has one name on all ranks, and that which the model gives it.

``DistributedDataParallel``, ``FullyShardedDataParallel``, ``torch.compile`` and checkpoint wrappers register what they
wrap under a name of their own: ``module.eye.weight`` is ``eye.weight``. A module of the user's keeps the name
``module``.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from gradkit.core import introspection
from gradkit.core.records import Change, Location, Origin
from gradkit.report.report import Report
from gradkit.state import registered

WRAPPED = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What wrappers call the one module that they wrap."""
_MAKERS = frozenset(("torch", "torch_xla", "accelerate", "deepspeed"))
_CONTAINERS = "torch.nn.modules."
_NAME = re.compile(r"[\w.]*\w")
_AS_THEY_ARE, _PATHS = (Location, Change, Origin), ("path", "module")


def is_wrapper(module: nn.Module) -> bool:
    """Whether a module is a library's that holds another one under one of the names of ``WRAPPED``.

    Example:
        >>> is_wrapper(nn.DataParallel(nn.Linear(1, 1))), is_wrapper(nn.ModuleDict({"module": nn.Linear(1, 1)}))
        (True, False)
    """
    split = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)  # it makes a class of its own
    kinds = (one for one in type(module).__mro__ if split is None or not issubclass(one, split))
    made = next(kinds, nn.Module).__module__
    named = any(name in WRAPPED for name, _ in registered.children(module))
    return named and made.partition(".")[0] in _MAKERS and not made.startswith(_CONTAINERS)


def names_in(model: nn.Module) -> dict[str, str]:
    """The plain name of each module and parameter of a model, by the name that torch gives it.

    Example:
        >>> names_in(nn.DataParallel(nn.Sequential(nn.Linear(1, 1, bias=False))))
        {'': '', 'module': '', 'module.0': '0', 'module.0.weight': '0.weight'}
    """
    found, wraps = dict[str, str](), dict[str, bool]()
    for path, module in registered.modules(model, twice=True):
        outer, _, name = path.rpartition(".")
        is_wrapped = bool(path) and name in WRAPPED and wraps[outer]
        found[path] = found[outer] if is_wrapped else _joined(found.get(outer, ""), name)
        wraps[path] = is_wrapper(module)
        for own, held in module._parameters.items():
            if held is not None:
                found[_joined(path, str(own))] = _joined(found[path], str(own))
    return found


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def in_report(report: Report, models: Iterable[nn.Module | None]) -> Report:
    """A report in which what some models hold has its plain name; the wrapped module stands in its wrapper's place.

    Example:
        >>> from gradkit.core.records import Finding, Picture
        >>> found = Finding("ddp_unused", None, parameters=("module.weight",))
        >>> told = Report((found,), (), Picture((), (), (), (found,)))
        >>> in_report(told, [nn.DataParallel(nn.Linear(1, 1))]).findings[0].parameters
        ('weight',)
    """
    known = {old: new for one in models if one is not None for old, new in names_in(one).items() if old != new}
    if not known:
        return report
    made: Report = _renamed(report, known)
    modules = tuple({one.path: one for one in made.picture.modules}.values())  # the inner one comes later
    return dataclasses.replace(made, picture=dataclasses.replace(made.picture, modules=modules))


def _renamed(thing: Any, known: Mapping[str, str], field: str = "") -> Any:
    """The same with other names, where any is in it; the whole model, whose name is ``""``, only where paths stand."""
    if type(thing) is str:
        return known.get(thing, thing) if field in _PATHS else _NAME.sub(lambda it: known.get(it[0]) or it[0], thing)
    if type(thing) in (tuple, list):
        return type(thing)(_renamed(one, known) for one in thing)
    if type(thing) is dict:
        return {key: _renamed(one, known) for key, one in thing.items()}
    if not dataclasses.is_dataclass(thing) or isinstance(thing, (type, *_AS_THEY_ARE)):
        return thing
    fields = [one.name for one in dataclasses.fields(thing) if one.init]
    values = {name: introspection.attributes(thing).get(name) for name in fields}
    changed = {name: new for name, old in values.items() if (new := _renamed(old, known, name)) != old}
    return dataclasses.replace(thing, **changed) if changed else thing
