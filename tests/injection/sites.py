"""Where a cut may go: every expression of a model's own source through which a gradient flows."""

from __future__ import annotations

import ast
import contextlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

Named = tuple[str, ...]  # ("BertLayer", "forward")
OWN = str(Path(__file__).with_name("plain.py"))


@dataclass(frozen=True)
class Site:
    """An expression, by its place in bytes; ``block``: its statement's lines may be put into a ``with``."""

    file: str
    first: int
    start: int
    last: int
    end: int
    statement: tuple[int, int]
    block: bool
    returns: bool
    value: bool
    loose: bool


class Source:
    """One source file, and the functions in it whose code a rewritten copy of the file can take over."""

    def __init__(self, file: str, module: Any, step: Callable[..., Any]) -> None:
        self.file, self.text = file, Path(file).read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.names = vars(module)
        self.functions: dict[Named, FunctionType] = {}
        found = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
        for holder in [x for x in found if isinstance(x, type)]:
            found += [getattr(x, "__func__", getattr(x, "fget", x)) for x in vars(holder).values()]
        for function in map(inspect.unwrap, [*(x for x in found if callable(x)), step]):
            if isinstance(function, FunctionType) and function.__code__.co_filename == file:
                self.functions[tuple(function.__qualname__.replace("<locals>.", "").split("."))] = function

    @contextlib.contextmanager
    def replaced(self, code: CodeType, **names: Any) -> Iterator[None]:
        """While the block runs, the functions run the code that they have in ``code``, a compiled copy of the file."""
        copies = dict(_codes(code, ()))
        before = {function: function.__code__ for function in self.functions.values()}
        try:
            for path, function in self.functions.items():
                if path in copies and copies[path].co_freevars == function.__code__.co_freevars:
                    function.__code__ = copies[path]
            self.names.update(names)
            yield
        finally:
            for function, old in before.items():
                function.__code__ = old
            for name in names:
                del self.names[name]

    def sites(self, step: Callable[[], Any]) -> list[Site]:
        """The expressions that a gradient flows through, found by a run of ``step`` that looks at every one."""
        probes = _Probes(self.text, self.file, set(self.functions))
        tree = ast.fix_missing_locations(probes.visit(ast.parse(self.text)))
        alive: dict[int, bool] = {}

        def probe(number: int, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                live = value.requires_grad and value.is_floating_point() and torch.is_grad_enabled()
                alive[number] = alive.get(number, True) and live
            return value

        with self.replaced(compile(tree, self.file, "exec"), probe_=probe):
            step()
        return [probes.sites[number] for number, live in sorted(alive.items()) if live]


def _codes(code: CodeType, path: Named) -> Iterator[tuple[Named, CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield (*path, inner.co_name), inner
            yield from _codes(inner, (*path, inner.co_name))


class _Probes(ast.NodeTransformer):
    """Puts ``probe_(number, ...)`` round the expressions in the bodies of certain functions."""

    def __init__(self, text: str, file: str, wanted: set[Named]) -> None:
        self.lines, self.file, self.wanted = [line.encode() for line in text.splitlines()], file, wanted
        self.sites: list[Site] = []
        self._path: Named = ()
        self._statement: ast.stmt | None = None
        self._block = False

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            before, self._path = self._path, (*self._path, node.name)
            node.body = [self.visit(x) for x in node.body]
            self._path = before
            return node
        if isinstance(node, ast.Module):
            return self.generic_visit(node)
        inside = any(self._path[:length] in self.wanted for length in range(1, len(self._path) + 1))
        if not inside or isinstance(node, (ast.JoinedStr, ast.withitem, ast.arguments, ast.Slice, ast.Lambda)):
            return node
        if isinstance(node, ast.stmt):
            before_statement, self._statement, alone = self._statement, node, self._block
            self._block = self._fits_in_a_block(node)
            self.generic_visit(node)
            self._statement, self._block = before_statement, alone
            return node
        return self._expression(node)

    def _expression(self, node: Any) -> Any:
        kinds = (ast.Call, ast.BinOp, ast.Subscript, ast.Attribute, ast.Name)
        wrap = isinstance(node, kinds) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        site = self._site(node) if wrap else None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and not _is_super(node.func.value):
                node.func.value = self.visit(node.func.value)
            node.args = [self.visit(x) for x in node.args]
            node.keywords = [self.visit(x) for x in node.keywords]
        elif isinstance(node, ast.Subscript):
            node.value = self.visit(node.value) if wrap else node.value
        elif wrap or not isinstance(node, (ast.Attribute, ast.Subscript)):
            self.generic_visit(node)
        if site is None or _is_super(node):
            return node
        self.sites.append(site)
        call = ast.Call(ast.Name("probe_", ast.Load()), [ast.Constant(len(self.sites) - 1), node], [])
        return ast.copy_location(call, node)

    def _site(self, node: Any) -> Site | None:
        owner = self._statement
        if owner is None or isinstance(owner, (ast.AnnAssign, ast.With)):
            return None
        last = owner.end_lineno or owner.lineno
        return Site(
            self.file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, (owner.lineno, last),
            self._block, isinstance(owner, ast.Return), not isinstance(node, ast.Name),
            isinstance(node, ast.BinOp),
        )  # fmt: skip

    def _fits_in_a_block(self, owner: ast.stmt) -> bool:
        """Whether it is a simple statement with lines of its own, and no text that goes over several."""
        after = self.lines[(owner.end_lineno or owner.lineno) - 1][owner.end_col_offset :].strip()
        alone = not self.lines[owner.lineno - 1][: owner.col_offset].strip() and after[:1] in (b"", b"#")
        texts = [x for x in ast.walk(owner) if isinstance(x, (ast.Constant, ast.JoinedStr))]
        simple = isinstance(owner, (ast.Assign, ast.AugAssign, ast.Return))
        return simple and alone and all(x.end_lineno == x.lineno for x in texts)


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def sources(model: nn.Module, step: Callable[..., Any]) -> list[Source]:
    """The files that hold the classes of a model: its own in ``transformers.models``, or ours."""
    modules = {type(module).__module__: None for module in model.modules()}
    found = []
    for name in modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and (name.startswith("transformers.models.") or file == OWN):
            found.append(Source(file, sys.modules[name], step))
    return found


def alive_modules(model: nn.Module, step: Callable[[], Any]) -> list[str]:
    """The modules whose forward hands out a tensor that requires grad, by path."""
    alive: dict[str, None] = {}

    def note(path: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else [output]
            if any(isinstance(v, torch.Tensor) and v.requires_grad and v.is_floating_point() for v in values):
                alive[path] = None

        return hook

    handles = [module.register_forward_hook(note(path)) for path, module in model.named_modules() if path]
    try:
        step()
    finally:
        for handle in handles:
            handle.remove()
    return list(alive)


def draw(rng: random.Random, sites: Sequence[Site]) -> Site:
    """One of them; names that are merely read come up less often than what is computed."""
    return rng.choices(sites, [1.0 if site.value else 0.4 for site in sites])[0]
