"""Random programs with random cuts, and an oracle that says what a right diagnosis of each is.

A program is source text: every operation on a line of its own, some lines cuts, for which a second text is known that
computes a value of the same shape without cutting. The oracle is autograd itself: it runs the program with every
subset of the cuts undone and looks which parameters get a gradient.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

MOST_CUTS = 5
_LAYERS = ("l0", "l1", "l2", "l3")
Draw = Callable[[st.SearchStrategy[Any]], Any]

# {a}, {b}: values of shape (6, 4) that there are; {v}: the one that is made; {t}: a name for something in between;
# {layer}: a Linear(4, 4) of the model.
_SOUND = (
    ["{v} = torch.tanh({a})"],
    ["{v} = {a} * 0.5 + 1"],
    ["{v} = F.softplus({a})"],
    ["{v} = {layer}({a})"],
    ["{v} = {layer}({a})"],
    ["{v} = torch.sigmoid({layer}({a}))"],
    ["{v} = F.linear({a}, {layer}.weight)"],
    ["{v} = {a} * model.gain"],
    ["{v} = {a} + model.table"],
    ["{v} = {a}.softmax(-1)"],
    ["{v} = F.layer_norm({a}, (4,))"],
    ["{v} = {a}.t().contiguous().flip(0).t()"],
    ["{v} = {a}.reshape(4, 6).roll(1, 0).view(6, 4)"],
    ["{v} = {a} + {b}"],
    ["{v} = {a} * {b}"],
    ["{v} = {a} - {b}.mean()"],
    ["{v} = {a} * {b}.sum(-1, keepdim=True)"],
    ["{v} = torch.cat([{a}, {b}])[::2]"],
    ["{v} = torch.stack([{a}, {b}]).mean(0)"],
    ["{v} = torch.where(torch.rand(6, 4) > 0.5, {a}, {b})"],
    ["{v} = {a} @ ({b}.t() @ {b}) * 0.1"],
    ["{v} = torch.einsum('ij,kj->ik', {a}, {b})[:, :4] * 0.1"],
    ["{t}, {v} = {a}.chunk(2, dim=-1)", "{v} = torch.cat([{v}, {t}], dim=-1)"],
    ["{t} = {{'x': {a}, 'y': [{b}]}}", "{v} = {t}['x'] + {t}['y'][0]"],
    ["{v} = {a}.clone()", "{v} += {b}"],
    ["{v} = {a} * 2", "{v}.tanh_()"],
    ["{v} = {a} + 1", "{v}[:, 0] = {b}[:, 1]"],
    ["{v} = torch.zeros(6, 4)", "{v}[::2] = {a}[:3]", "{v}[1::2] = {b}[3:]"],
    ["{v} = {a}.clone()", "{t} = {v}[:, :2]", "{t}.add_({b}[:, :2])"],
    ["{v} = Rounded.apply({a}) + {b}"],
    ["{v} = checkpoint(lambda z: torch.tanh({layer}(z)), {a}, use_reentrant=False)"],
)
_HARMLESS = (
    ["log.append({a}.mean().item())"],
    ["log.append({a}.detach())"],
    ["log.append({a}.argmax(-1))"],
    ["log.append({a}.detach().numpy().copy())"],
    ["with torch.no_grad():", "    log.append(({a} - {b}).norm())"],
    ["with torch.no_grad():", "    log.append({a}.float().contiguous().norm())"],
    ["{t} = {a}.detach() * 2"],
)
# (cause, the line that is named, the text, the text undone)
_CUTS = (
    ("detach", 0, ["{v} = {a}.detach()"], ["{v} = {a}.view_as({a})"]),
    ("detach", 0, ["{v} = torch.tanh({a}.detach()) + {b}"], ["{v} = torch.tanh({a}) + {b}"]),
    ("detach", 1, ["{v} = {a} * 2", "{v}.detach_()"], ["{v} = {a} * 2", "pass"]),
    (
        "detach",
        0,
        ["{v} = F.linear({a}, {layer}.weight.detach(), {layer}.bias)"],
        ["{v} = F.linear({a}, {layer}.weight, {layer}.bias)"],
    ),
    ("data_attr", 0, ["{v} = {a}.data"], ["{v} = {a}.view_as({a})"]),
    ("data_attr", 0, ["{v} = {a} @ {layer}.weight.data"], ["{v} = {a} @ {layer}.weight"]),
    (
        "numpy_roundtrip",
        0,
        ["{t} = {a}.detach().numpy()", "{t} = np.tanh({t}) * 2", "{v} = torch.from_numpy({t})"],
        ["{t} = {a}", "{t} = {t} * 2", "{v} = {t}"],
    ),
    ("numpy_roundtrip", 0, ["{v} = torch.tensor({a}.detach().cpu().numpy() + 1)"], ["{v} = {a} + 1"]),
    ("python_roundtrip", 0, ["{t} = {a}.mean().item()", "{v} = {b} * {t}"], ["{t} = {a}.mean()", "{v} = {b} * {t}"]),
    ("python_roundtrip", 0, ["{t} = {a}.tolist()", "{v} = torch.tensor({t}) + {b}"], ["{t} = {a}", "{v} = {t} + {b}"]),
    (
        "python_roundtrip",
        0,
        ["{t} = [float(z) for z in {a}[:, 0]]", "{v} = {b} + torch.tensor({t})[:, None]"],
        ["{t} = {a}[:, :1]", "{v} = {b} + {t}"],
    ),
    (
        "rewrap_tensor",
        0,
        ["{t} = torch.tensor([z.sum() for z in {a}])", "{v} = {b} + {t}[:, None]"],
        ["{t} = {a}.sum(-1)", "{v} = {b} + {t}[:, None]"],
    ),
    ("new_leaf", 0, ["{v} = torch.tensor({a}, requires_grad=True)"], ["{v} = {a} * 1"]),
    ("parameter_rewrap", 0, ["{v} = nn.Parameter({a})"], ["{v} = {a} * 1"]),
    ("integer_cast", 0, ["{t} = ({a} * 8).long()", "{v} = {t}.float() / 8"], ["{t} = {a}", "{v} = {t}.float() / 8"]),
    ("integer_cast", 0, ["{v} = ({a} * 8).to(torch.int32) / 8"], ["{v} = {a} / 8"]),
    (
        "non_differentiable_op",
        0,
        ["{t} = {a}.argmax(-1)", "{v} = F.one_hot({t}, 4).float() + {b}"],
        ["{t} = {a}", "{v} = {t} + {b}"],
    ),
    (
        "non_differentiable_op",
        0,
        ["{t} = {a} > 0.1", "{v} = torch.where({t}, {b}, {b} * 2)"],
        ["{t} = {a}", "{v} = {t} + {b}"],
    ),
    (
        "non_differentiable_op",
        0,
        ["{t} = {a}.argsort(-1)", "{v} = {b}.gather(-1, {t})"],
        ["{t} = {a}", "{v} = {t} + {b}"],
    ),
    (
        "non_differentiable_op",
        0,
        ["{v} = torch.distributions.Normal({a}, 1.0).sample()"],
        ["{v} = torch.distributions.Normal({a}, 1.0).rsample()"],
    ),
    (
        "inplace_under_no_grad",
        2,
        ["{v} = {b} * 1", "with torch.no_grad():", "    {v}[::2] = {a}[:3]"],
        ["{v} = {b} * 1", "if True:", "    {v}[::2] = {a}[:3]"],
    ),
    ("zero_gradient", 0, ["{v} = torch.round({a} * 4) / 4"], ["{v} = {a} * 1"]),
    ("zero_gradient", 0, ["{v} = {b} + {a}.sign()"], ["{v} = {b} + {a}"]),
    (
        "checkpoint_reentrant",
        0,
        ["{v} = checkpoint(lambda z: {layer}(z).tanh(), X, use_reentrant=True) + {a}"],
        ["{v} = {layer}(X).tanh() + {a}"],
    ),
)
_BLOCKS = (
    ("no_grad_block", "with torch.no_grad():"),
    ("no_grad_block", "with torch.no_grad():"),
    ("no_grad_block", "with torch.set_grad_enabled(False):"),
    ("inference_mode", "with torch.inference_mode():"),
)
_PLAIN_BLOCKS = ("with torch.enable_grad():", "with contextlib.nullcontext():", "for _ in range(2):", "if True:")
_DECORATORS = (("no_grad_decorator", "@torch.no_grad()"), ("no_grad_decorator", "@torch.set_grad_enabled(False)"))

_HEAD = """\
import contextlib
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
X = torch.randn(6, 4)
log = []
class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach().round()
    @staticmethod
    def backward(ctx, grad):
        return grad
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l0 = nn.Linear(4, 4)
        self.l1 = nn.Linear(4, 4)
        self.l2 = nn.Linear(4, 4)
        self.l3 = nn.Linear(4, 4)
        self.gain = nn.Parameter(torch.randn(4))
        self.table = nn.Parameter(torch.randn(6, 4))
    def forward(self):
        return step()
model = Model()
""".splitlines()


@dataclass(frozen=True)
class Line:
    """One line: its text, and the one that stands there when the cut with this number is undone."""

    text: str
    undone: str = ""
    cut: int = -1


@dataclass(frozen=True)
class RandomProgram:
    """``causes`` and ``named``: of every cut, its cause and the line of the text that a right diagnosis names.

    ``backs``: lines where what left torch comes back in a way that would cut a tensor too, each with the cut's number;
    they may be named as well.
    """

    lines: tuple[Line, ...]
    causes: tuple[str, ...]
    named: tuple[int, ...]
    backs: dict[int, int]

    def text(self, undone: Iterable[int] = ()) -> str:
        undone = frozenset(undone)
        return "\n".join(line.undone if line.cut in undone else line.text for line in self.lines) + "\n"

    def __repr__(self) -> str:
        marks = {number: f"  # CUT {i} {self.causes[i]}" for i, number in enumerate(self.named)}
        rows = self.text().splitlines()[len(_HEAD) :]
        return "\n" + "\n".join(row + marks.get(n, "") for n, row in enumerate(rows, len(_HEAD) + 1)) + "\n"

    def load(self, path: Path, undone: Iterable[int] = ()) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        """Write the text to ``path`` and run it: the model and its step."""
        text = self.text(undone)
        path.write_text(text, encoding="utf-8")
        space: dict[str, Any] = {"__name__": path.stem}
        exec(compile(text, str(path), "exec"), space)
        return space["model"], space["step"]


@dataclass
class _Writer:
    """Writes a program down, line by line, out of what hypothesis draws."""

    draw: Draw
    lines: list[Line] = field(default_factory=lambda: [Line(text) for text in _HEAD])
    causes: list[str] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    backs: dict[int, int] = field(default_factory=dict)
    count: int = 0
    helpers: list[str] = field(default_factory=list)

    def pick(self, options: Iterable[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def write(
        self, indent: int, texts: Iterable[str], undone: Iterable[str] = (), named: int = -1, cause: str = ""
    ) -> None:
        cut = -1
        if cause:
            cut = len(self.causes)
            self.causes.append(cause)
            self.named.append(len(self.lines) + named + 1)
        for text, other in itertools.zip_longest(texts, undone, fillvalue=""):
            self.lines.append(Line("    " * indent + text, "    " * indent + other, cut))
            if "roundtrip" in cause and "torch.tensor(" in text:
                self.backs[len(self.lines)] = cut

    def fill(self, texts: Iterable[str], names: dict[str, str]) -> list[str]:
        return [text.format(**names) for text in texts]

    # -- statements -----------------------------------------------------------------------------------------------

    def body(self, known: list[str], indent: int, depth: int, length: int, quiet: bool = False) -> str:
        """Some statements; returns the name of the last value made. ``quiet``: nothing is written in place."""
        for _ in range(self.draw(st.integers(1, length))):
            known.append(self.statement(known, indent, depth, quiet))
        return known[-1]

    def statement(self, known: list[str], indent: int, depth: int, quiet: bool) -> str:
        names = {
            "a": self.pick(known[-3:]),
            "b": self.pick(known),
            "v": self.new("v"),
            "t": self.new("t"),
            "layer": "model." + self.pick(_LAYERS),
        }
        kinds = ["sound", "sound", "sound", "harmless"]
        if len(self.causes) < MOST_CUTS:
            kinds += ["cut", "cut"]
            kinds += ["block"] if depth else []
        kinds += (["plain"] if depth else []) + (["helper"] if self.helpers else [])
        kind = self.pick(kinds)
        if kind == "block":
            return self.block(known, indent, depth)
        if kind == "plain":
            self.write(indent, self.fill(["{v} = {a}", self.pick(_PLAIN_BLOCKS)], names))
            made = self.body([*known, names["v"]], indent + 1, depth - 1, 2, quiet)
            self.write(indent + 1, [f"{names['v']} = {made}"])
            return names["v"]
        if kind == "helper":
            self.write(indent, self.fill([f"{{v}} = {self.pick(self.helpers)}({{a}}, {{b}})"], names))
            return names["v"]
        if kind == "harmless":
            self.write(indent, self.fill(self.pick(_HARMLESS), names))
            return names["a"]
        if kind == "cut":
            cause, named, text, undone = self.pick(_CUTS)
            self.write(indent, self.fill(text, names), self.fill(undone, names), named, cause)
            return names["v"]
        self.write(indent, self.fill(self.pick(s for s in _SOUND if not quiet or len(s) == 1), names))
        return names["v"]

    def block(self, known: list[str], indent: int, depth: int) -> str:
        """Some statements where nothing is recorded; what they make is used outside."""
        name = self.new("v")
        if self.draw(st.integers(0, 3)) == 0:
            self.write(indent, ["torch.set_grad_enabled(False)"], ["pass"], 0, "grad_disabled_globally")
            made = self.body(list(known), indent, depth - 1, 2, quiet=True)
            self.write(indent, ["torch.set_grad_enabled(True)", f"{name} = {made}"])
            return name
        cause, opening = self.pick(_BLOCKS)
        self.write(indent, [opening], ["with contextlib.nullcontext():"], 0, cause)
        made = self.body(list(known), indent + 1, depth - 1, 2, quiet=True)
        self.write(indent, [f"{name} = {made}.clone()"])
        return name

    def part(self) -> None:
        """A module of the program's own, with a layer and perhaps a forward hook."""
        name = self.new("part")
        self.write(0, ["class Part(nn.Module):"])
        self.write(1, ["def __init__(self):"])
        self.write(2, ["super().__init__()", "self.layer = nn.Linear(4, 4)"])
        self.write(1, ["def forward(self, a, b):"])
        self.write(2, ["v = self.layer(a)"])
        made = self.body(["a", "b", "v"], 2, 1, 3)
        self.write(2, [f"return {made}"])
        self.write(0, [f"model.{name} = Part()"])
        if self.draw(st.booleans()) and len(self.causes) < MOST_CUTS:
            hook = f"model.{name}.register_forward_hook(lambda module, given, made: {{}})"
            self.write(0, [hook.format("made.detach() * 2")], [hook.format("made * 2")], 0, "detach")
        self.helpers.append(f"model.{name}")

    def helper(self) -> None:
        """A function of the program's own, perhaps decorated."""
        name = self.new("f")
        if self.draw(st.booleans()) and len(self.causes) < MOST_CUTS:
            cause, decorator = self.pick(_DECORATORS)
            self.write(0, [decorator], ["@(lambda function: function)"], 0, cause)
        self.write(0, [f"def {name}(a, b):"])
        self.write(1, ["v = a * 1"])
        made = self.body(["a", "b", "v"], 1, 1, 3, quiet=True)
        self.write(1, [f"return {made}"])
        self.helpers.append(name)


@st.composite
def programs(draw: Draw) -> RandomProgram:
    """A program of some helpers, a step, frozen and shared weights, and at most five cuts or a few more."""
    w = _Writer(draw)
    for name in draw(st.lists(st.sampled_from([*_LAYERS, "gain", "table"]), max_size=3, unique=True)):
        w.write(0, [f"model.{name}.requires_grad_(False)"])
    if draw(st.booleans()):
        w.write(0, ["model.l3.weight = model.l1.weight"])
    for _ in range(draw(st.integers(0, 2))):
        w.part() if draw(st.booleans()) else w.helper()
    w.write(0, ["def step():"])
    w.write(1, ["g = model.l0(X)", "h = torch.tanh(model.l1(X))"])
    known = ["g", "h"]
    w.body(known, 1, 2, 8)
    ends = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    ends = list(dict.fromkeys([*ends, known[-1]]))
    w.write(1, ["loss = 0.0", *(f"loss = loss + {end}.pow(2).mean()" for end in ends), "return loss"])
    return RandomProgram(tuple(w.lines), tuple(w.causes), tuple(w.named), w.backs)


# -- the oracle -------------------------------------------------------------------------------------------------------


class UnusableError(Exception):
    """The program cannot be judged: it raises, or a gradient happens to be zero."""


@dataclass(frozen=True)
class Truth:
    """What autograd says.

    Attributes:
        alive: for every set of cuts undone, the parameters that get a gradient other than zero.
        trainable: those that require grad.
    """

    alive: dict[frozenset[int], frozenset[str]]
    trainable: frozenset[str]

    @property
    def connected(self) -> frozenset[str]:
        """The parameters that get a gradient when everything is undone."""
        return max(self.alive.items(), key=lambda item: len(item[0]))[1]

    @property
    def starved(self) -> frozenset[str]:
        """Those of them that get none as the program stands."""
        return self.connected - self.alive[frozenset()]

    def minimal(self, parameter: str) -> list[frozenset[int]]:
        """The sets of cuts that must be undone together to give a parameter its gradient, none with one too many."""
        enough = [undone for undone, names in self.alive.items() if parameter in names]
        return [undone for undone in enough if not any(other < undone for other in enough)]


def truth(program: RandomProgram, path: Path) -> Truth:
    """Run the program with every subset of its cuts undone."""
    numbers = range(len(program.causes))
    alive, trainable = {}, frozenset()
    for size in range(len(numbers) + 1):
        for undone in map(frozenset, itertools.combinations(numbers, size)):
            names, trainable = _gradients(program, path, undone)
            alive[undone] = names
    return Truth(alive, trainable)


def _gradients(program: RandomProgram, path: Path, undone: frozenset[int]) -> tuple[frozenset[str], frozenset[str]]:
    try:
        model, step = program.load(path, undone)
        loss = step()
        if loss.requires_grad:
            loss.backward()
    except RuntimeError as error:
        raise UnusableError(str(error)) from error
    finally:
        torch.set_grad_enabled(True)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    grads = {name: p.grad for name, p in named.items() if p.grad is not None}
    if not all(g.isfinite().all() for g in grads.values()):
        raise UnusableError("a gradient is not finite")
    zeros = any(cause == "zero_gradient" for i, cause in enumerate(program.causes) if i not in undone)
    if not zeros and not all(g.any() for g in grads.values()):
        raise UnusableError("a gradient happens to be zero")
    return frozenset(name for name, g in grads.items() if g.any()), frozenset(named)


def unproven(findings: Iterable[Any]) -> list[Any]:
    """The findings of cuts that no rerun proved."""
    return [f for f in findings if f.proof == "likely"]


# -- the judge --------------------------------------------------------------------------------------------------------


def complaints(program: RandomProgram, known: Truth, findings: Sequence[Any]) -> list[str]:  # noqa: C901  one list
    """What is wrong with a diagnosis, in words; ``[]`` if it is right."""
    wrong = []
    numbers = {(cause, line): i for i, (cause, line) in enumerate(zip(program.causes, program.named, strict=True))}
    at = {line: (i, "rewrap_tensor") for line, i in program.backs.items()}
    at |= {line: (i, cause) for (cause, line), i in numbers.items()}
    blamed: dict[str, set[int]] = {name: set() for name in known.starved}
    for finding in findings:
        line = finding.location.line if finding.location is not None else None
        if finding.cause == "trainable_unused":
            if (
                known.starved.intersection(finding.parameters)
                or finding.location is None
                or (
                    "self." not in finding.location.text
                    and " = Part()" not in finding.location.text
                    and finding.variant != "bypass"
                )
            ):
                wrong.append(f"line {line}: {finding.cause} of {finding.parameters}")
            continue
        if line not in at:
            wrong.append(f"line {line} is no cut, and is called {finding.cause} for {finding.parameters}")
            continue
        number, cause = at[line]
        if finding.cause != cause:
            wrong.append(f"line {line} is {cause}, and is called {finding.cause}")
        if "term" in finding.facts:  # a term of the loss is dead; who else reaches these parameters is no matter
            continue
        for name in finding.parameters:
            if name not in known.starved:
                wrong.append(f"line {line} is blamed for {name}, which is not starved")
            else:
                blamed[name].update([number] if line in program.named else [])
                if not any(number in undone for undone in known.minimal(name)):
                    wrong.append(f"line {line} is blamed for {name}, which it does not starve")
    for name, undone in blamed.items():
        if name not in known.alive[frozenset(undone)]:
            lines = sorted(program.named[i] for i in undone)
            wrong.append(f"{name} is starved, and undoing the lines named for it, {lines}, does not help")
    told = {name for finding in findings for name in finding.parameters}
    return [*wrong, *(f"{name} is idle, and nobody says so" for name in known.trainable - known.connected - told)]
