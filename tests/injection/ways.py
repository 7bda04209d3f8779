"""The ways to write a cut. ``§`` stands right before the part of the code whose line must be named.

``KINDS``: as an expression of a value. ``HELPERS``: around such an expression, ``$c(value)``, in a file of the user's
own. ``REGIONS``, ``BLOCKS``: recording switched off, in such a file or around a statement. ``MODULES`` and
``MODULE_REGIONS``: around a module's forward.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A cause and the expressions that bring it about; ``helper``: those that need names of the helpers' file."""

    cause: str
    forms: tuple[str, ...]
    helper: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "detach": Kind("detach", (
        "{v}§.detach()", "{v}.clone()§.detach()", "{v}§.detach().clone()", "torch§.detach({v})",
        "{v}.clone()§.detach_()",
    )),
    "data": Kind("data_attr", ("{v}§.data", "{v}§.data.clone()", "{v}.contiguous()§.data", "torch.clone({v}§.data)")),
    "numpy": Kind("numpy_roundtrip", (
        "torch.from_numpy({v}.detach()§.numpy())", "torch.from_numpy({v}.detach().cpu()§.numpy().copy())",
        "torch.as_tensor({v}.detach()§.numpy())", "torch.tensor({v}.data§.numpy())",
    ), (
        "torch.from_numpy(np.tanh({v}.detach()§.numpy()))", "torch.from_numpy(np.asarray({v}.detach()§.numpy()) * 0.5)",
        "torch.as_tensor(np.clip({v}.detach()§.numpy(), -9.0, 9.0))",
        "torch.from_numpy(np.ascontiguousarray({v}.detach()§.numpy()))",
    )),
    "python": Kind("python_roundtrip", ("torch.tensor({v}§.tolist())", "torch.as_tensor({v}.detach()§.tolist())")),
    "rewrap": Kind("rewrap_tensor", ("torch§.tensor({v})", "torch§.tensor({v}.clone())"), (
        "{v}§.new_tensor({v})", "torch§.tensor({v}, dtype=torch.float32)",
    )),
    "parameter": Kind("parameter_rewrap", ("torch.nn§.Parameter({v})",)),
    "cast": Kind("integer_cast", (
        "({v} * 1000)§.long() / 1000", "({v} * 100).round()§.int() / 100", "({v} * 1000)§.to(torch.int64) / 1000",
        "({v} * 1000)§.type(torch.long).float() / 1000", "({v} * 100).round()§.to(torch.int32).float() * 0.01",
    )),
}  # fmt: skip

HELPERS: dict[str, str] = {
    "function": """
def keep(value):
    return $c(value)
""",
    "statements": """
def keep(value):
    shape = value.shape
    flat = value.reshape(-1)
    flat = $c(flat)
    return flat.reshape(shape)
""",
    "method": """
class Keeper:
    def __init__(self):
        self.kept = None

    def keep(self, value):
        self.kept = $c(value)
        return self.kept


keep = Keeper().keep
""",
    "static method": """
class Keeper:
    @staticmethod
    def keep(value):
        kept = $c(value)
        return kept


keep = Keeper.keep
""",
    "callable": """
class Keep:
    def __call__(self, value):
        return $c(value)


keep = Keep()
""",
    "property": """
class Box:
    def __init__(self, value):
        self.value = value

    @property
    def kept(self):
        return $c(self.value)


def keep(value):
    return Box(value).kept
""",
    "list comprehension": """
def keep(value):
    return [$c(one) for one in [value]][0]
""",
    "dict comprehension": """
def keep(value):
    named = {"value": value}
    kept = {
        name: $c(one)
        for name, one in named.items()
    }
    return kept["value"]
""",
    "generator": """
def each(values):
    for value in values:
        yield $c(value)


def keep(value):
    return next(each([value]))
""",
    "rows": """
def keep(value):
    rows = [$c(row) for row in value.reshape(1, -1)]
    return torch.stack(rows).reshape(value.shape)
""",
    "lambda": """
keep = lambda value: $c(value)
""",
    "map": """
def keep(value):
    return list(map(lambda one: $c(one), (value,)))[0]
""",
    "partial": """
def scaled(factor, value):
    return $c(value) * factor


keep = functools.partial(scaled, 1.0)
""",
    "closure": """
def make():
    count = 0

    def inner(value):
        nonlocal count
        count += 1
        return $c(value)

    return inner


keep = make()
""",
    "decorator": """
def kept(function):
    @functools.wraps(function)
    def inner(*args):
        result = function(*args)
        return $c(result)

    return inner


@kept
def keep(value):
    return value * 1.0
""",
    "loop": """
def keep(value):
    for _ in range(3):
        value = value * 1.0
        value = $c(value)
    return value
""",
    "recursion": """
def keep(value, depth=3):
    if depth:
        return keep(value + 0.0, depth - 1)
    return $c(value)
""",
    "with": """
def keep(value):
    with contextlib.nullcontext():
        kept = $c(value)
    return kept
""",
    "try": """
def keep(value):
    try:
        return $c(value)
    finally:
        len(value.shape)
""",
    "conditional": """
def keep(value):
    return $c(value) if value.dim() >= 0 else value
""",
    "walrus": """
def keep(value):
    if (kept := $c(value)) is not None:
        return kept
    return value
""",
    "chain over lines": """
def keep(value):
    return (
        $c(value)
        .reshape(-1)
        .reshape(value.shape)
    )
""",
    "written into": """
def keep(value):
    kept = torch.zeros_like(value)
    kept[...] = $c(value)
    return kept
""",
    "copied into": """
def keep(value):
    kept = torch.empty(value.shape)
    kept.copy_($c(value))
    return kept
""",
    "dictionary": """
memory = {}


def keep(value):
    memory["latest"] = $c(value)
    return memory["latest"]
""",
    "list": """
def keep(value):
    parts = []
    parts.append($c(value))
    return torch.stack(parts).squeeze(0)
""",
    "dataclass": """
@dataclasses.dataclass
class Kept:
    value: torch.Tensor
    scale: float = 1.0


def keep(value):
    held = Kept(value=$c(value))
    return held.value * held.scale
""",
    "layer": """
class Keep(nn.Module):
    def forward(self, value):
        return $c(value)


keep = Keep()
""",
    "reduce": """
def keep(value):
    return functools.reduce(lambda total, one: total + $c(one), [value], torch.zeros(()))
""",
    "context manager": """
@contextlib.contextmanager
def kept(value):
    yield $c(value)


def keep(value):
    with kept(value) as one:
        return one
""",
    "two halves": """
def keep(value):
    kept, rest = [$c(part) for part in value.reshape(2, -1)] if value.numel() % 2 == 0 else [$c(value), None]
    return kept if rest is None else torch.stack([kept, rest]).reshape(value.shape)
""",
    "mixed with itself": """
def keep(value):
    kept = $c(value)
    return kept * 0.5 + kept * 0.5
""",
}

REGIONS: dict[str, tuple[str, str]] = {
    "block": ("no_grad_block", """
def keep(value):
    with §torch.no_grad():
        kept = value * 1.0
    return kept
"""),
    "block that returns": ("no_grad_block", """
def keep(value):
    with §torch.no_grad():
        return value + 0.0
"""),
    "block set to False": ("no_grad_block", """
def keep(value):
    with §torch.set_grad_enabled(False):
        kept = value * 1.0
    return kept
"""),
    "second of two contexts": ("no_grad_block", """
def keep(value):
    with contextlib.nullcontext(), §torch.no_grad():
        kept = value * 1.0
    return kept
"""),
    "contexts over lines": ("no_grad_block", """
def keep(value):
    with contextlib.nullcontext(
    ), §torch.no_grad():
        kept = value * 1.0
    return kept
"""),
    "guard in a name": ("no_grad_block", """
def keep(value):
    guard = torch.no_grad()
    with §guard:
        kept = value * 1.0
    return kept
"""),
    "exit stack": ("no_grad_block", """
def keep(value):
    with contextlib.ExitStack() as stack:
        stack§.enter_context(torch.no_grad())
        kept = value * 1.0
    return kept
"""),
    "own context manager": ("no_grad_block", """
@contextlib.contextmanager
def still():
    with §torch.no_grad():
        yield


def keep(value):
    with still():
        kept = value * 1.0
    return kept
"""),
    "enabled for a while": ("no_grad_block", """
def keep(value):
    with §torch.no_grad():
        with torch.enable_grad():
            live = value * 1.0
        kept = live * 1.0
    return kept
"""),
    "block in a loop": ("no_grad_block", """
def keep(value):
    for _ in range(2):
        with §torch.no_grad():
            value = value * 1.0
    return value
"""),
    "helper called in a block": ("no_grad_block", """
def scaled(value):
    return value * 1.0


def keep(value):
    with §torch.no_grad():
        kept = [scaled(one) for one in [value]]
    return kept[0]
"""),
    "decorator": ("no_grad_decorator", """
@§torch.no_grad()
def keep(value):
    return value * 1.0
"""),
    "bare decorator": ("no_grad_decorator", """
@§torch.no_grad
def keep(value):
    return value * 1.0
"""),
    "decorated method": ("no_grad_decorator", """
class Keeper:
    @§torch.no_grad()
    def keep(self, value):
        return value * 1.0


keep = Keeper().keep
"""),
    "decorator under another": ("no_grad_decorator", """
def plain(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


@plain
@§torch.no_grad()
def keep(value):
    return value * 1.0
"""),
    "decorated inner function": ("no_grad_decorator", """
def keep(value):
    @§torch.no_grad()
    def scaled(one):
        return one * 1.0

    return scaled(value)
"""),
    "switch": ("grad_disabled_globally", """
def keep(value):
    before = torch.is_grad_enabled()
    torch§.set_grad_enabled(False)
    kept = value * 1.0
    torch.set_grad_enabled(before)
    return kept
"""),
    "inference": ("inference_mode", """
def keep(value):
    with §torch.inference_mode():
        kept = value * 1.0
    return kept.clone()
"""),
    "decorated for inference": ("inference_mode", """
@§torch.inference_mode()
def scaled(value):
    return value * 1.0


def keep(value):
    return scaled(value).clone()
"""),
}  # fmt: skip

BLOCKS: dict[str, tuple[str, str, str]] = {
    "block": ("no_grad_block", "with §torch.no_grad():", ""),
    "block set to False": ("no_grad_block", "with §torch.set_grad_enabled(False):", ""),
    "two contexts": ("no_grad_block", 'with torch.autocast("cpu", enabled=False), §torch.no_grad():', ""),
    "switch": ("grad_disabled_globally", "torch§.set_grad_enabled(False)", "torch.set_grad_enabled(True)"),
}

_SWAP = """
def swap(output, change):
    if isinstance(output, torch.Tensor):
        return change(output) if output.is_floating_point() else output
    if isinstance(output, dict):
        return type(output)(**{name: swap(one, change) for name, one in output.items()})
    return tuple(swap(one, change) for one in output) if isinstance(output, tuple) else output

"""

MODULES: dict[str, str] = {
    "new forward": _SWAP
    + """
def install(module):
    original = module.forward

    def forward(*args, **kwargs):
        output = original(*args, **kwargs)
        return swap(output, lambda value: $c(value))

    module.forward = forward
""",
    "input": _SWAP
    + """
def kept(value):
    return $c(value)


def install(module):
    original = module.forward

    def forward(*args, **kwargs):
        return original(*swap(args, kept), **kwargs)

    module.forward = forward
""",
    "subclass": _SWAP
    + """
def install(module):
    class Kept(type(module)):
        def forward(self, *args, **kwargs):
            return self.keep(super().forward(*args, **kwargs))

        def keep(self, output):
            def change(value):
                value = $c(value)
                return value

            return swap(output, change)

    module.__class__ = Kept
""",
    "hook": _SWAP
    + """
def hook(module, args, output):
    return swap(output, lambda value: $c(value))


def install(module):
    module.register_forward_hook(hook)
""",
    "hook before": _SWAP
    + """
def hook(module, args):
    return swap(args, lambda value: $c(value))


def install(module):
    module.register_forward_pre_hook(hook)
""",
}

MODULE_REGIONS: dict[str, tuple[str, str]] = {
    "forward in a block": ("no_grad_block", """
def install(module):
    original = module.forward

    def forward(*args, **kwargs):
        with §torch.no_grad():
            return original(*args, **kwargs)

    module.forward = forward
"""),
    "forward in a block, output used": ("no_grad_block", """
def install(module):
    original = module.forward

    def forward(*args, **kwargs):
        with §torch.no_grad():
            output = original(*args, **kwargs)
        return output

    module.forward = forward
"""),
    "decorated forward": ("no_grad_decorator", """
def install(module):
    original = module.forward

    @§torch.no_grad()
    def forward(*args, **kwargs):
        return original(*args, **kwargs)

    module.forward = forward
"""),
    "decorated forward of a subclass": ("no_grad_decorator", """
def install(module):
    class Kept(type(module)):
        @§torch.no_grad()
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    module.__class__ = Kept
"""),
    "forward under a switch": ("grad_disabled_globally", """
def install(module):
    original = module.forward

    def forward(*args, **kwargs):
        torch§.set_grad_enabled(False)
        try:
            return original(*args, **kwargs)
        finally:
            torch.set_grad_enabled(True)

    module.forward = forward
"""),
}  # fmt: skip

HEAD = """import contextlib
import dataclasses
import functools

import numpy as np
import torch
from torch import nn

"""


def filled(template: str, form: str) -> str:
    """A template with every ``$c(value)`` written as ``form``."""
    return re.sub(r"\$c\(([\w.]+)\)", lambda found: form.replace("{v}", found[1]), template)
