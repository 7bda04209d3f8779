"""Which functions of a file train for a whole run, rather than being one step: told from the syntax tree, nothing runs.

One step may well hold a loop (over micro-batches, tasks or an inner optimizer): a proposal leaves such a function out,
but a function that a person names is refused only where it is a whole training for certain.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gradkit.core.errors import GradkitError
from gradkit.source.syntax import FUNCTIONS, Function

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
_NO_OPTIMIZER = re.compile(r"sched|env|prof|bar$|swa|ema|warmup|logger|tracker", re.IGNORECASE)
_ENTRY = re.compile(r"(main|run|fit|(run_)?train(ing)?(_.*)?)_?")
_A_STEP = re.compile(r"step|loss|closure|forward|batch", re.IGNORECASE)
_LARGEST = 2_000_000
_SCRIPT = "<script>"


@dataclass
class _Seen:
    """What one function does, with those of the file that it calls: the first line of each, 0 for never."""

    backward: int = 0
    repeated_backward: int = 0
    repeated_step: int = 0
    epochs: int = 0
    trainer: int = 0


@dataclass
class _File:
    tree: ast.Module
    functions: dict[str, Function | ast.Module] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                self.functions |= {f"{node.name}.{one.name}": one for one in node.body if isinstance(one, FUNCTIONS)}
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                self.kinds |= {_last(target): _last(node.value.func) for target in node.targets}
        methods = {id(one) for one in self.functions.values()}
        nested = [one for one in ast.walk(self.tree) if isinstance(one, FUNCTIONS) and id(one) not in methods]
        self.functions |= {one.name: one for one in reversed(nested)}


def proposed(tree: ast.Module) -> list[str]:
    """The functions and classes of a file that may be proposed: each function returns something or is called a
    step, is not ``main``, and repeats no ``backward()`` and no ``step()``.

    Example:
        >>> proposed(ast.parse("def step(): return net(x).sum()\\ndef main():\\n  for x in data: step().backward()"))
        ['step']
    """
    file = _File(tree)
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        or (isinstance(node, ast.FunctionDef) and _may_be_meant(node) and _is_one(file, node.name))
        if not node.name.startswith("_")
    ]


def training(tree: ast.Module, name: str) -> int:
    """The line at which a function of a file repeats the training, if it is a whole training for certain; else 0.

    Example:
        >>> training(ast.parse("def main():\\n  for x in data:\\n    loss(x).backward()\\n    opt.step()"), "main")
        4
    """
    file = _File(tree)
    if name not in file.functions or _A_STEP.search(name.rpartition(".")[2]):
        return 0
    seen = _seen(file, name)
    if seen.trainer or seen.epochs:
        return seen.trainer or seen.epochs
    entry = _ENTRY.fullmatch(name.rpartition(".")[2]) or name in _started(tree)
    return seen.repeated_step if entry and seen.backward else 0


def whole_runs(file: str) -> set[str]:
    """The functions of a file that repeat ``backward()`` or ``step()``, or hand over to a trainer.

    Example:
        >>> whole_runs("no_such_file.py")
        set()
    """
    tree = _tree(file)
    if tree is None:
        return set()
    known = _File(tree)
    return {one.name for one in tree.body if isinstance(one, FUNCTIONS) and not _is_one(known, one.name)}


def is_whole_run(function: object) -> bool:
    """Whether the source of a function shows that it repeats ``backward()`` or ``step()``; False if there is none.

    Example:
        >>> is_whole_run(is_whole_run)
        False
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return not _is_one(_File(tree), code.co_name)


def is_training(spec: str) -> bool:
    """Whether a name such as ``train.py:main`` stands for a whole training, or ``train.py`` for a script.

    Example:
        >>> is_training("train.py:step"), is_training("os.path:join")
        (False, False)
    """
    source, _, name = spec.strip().rpartition(":")
    if not source:
        return name.endswith(".py") and Path(name).is_file()
    tree = _tree(source)
    return tree is not None and bool(training(tree, name))


def trains_as_script(tree: ast.Module) -> bool:
    """Whether a file goes backward, or hands over to a trainer, when it is run as a script.

    Example:
        >>> guarded = "def main(): loss().backward()\\nif __name__ == '__main__': main()"
        >>> trains_as_script(ast.parse(guarded)), trains_as_script(ast.parse("def step(): loss().backward()"))
        (True, False)
    """
    seen = _seen_outside(tree, tree.body)
    return bool(seen.backward or seen.trainer)


def is_started(tree: ast.Module) -> bool:
    """Whether a file has a block of its own for when it is run as a script, which calls something.

    Example:
        >>> is_started(ast.parse("if __name__ == '__main__': main()"))
        True
    """
    return bool(_started(tree))


def steps_of(file: str) -> str:
    """The names in a file that may be one step, or build one, for a sentence; ``"-"`` if there are none.

    Example:
        >>> steps_of("no_such_file.py")
        '-'
    """
    tree = _tree(file)
    return ", ".join(proposed(tree)[:8] if tree is not None else ()) or "-"


def refuse(spec: str) -> None:
    """Refuse a name such as ``train.py:main``, if it stands for a whole training.

    Raises:
        GradkitError: it does.
    """
    source, name, tree = _named(spec)
    if tree is None or not (line := training(tree, name)):
        return
    raise GradkitError("whole_training", name=spec.strip(), line=line, source=Path(source).name, names=steps_of(source))


def refuse_import(spec: str) -> None:
    """Refuse a name such as ``train.py:step``, if importing its file would already train for a whole run.

    Raises:
        GradkitError: it would (``training_on_import``).
    """
    source, _, tree = _named(spec)
    if tree is not None and (line := _on_import(tree)):
        raise GradkitError("training_on_import", source=Path(source).name, line=line)


def _on_import(tree: ast.Module) -> int:
    """The line at which a file repeats the training as soon as it is imported; 0 if it does not."""
    seen = _seen_outside(tree, [one for one in tree.body if not _asks_for_script(one)])
    return seen.trainer or seen.epochs or (seen.repeated_step if seen.repeated_backward else 0)


def _named(spec: str) -> tuple[str, str, ast.Module | None]:
    """File and function of a name such as ``train.py:step``, and the file's tree; None if it is no such name."""
    source, _, name = spec.strip().rpartition(":")
    return source, name, _tree(source) if source and name else None


def _tree(source: str) -> ast.Module | None:
    path = Path(source if source.endswith(".py") else f"{source.replace('.', '/')}.py")
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_one(file: _File, name: str) -> bool:
    seen = _seen(file, name)
    return not (seen.repeated_backward or seen.repeated_step or seen.epochs or seen.trainer)


def _may_be_meant(function: Function) -> bool:
    """Whether it returns something, as a step and all that builds one does, or is called one."""
    if function.name == "main":
        return False
    return bool(_A_STEP.search(function.name)) or any(
        isinstance(one, ast.Return) and one.value is not None for one, _ in _within(function)
    )


def _started(tree: ast.Module) -> set[str]:
    """The functions that are called where the file is run as a script."""
    blocks = filter(_asks_for_script, tree.body)
    return {_last(one.func) for block in blocks for one in ast.walk(block) if isinstance(one, ast.Call)}


def _asks_for_script(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


def _within(function: Function | ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """What runs when a function does, and whether it stands in a loop; what it only defines is left out."""
    waiting: list[tuple[ast.AST, bool]] = [(one, False) for one in function.body]
    while waiting:
        node, repeated = waiting.pop()
        yield node, repeated
        if not isinstance(node, _SCOPES):
            inside = repeated or isinstance(node, _LOOPS)
            waiting += [(one, inside) for one in ast.iter_child_nodes(node)]


def _seen_outside(tree: ast.Module, statements: list[ast.stmt]) -> _Seen:
    """What statements of a file do that stand in none of its functions."""
    file = _File(tree)
    file.functions[_SCRIPT] = ast.Module(statements, [])
    return _seen(file, _SCRIPT)


def _seen(file: _File, name: str) -> _Seen:
    seen, done = _Seen(), set()
    waiting = [(name, False)]
    while waiting:
        at = waiting.pop()
        if at in done or at[0] not in file.functions:
            continue
        done.add(at)
        for node, repeated in _within(file.functions[at[0]]):
            if isinstance(node, (ast.For, ast.While)) and _over_epochs(node) and _trains(node):
                seen.epochs = seen.epochs or node.lineno
            if isinstance(node, ast.Call):
                _note(seen, file, node, repeated or at[1])
                waiting += [(one, repeated or at[1]) for one in _called(file, node, at[0])]
    return seen


def _note(seen: _Seen, file: _File, call: ast.Call, repeated: bool) -> None:
    what, of = _last(call.func), _last(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    kind = file.kinds.get(of, of)
    if what in ("backward", "manual_backward") or (what == "grad" and of == "autograd"):
        seen.backward = seen.backward or call.lineno
        seen.repeated_backward = seen.repeated_backward or call.lineno * repeated
    elif what == "step" and of and not _NO_OPTIMIZER.search(of) and not _NO_OPTIMIZER.search(kind):
        seen.repeated_step = seen.repeated_step or call.lineno * repeated
    elif what in ("train", "fit") and _is_trainer(of, kind) and f"{kind}.{what}" not in file.functions:
        seen.trainer = seen.trainer or call.lineno


def _is_trainer(*names: str) -> bool:
    return any(name.lower().endswith("trainer") for name in names)


def _called(file: _File, call: ast.Call, caller: str) -> list[str]:
    """The functions of the file that a call may run, with those that are handed to it."""
    handed = [one.id for one in call.args if isinstance(one, ast.Name)]
    if isinstance(call.func, ast.Name):
        return [call.func.id, *handed]
    if isinstance(call.func, ast.Attribute):
        of = _last(call.func.value)
        kind = caller.rpartition(".")[0] if of == "self" else file.kinds.get(of, of)
        return [f"{kind}.{call.func.attr}", *handed]
    return handed


def _over_epochs(loop: ast.For | ast.While) -> bool:
    head = [loop.target, loop.iter] if isinstance(loop, ast.For) else [loop.test]
    return any("epoch" in _last(one).lower() for part in head for one in ast.walk(part))


def _trains(loop: ast.AST) -> bool:
    calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call)]
    names = {_last(one.func) for one in calls}
    trained = any(re.match(r"_?train_|_?run_epoch|_?fit_", name) for name in names)
    return trained or bool(names & {"backward", "manual_backward"} and "step" in names)


def _last(node: ast.AST) -> str:
    """The last name of a dotted one."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
