"""Put cuts into sound models and see whether gradkit names their lines, judged by autograd alone."""

from __future__ import annotations

import contextlib
import functools
import linecache
import random
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import executing
import torch
from torch import nn

import gradkit
from tests.injection import architectures, sites, ways
from tests.injection.sites import Site, Source

MARK = "§"
TRIES = 40
Step = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Edit:
    """One cut: ``cause``, and what is written: a text in the model's source, a file of helpers, or both."""

    number: int
    kind: str
    way: str
    cause: str
    site: Site | None = None
    inline: str = ""
    block: tuple[str, str] = ("", "")
    helper: str = ""
    module: str = ""

    @property
    def besides(self) -> str:
        """Another fault of the same line: rounding has a derivative that is zero."""
        return "zero_gradient" if "round()" in self.inline + self.helper else self.cause


@dataclass(frozen=True)
class Outcome:
    """What became of one injection.

    Attributes:
        verdict: ``"named"`` or ``"quiet"`` if it went right, else ``"missed"``, ``"wrong"`` (names what is not at
            fault), ``"alarm"`` (a finding though all is reached) or ``"raised"``.
    """

    architecture: str
    family: str
    seed: int
    edits: tuple[Edit, ...]
    verdict: str
    starved: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    shown: str = ""

    @property
    def right(self) -> bool:
        return self.verdict in ("named", "quiet")


class Subject:
    """A model that has been built once, with all the places where it can be cut."""

    def __init__(self, name: str) -> None:
        self.architecture = architectures.ALL[name]
        self.model, self.step = self.architecture.build()
        with architectures.quiet():
            self.sources = {source.file: source for source in sites.sources(self.model, self.step)}
            self.sites = [site for source in self.sources.values() for site in source.sites(self.step)]
            self.modules = sites.alive_modules(self.model, self.step)
            self.reached, self.flat = reached(self.model, self.step)


@functools.lru_cache(maxsize=8)
def subject(name: str) -> Subject:
    """The subject of this name; built once, for a diagnosis leaves no trace."""
    return Subject(name)


def reached(model: nn.Module, step: Step) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters that get a gradient, and those of them whose gradient is zero: by autograd itself."""
    named = dict(model.named_parameters())
    try:
        loss = step()
        if not torch.isfinite(loss):
            raise FloatingPointError
        if loss.requires_grad:
            loss.backward()
        got = {name: p.grad for name, p in named.items() if p.grad is not None}
        return frozenset(got), frozenset(name for name, grad in got.items() if not grad.any())
    finally:
        for parameter in named.values():
            parameter.grad = None


# -- making up cuts ---------------------------------------------------------------------------------------------------


def invent(rng: random.Random, it: Subject, number: int) -> Edit:
    """A cut at a random place, written in a random way."""
    kind = rng.choice([*ways.KINDS, "no_grad", "no_grad"])
    if rng.random() < 0.25 or not it.sites:
        return _round_a_module(rng, it, number, kind)
    site = sites.draw(rng, it.sites)
    if kind == "no_grad":
        blocks = [name for name in ways.BLOCKS if not (name == "switch" and site.returns)]
        if site.block and rng.random() < 0.5:
            way = rng.choice(blocks)
            cause, before, after = ways.BLOCKS[way]
            return Edit(number, kind, f"statement, {way}", cause, site, block=(before, after))
        way = rng.choice(list(ways.REGIONS))
        cause, helper = ways.REGIONS[way]
        return Edit(number, kind, f"helper, {way}", cause, site, f"keep_{number}({{v}})", helper=helper)
    form = ways.KINDS[kind]
    if rng.random() < 0.4:
        return Edit(number, kind, "in place", form.cause, site, rng.choice(form.forms))
    way = rng.choice(list(ways.HELPERS))
    helper = ways.filled(ways.HELPERS[way], rng.choice(form.forms + form.helper))
    return Edit(number, kind, f"helper, {way}", form.cause, site, f"keep_{number}({{v}})", helper=helper)


def _round_a_module(rng: random.Random, it: Subject, number: int, kind: str) -> Edit:
    path = rng.choice(it.modules)
    if kind == "no_grad":
        way = rng.choice(list(ways.MODULE_REGIONS))
        cause, text = ways.MODULE_REGIONS[way]
        return Edit(number, kind, f"module, {way}", cause, helper=text, module=path)
    form, way = ways.KINDS[kind], rng.choice(list(ways.MODULES))
    text = ways.filled(ways.MODULES[way], rng.choice(form.forms + form.helper))
    return Edit(number, kind, f"module, {way}", form.cause, helper=text, module=path)


def apart(one: Edit, other: Edit) -> bool:
    """Whether two cuts touch different statements, and different modules."""
    if one.site is not None and other.site is not None and one.site.file == other.site.file:
        (first, last), (start, end) = one.site.statement, other.site.statement
        return last < start or end < first
    return one.module != other.module or not one.module


# -- writing them down ------------------------------------------------------------------------------------------------


class Written:
    """The files of one variant of a program, and the lines of its cuts."""

    def __init__(self, it: Subject, edits: Sequence[Edit], folder: Path) -> None:
        self.it, self.edits = it, edits
        self.lines: dict[int, tuple[str, int]] = {}
        self._copies: list[tuple[Source, Any]] = []
        self._helpers: dict[int, dict[str, Any]] = {}
        for file, source in it.sources.items():
            mine = [edit for edit in edits if edit.site is not None and edit.site.file == file]
            if mine:
                text = rewritten(source.text, mine)
                self._copies.append((source, self._compiled(text, folder / Path(file).name)))
        for edit in edits:
            if edit.helper:
                text = ways.HEAD + edit.helper.replace(MARK, f"{MARK}{edit.number}{MARK}")
                names: dict[str, Any] = {"__name__": f"helper_{edit.number}"}
                exec(self._compiled(text, folder / f"helper_{edit.number}.py"), names)
                self._helpers[edit.number] = names

    def _compiled(self, text: str, path: Path) -> Any:
        for row, line in enumerate(text.split("\n"), 1):
            for number in re.findall(f"{MARK}(\\d){MARK}", line):
                self.lines.setdefault(int(number), (str(path), row))
        clean = re.sub(f"{MARK}\\d{MARK}", "", text)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(clean, encoding="utf-8")
        return compile(clean, str(path), "exec")

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """While the block runs, the model is cut."""
        with contextlib.ExitStack() as stack:
            keeps = {f"keep_{n}": names["keep"] for n, names in self._helpers.items() if "keep" in names}
            for source, code in self._copies:
                stack.enter_context(source.replaced(code, **keeps))
            for edit in self.edits:
                if edit.module:
                    stack.enter_context(_changed(self.it.model.get_submodule(edit.module)))
                    self._helpers[edit.number]["install"](self.it.model.get_submodule(edit.module))
            yield


@contextlib.contextmanager
def _changed(module: nn.Module) -> Iterator[None]:
    before, own = type(module), vars(module).get("forward")
    hooks = [module._forward_hooks, module._forward_pre_hooks]
    known = [list(held) for held in hooks]
    try:
        yield
    finally:
        module.__class__ = before
        module.__dict__.pop("forward", None)
        if own is not None:
            module.__dict__["forward"] = own
        for held, keys in zip(hooks, known, strict=True):
            for key in [k for k in held if k not in keys]:
                del held[key]


def rewritten(text: str, edits: Sequence[Edit]) -> str:
    """The source with the cuts in it, each marked ``§number§``."""
    lines = [line.encode() for line in text.split("\n")]
    for edit in sorted(edits, key=lambda e: e.site.statement if e.site else (0, 0), reverse=True):
        site = edit.site
        assert site is not None
        mark = f"{MARK}{edit.number}{MARK}"
        if edit.inline:
            head, tail = lines[site.first - 1][: site.start], lines[site.last - 1][site.end :]
            body = lines[site.first - 1 : site.last]
            body[-1] = body[-1][: site.end]
            body[0] = body[0][site.start :]
            value = b"\n".join(body).decode()
            value = f"({value})" if site.loose else value
            put = edit.inline.replace(MARK, mark, 1).replace(MARK * 2, MARK).replace("{v}", value)
            put = f"({put})" if "/" in edit.inline or "*" in edit.inline else put
            lines[site.first - 1 : site.last] = (head + put.encode() + tail).split(b"\n")
        else:
            first, last = site.statement
            indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
            before, after = edit.block
            inner = lines[first - 1 : last]
            if not after:
                inner = [b"    " + line for line in inner]
            put_before = indent + before.replace(MARK, mark).encode()
            lines[first - 1 : last] = [put_before, *inner, *([indent + after.encode()] if after else [])]
    return b"\n".join(lines).decode()


# -- one injection ----------------------------------------------------------------------------------------------------


def inject(name: str, seed: int, folder: Path | None = None) -> Outcome:
    """Cut ``name`` once or twice as ``seed`` has it, and judge what gradkit finds."""
    it, rng = subject(name), random.Random(f"{name} {seed}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(architectures.quiet())
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"injection_{name}_{seed}_")))
        stack.callback(_forget)
        for tries in range(TRIES):
            edits = [invent(rng, it, 0)]
            if rng.random() < 0.35:
                edits.append(invent(rng, it, 1))
            if len(edits) == 2 and not apart(*edits):
                continue
            try:
                starved = {
                    numbers: _starved(it, [edits[n] for n in numbers], folder / f"{tries}_{''.join(map(str, numbers))}")
                    for numbers in ([(0,)] if len(edits) == 1 else [(0,), (1,), (0, 1)])
                }
            except Exception:  # the program itself does not run so: no cut to find
                continue
            return _judge(it, seed, edits, starved, folder / "diagnosed")
    raise AssertionError(f"{name} {seed}: no program that runs in {TRIES} tries")


def _forget() -> None:
    """What is kept of source files by their names: those of a run are gone after it."""
    linecache.clearcache()
    executing.Source._class_local("__source_cache_with_lines", {}).clear()


def _starved(it: Subject, edits: Sequence[Edit], folder: Path) -> frozenset[str]:
    with Written(it, edits, folder).installed():
        got, flat = reached(it.model, it.step)
    if flat - it.flat:
        raise FloatingPointError("a gradient that is exactly zero is another fault")
    return it.reached - got


def _judge(
    it: Subject, seed: int, edits: Sequence[Edit], starved: dict[tuple[int, ...], frozenset[str]], folder: Path
) -> Outcome:
    """Compare what gradkit says with what autograd did.

    A line is required if its cut starves something when it is alone; a cut that needs the other one is allowed.
    """
    whole = tuple(range(len(edits)))
    written = Written(it, edits, folder)
    required = {written.lines[n]: edits[n].cause for n in whole if starved[(n,)]}
    allowed = {written.lines[n]: edits[n].cause for n in whole} if starved[whole] else {}
    try:
        with written.installed():
            report = gradkit.diagnose(it.step, model=it.model)
            shown = str(report)
    except Exception:
        shown, found, verdict = traceback.format_exc(), [], "raised"
    else:
        found = [((f.location.file, f.location.line) if f.location else ("", 0), f.cause) for f in report.findings]
        wanted, may = set(required.items()), set(allowed.items())
        may |= {(written.lines[edit.number], edit.besides) for edit in edits if starved[whole]}
        edited = {(written.lines[n], edits[n].cause) for n in whole}
        dead = {
            ((f.location.file, f.location.line), f.cause) for f in report.findings if f.location and "term" in f.facts
        }
        may |= dead & edited  # it starves nobody, and a term of the loss has lost its gradient
        right = "named" if starved[whole] else "quiet"
        wrong = "wrong" if starved[whole] else "alarm"
        missed = wanted - set(found) or (starved[whole] and not found)
        verdict = "missed" if missed else wrong if set(found) - may else right
    show = _shown(folder)
    return Outcome(
        it.architecture.name, it.architecture.family, seed, tuple(edits), verdict, tuple(sorted(starved[whole])),
        tuple(f"{show(*spot)} {cause}" for spot, cause in (required or allowed).items()),
        tuple(f"{show(*spot)} {cause}" for spot, cause in found), shown,
    )  # fmt: skip


def _shown(folder: Path) -> Callable[[str, int], str]:
    def show(file: str, line: int) -> str:
        text = Path(file).read_text(encoding="utf-8").split("\n")[line - 1].strip() if file else ""
        return f"{Path(file).name}:{line} [{text[:90]}]"

    return show


@dataclass
class Score:
    """Counts by kind and by family."""

    rows: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        kinds = " + ".join(sorted(edit.kind for edit in outcome.edits)) if len(outcome.edits) == 1 else "two cuts"
        for key in ("all", f"kind: {kinds}", f"family: {outcome.family}", f"architecture: {outcome.architecture}"):
            row = self.rows.setdefault(key, {})
            row[outcome.verdict] = row.get(outcome.verdict, 0) + 1

    def text(self) -> str:
        """The table, one line a row: of the cuts, how many were named; of the harmless, how many left in peace."""
        lines = [f"{'':52} {'cuts':>6} {'named':>6} {'':>7} {'harmless':>9} {'quiet':>6}"]
        for key, row in sorted(self.rows.items()):
            harmless = row.get("quiet", 0) + row.get("alarm", 0)
            cuts = sum(row.values()) - harmless
            share = f"{row.get('named', 0) / cuts:7.1%}" if cuts else " " * 7
            lines.append(f"{key:52} {cuts:6} {row.get('named', 0):6} {share} {harmless:9} {row.get('quiet', 0):6}")
        return "\n".join(lines)
