"""What of a unit is not run again: what only logs or prints, and what built the model, the data and the optimizer.

Which library a call belongs to is told by the object that it begins at, not by its name.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from types import FrameType, FunctionType, ModuleType
from typing import Any

from gradkit.core import introspection
from gradkit.source import rebinding, syntax, units
from gradkit.source.frames import is_user_file
from gradkit.source.units import MODULE, Unit

_LOGS = frozenset(
    "logging loguru structlog wandb tqdm tensorboard tensorboardX tensorboard_logger mlflow matplotlib comet_ml neptune"
    " clearml aim swanlab rich json pickle csv shutil os io _io pathlib time pprint visdom psutil seaborn imageio"
    " IPython pdb ipykernel warnings yaml".split()
)
_LOGS_OF_TORCH = ("torch.utils.tensorboard", "torch.profiler", "torch.autograd.profiler", "torch.serialization")
_PRINTS = tuple(getattr(builtins, name) for name in ("print", "breakpoint", "input"))
_SWITCH = re.compile(
    r"no_grad|inference_mode|set_grad_enabled|enable_grad|autocast|amp\b|precision|device|sdp_kernel|sdpa_kernel"
    r"|accumulate|no_sync|detect_anomaly|default_dtype|fork_rng|parametrize"
)
_NO_SWITCH = ("torch.profiler", "torch.autograd.profiler", "torch.utils.tensorboard")
_DONE = re.compile(
    r"manual_seed(_all)?|seed(_everything)?|set_seed|load_state_dict|to|cuda|add_param_group|register_\w+|set_num_threads"
    r"|makedirs|mkdir|parse_args|init_process_group"
)


_FEW = 64


def without_logging(statements: Iterable[ast.stmt], failing: ast.stmt, frame: FrameType) -> list[ast.stmt]:
    """Statements without those that only log or print, which become ``pass``. The nodes given are changed.

    Args:
        failing: the statement that stays whatever it is.
        frame: where it is looked up what names stand for.
    """
    spaces = (frame.f_locals, frame.f_globals, frame.f_builtins)
    prune = _Prune(failing, spaces)
    return [prune.visit(one) for one in statements]


class _Prune(ast.NodeTransformer):
    def __init__(self, failing: ast.stmt, spaces: tuple[Mapping[str, Any], ...]) -> None:
        self._failing, self._spaces = failing, spaces

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if units.stands_in(node, self._failing) or not isinstance(node.value, ast.Call) or not self._logs(node.value):
            return node
        return ast.copy_location(ast.Pass(), node)

    def visit_FunctionDef(self, node: Any) -> Any:
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef  # noqa: N815

    def _logs(self, call: ast.Call) -> bool:
        if not is_of_logs(looked_up(call.func, self._spaces), called=True):
            return False
        inside = (node for one in (*call.args, *call.keywords) for node in rebinding.own_nodes([one]))
        return not any(isinstance(node, ast.NamedExpr) or self._works(node) for node in inside)

    def _works(self, node: ast.AST) -> bool:
        """Whether what is handed to a log is itself a piece of the work: ``print(train(batch))``."""
        if not isinstance(node, ast.Call):
            return False
        if syntax.call_name(node) in ("backward", "step"):
            return True
        called = getattr(looked_up(node.func, self._spaces), "__func__", looked_up(node.func, self._spaces))
        return isinstance(called, FunctionType) and is_user_file(called.__code__.co_filename)


def looked_up(node: ast.expr, spaces: Iterable[Mapping[str, Any]]) -> Any:
    """What a name or a dotted name stands for, without running anything of the user's; None if that is not to be told.

    Of a call or an item it is what is called, or what the item is of; of an attribute that only a running program
    could tell, the object that it is of.

    Example:
        >>> import os
        >>> looked_up(ast.parse("os.path.join", mode="eval").body, [{"os": os}]) is os.path.join
        True
    """
    if isinstance(node, ast.Name):
        return next((space[node.id] for space in spaces if node.id in space), None)
    if isinstance(node, ast.Call):
        return looked_up(node.func, spaces)
    if isinstance(node, ast.Subscript):
        return looked_up(node.value, spaces)
    if isinstance(node, ast.Attribute):
        holder = looked_up(node.value, spaces)
        held = introspection.attributes(holder)
        if node.attr in held:
            return held[node.attr]
        found = inspect.getattr_static(type(holder), node.attr, None)
        return found if isinstance(found, FunctionType) and not is_of_logs(holder) else holder
    return None


def is_of_logs(thing: Any, called: bool = False) -> bool:
    """Whether something belongs to a library that logs, shows or stores: a module, function, class or instance of it.

    Args:
        called: functions of Python's own that print count, too.

    Example:
        >>> import logging
        >>> is_of_logs(logging.getLogger()), is_of_logs(print, called=True), is_of_logs([])
        (True, True, False)
    """
    if thing is None:
        return False
    if called and any(thing is one for one in _PRINTS):
        return True
    if isinstance(thing, ModuleType):
        homes = [thing.__name__]
    elif isinstance(thing, type) or inspect.isroutine(thing):
        homes = [getattr(thing, "__module__", None) or type(getattr(thing, "__self__", None)).__module__]
    else:
        homes = [kind.__module__ for kind in type(thing).__mro__]
    return any(_is_log(home) for home in homes if isinstance(home, str))


def _is_log(home: str) -> bool:
    return home.partition(".")[0] in _LOGS or home.startswith(_LOGS_OF_TORCH)


# -- what was built ----------------------------------------------------------------------------------------------------


def without_what_was_built(statements: Iterable[ast.stmt], unit: Unit, local: Mapping[str, Any]) -> list[ast.stmt]:
    """Statements without those that made what is there: modules, optimizers, loaders, leaves that train.

    What they made is taken as it is now, with the weights that it has. A leaf that was made of what the statements
    themselves compute is made anew. A loop of its own that trained before, and that nothing after it needs, is over.
    """
    rows = [*statements]
    rows = [one for at, one in enumerate(rows) if not _is_over(one, rows[at + 1 :])]
    kept: list[ast.stmt] = []
    made: set[str] = set()  # by statements that are kept
    for at, one in enumerate(rows):
        later = rows[at + 1 :]
        if one is not rows[-1] and _is_done(one, unit, local, made) and not _changes_between(one, later, local):
            continue
        kept.append(one)
        made |= rebinding.flow([one]).stored
    return kept


def _is_done(statement: ast.stmt, unit: Unit, local: Mapping[str, Any], made: set[str]) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.ClassDef, *syntax.FUNCTIONS)):
        names = rebinding.flow([statement]).stored
        defines = isinstance(statement, syntax.FUNCTIONS)
        return all(name in local for name in names) and (unit.kind == MODULE or not defines)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        flow = rebinding.flow([statement])
        plain = flow.stored and all(isinstance(target, (ast.Name, ast.Tuple)) for target, _ in syntax.pairs(statement))
        things = [local.get(name) for name in flow.stored]
        return bool(plain) and all(is_built(one, flow.read & made) for one in things)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        of_made = syntax.names_in(statement.value.func) & made
        return bool(_DONE.fullmatch(syntax.call_name(statement.value))) and not of_made
    return False


def _is_over(statement: ast.stmt, later: list[ast.stmt]) -> bool:
    """Whether a statement is a loop that trained, and that was left before the failing statement."""
    if not later or not isinstance(statement, units.LOOPS):
        return False
    calls = {syntax.call_name(node) for node in rebinding.own_nodes([statement]) if isinstance(node, ast.Call)}
    return bool(calls & {"backward", "step"}) and not rebinding.flow([statement]).stored & rebinding.flow(later).read


def _changes_between(statement: ast.stmt, later: list[ast.stmt], local: Mapping[str, Any]) -> bool:
    """Whether a name is used as a statement made it, before another statement gives it something else.

    What a tensor is made into counts as well: ``code = f(z.detach())`` uses another ``z`` than the leaf that it is now.
    """
    names = rebinding.flow([statement]).stored if isinstance(statement, (ast.Assign, ast.AnnAssign)) else frozenset()
    again = [at for at, one in enumerate(later) if rebinding.flow([one]).stored & names]
    used = [rebinding.flow([one]) for one in later[: again[-1]] if _is_use(one, names, local)] if again else []
    return any(names & flow.read for flow in used)


def _is_use(statement: ast.stmt, names: Collection[str], local: Mapping[str, Any]) -> bool:
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return True
    torch: Any = sys.modules.get("torch")
    tensors = {one for one in names if torch is not None and introspection.is_a(local.get(one), torch.Tensor)}
    flow = rebinding.flow([statement])
    return bool(tensors & flow.read) and flow.stored.isdisjoint(names)


def is_built(thing: Any, of_made: frozenset[str]) -> bool:
    """Whether something is taken as it is now: a module, an optimizer, a loader, a leaf that trains, or their holder.

    Args:
        of_made: names that are made anew and that it was made of; a tensor is made anew then, too.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return isinstance(thing, (type, FunctionType, ModuleType))
    if introspection.is_a(thing, torch.Tensor):
        return bool(thing.is_leaf and thing.requires_grad) and not of_made
    if introspection.is_a(thing, _kinds(torch)) or is_of_logs(thing):
        return True
    if type(thing) in (list, tuple, dict):
        inside = introspection.entries(thing)
        return 0 < len(inside) <= _FEW and all(is_built(one, of_made) for one in inside)
    held = introspection.attributes(thing).values()  # a trainer or an agent of the program's own
    return any(introspection.is_a(one, (torch.nn.Module, torch.optim.Optimizer)) for one in held)


def _kinds(torch: Any) -> tuple[type[Any], ...]:
    data, optim = torch.utils.data, torch.optim
    return (
        torch.nn.Module, optim.Optimizer, optim.lr_scheduler.LRScheduler, data.DataLoader, data.Dataset, data.Sampler,
        torch.amp.GradScaler, torch.Generator, torch.device, torch.dtype, type, FunctionType, ModuleType,
    )  # fmt: skip


# -- what is put round it ----------------------------------------------------------------------------------------------


def within_switches(around: Iterable[ast.stmt], body: list[ast.stmt], frame: FrameType) -> list[ast.stmt]:
    """Statements inside of those ``with`` blocks around them that switch how torch computes.

    That is grad mode, autocast, the device and the like.

    Others (a profiler, a file, a progress bar) are left out: they are still open, or have been closed.
    """
    spaces = (frame.f_locals, frame.f_globals, frame.f_builtins)
    inner = body
    for block in reversed([*around]):
        items = (
            [one for one in block.items if _switches(one.context_expr, spaces)] if isinstance(block, ast.With) else []
        )
        if items:
            outer = copy.copy(block)
            outer.items, outer.body = copy.deepcopy(items), inner  # type: ignore[attr-defined]
            inner = [outer]
    return inner


def _switches(entered: ast.expr, spaces: tuple[Mapping[str, Any], ...]) -> bool:
    thing = looked_up(entered, spaces)
    kind = thing if isinstance(thing, type) or inspect.isroutine(thing) else type(thing)
    home = str(getattr(kind, "__module__", "") or "")
    if home.partition(".")[0] == "torch":
        return not home.startswith(_NO_SWITCH)
    return bool(_SWITCH.search(ast.unparse(entered))) and not is_of_logs(thing)
