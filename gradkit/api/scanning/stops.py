"""What a piece of source code does that may stop a gradient, told by syntax: calls, names, the roles of functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from gradkit.core.operations import CASTS, MAYBE_NEW, NEW
from gradkit.core.operations import NAMES as LEAVES
from gradkit.source import freezing
from gradkit.source.syntax import FUNCTIONS, Tree, arguments


class Names:
    """The names of one file, or of the cells of one notebook.

    Args:
        nodes: all nodes of its syntax tree.

    Example:
        >>> text = "import torch as t\\nfrom torch import no_grad as off\\nquiet = t.no_grad()"
        >>> names = Names(ast.walk(ast.parse(text)))
        >>> [names.dotted(ast.parse(text, mode="eval").body) for text in ("t.nn.Linear", "off", "quiet", "x.y")]
        ['torch.nn.Linear', 'torch.no_grad', 'torch.no_grad', 'x.y']
    """

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._known: dict[str, str] = {}
        self.modules: set[str] = set()
        nodes = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign))]
        for node in nodes:
            if isinstance(node, ast.Import):
                self._imported(node)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._known[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                value = node.value.func if isinstance(node.value, ast.Call) else node.value
                if isinstance(value, (ast.Name, ast.Attribute)) and self.is_torch(value):
                    self._known.setdefault(node.targets[0].id, self.dotted(value))

    def _imported(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            name, meant = (alias.asname, alias.name) if alias.asname else (first, first)
            self._known[name] = meant
            self.modules.add(name)

    def dotted(self, node: ast.expr) -> str:
        """The full name of what an expression names; ``"?.detach"`` for an attribute of something computed."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        first = self._known.get(node.id, node.id) if isinstance(node, ast.Name) else "?"
        return ".".join([first, *reversed(parts)])

    def is_torch(self, node: ast.expr) -> bool:
        """Whether an expression names something of torch's own."""
        return self.dotted(node).partition(".")[0] == "torch"


FORWARD, TRAINING, EVALUATION, SETUP, OTHER = "forward", "training", "evaluation", "setup", "other"
ON_THE_WAY = frozenset((FORWARD, TRAINING))

_FORWARD = re.compile(
    r"_?forward|__call__|training_step|(compute|get|calc|calculate)_.*loss|.*_?loss|loss_.*|criterion"
)
_EVALUATION = re.compile(
    r"_*(.*_)?(eval|evaluate|evaluation|valid|validate|validation|test|predict|infer|inference|generate|sample|"
    r"metrics?|log|plot|show|visuali[sz]e|export|save|accuracy)(_.*)?"
)
_TRAINING = re.compile(r"_*(.*_)?(train|training|fit|step|epoch|update|optimi[sz]e)(_.*)?")
_SETUP = re.compile(
    r"__init__|_*(.*_)?(init|build|make|create|load|freeze|unfreeze|setup|set_up|configure|reset|prepare)(_.*)?"
)
_BY_NAME = ((FORWARD, _FORWARD), (EVALUATION, _EVALUATION), (SETUP, _SETUP), (TRAINING, _TRAINING))


def roles(trees: Sequence[Tree]) -> dict[int, str]:
    """The role of every function of a file, by the ``id`` of its node; ``FORWARD`` or ``TRAINING`` is code that a
    gradient has to come through, as far as a file by itself can tell.

    Example:
        >>> tree = ast.parse("def forward(x): return widen(x)\\ndef widen(x): ...\\ndef evaluate(): widen(1)")
        >>> [roles([Tree(tree)])[id(function)] for function in tree.body]
        ['forward', 'forward', 'evaluation']
    """
    functions = [node for tree in trees for node in tree.nodes if isinstance(node, FUNCTIONS)]
    called: dict[int, set[str]] = {id(function): set() for function in functions}
    for tree in trees:
        for node in tree.nodes:
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                outer = tree.function(node)
                while outer is not None:
                    called[id(outer)].add(name)
                    outer = tree.function(outer)
    role_by_id = {id(function): _told(function.name, called[id(function)]) for function in functions}
    for role in (FORWARD, TRAINING):  # what such a function calls is of its kind, unless its name says otherwise
        todo = [function for function in functions if role_by_id[id(function)] == role]
        while todo:
            names = called[id(todo.pop())]
            reached = [
                function for function in functions if function.name in names and role_by_id[id(function)] == OTHER
            ]
            role_by_id.update((id(function), role) for function in reached)
            todo += reached
    return role_by_id


def role_of(node: ast.AST, tree: Tree, known: dict[int, str]) -> str:
    """The role of the innermost function with a role that a node is, or is inside of."""
    function = node if isinstance(node, FUNCTIONS) else tree.function(node)
    while function is not None:
        if known[id(function)] != OTHER:
            return known[id(function)]
        function = tree.function(function)
    return OTHER


def _told(name: str, called: set[str]) -> str:
    if name != "backward" and "backward" in called:
        return TRAINING
    return next((role for role, words in _BY_NAME if words.fullmatch(name)), OTHER)


NO_GRAD, INFERENCE, SWITCH, DETACH, DATA, FREEZE, EVAL, NUMBER, ARRAY, REWRAP, CAST, PARAMETER, FLAG = KINDS = (
    "no_grad", "inference_mode", "set_grad_enabled", "detach", "data", "freeze", "eval", "number", "numpy", "rewrap",
    "integer_cast", "parameter", "requires_grad",
)  # fmt: skip

_INTEGERS = re.compile(r"torch\.(u?int\d*|long|short|bool|(cuda\.)?(Long|Int|Short|Char|Byte|Bool)Tensor)|int|bool")
_OLD_TENSORS = re.compile(r"torch\.(cuda\.)?(\w*)Tensor")
_SETTINGS = frozenset("self cls args cfg config opt opts".split())
_WORDS = {"no_grad": NO_GRAD, "inference_mode": INFERENCE, "set_grad_enabled": SWITCH, "_set_grad_enabled": SWITCH}


class Reader:
    """Tells the kind of stop that a syntax node is.

    Args:
        names: what the names of the file stand for.
        torch: whether the file speaks of torch at all; if not, ``x.item()`` and the like are somebody else's.

    Example:
        >>> reader = Reader(Names([]))
        >>> [reader.call(ast.parse(text, mode="eval").body, "forward") for text in ("x.item()", "y.long()", "f()")]
        ['number', 'integer_cast', '']
    """

    def __init__(self, names: Names, *, torch: bool = True) -> None:
        self.names = names
        self.torch = torch

    def switch(self, node: ast.expr) -> str:
        """The kind of switch that an expression is; ``""`` for none, and for one that switches recording on."""
        called = node.func if isinstance(node, ast.Call) else node
        if not isinstance(called, (ast.Name, ast.Attribute)):
            return ""
        kind = _WORDS.get(self.names.dotted(called).rpartition(".")[2], "")
        told = arguments(node) if isinstance(node, ast.Call) else []
        on = kind == INFERENCE and any(is_constant(one, False) for one in told)
        return "" if on or (kind == SWITCH and any(is_constant(one, True) for one in told)) else kind

    def attribute(self, node: ast.Attribute) -> str:
        """``DETACH`` or ``DATA``, ``""`` for any other attribute and for a ``data`` that is plainly no tensor's."""
        if node.attr in ("detach", "detach_"):
            return DETACH
        if node.attr != "data" or not self.torch:
            return ""
        owner = node.value
        if isinstance(owner, ast.Name) and (owner.id in _SETTINGS or owner.id in self.names.modules):
            return ""
        return "" if self.names.is_torch(node) else DATA

    def call(self, node: ast.Call, role: str) -> str:
        """The kind of stop that a call is, apart from switches and ``detach``; ``""`` for none.

        Args:
            role: what the function around it is for: some are worth a look only where a gradient has to come through.
        """
        if freezing.flag_off(node):
            return FREEZE
        if not self.torch:
            return ""
        bare = not node.args and not node.keywords
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        told = arguments(node)
        if (name == "eval" and bare) or (name == "train" and len(told) == 1 and is_constant(told[0], False)):
            return EVAL
        if name in ("item", "tolist"):
            return NUMBER
        if name == "numpy" and not node.args:
            return ARRAY
        if self._is_rewrap(node):
            return REWRAP
        return self._on_the_way(node, name) if role in ON_THE_WAY else ""

    def _is_rewrap(self, node: ast.Call) -> bool:
        """Whether a call makes a new tensor of what may be tensors: not of numbers that are written out."""
        if not node.args or not isinstance(node.func, (ast.Name, ast.Attribute)):
            return False
        whole = self.names.dotted(node.func)
        owner, _, word = whole.rpartition(".")
        given = node.args[0]
        if word in MAYBE_NEW and owner == "torch":
            return isinstance(given, (ast.List, ast.Tuple, ast.ListComp)) and not _is_written_out(given)
        makes = (word in NEW and (owner == "torch" or word == "new_tensor")) or bool(_OLD_TENSORS.fullmatch(whole))
        return makes and not _is_written_out(given)

    def _on_the_way(self, node: ast.Call, name: str) -> str:
        """What is worth a look only in code that a gradient has to come through."""
        whole = self.names.dotted(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""
        word = whole.rpartition(".")[2]
        if whole == "float" and len(node.args) == 1 and _may_be_tensor(node.args[0]):
            return NUMBER
        if whole in ("numpy.asarray", "numpy.array") and node.args and not _is_written_out(node.args[0]):
            return ARRAY
        if word in LEAVES and node.args:
            return PARAMETER
        if name == "requires_grad_" and not any(is_constant(one, False) for one in node.args):
            return FLAG
        if any(one.arg == "requires_grad" and is_constant(one.value, True) for one in node.keywords):
            return FLAG
        return CAST if self._is_cast(node, name) else ""

    def _is_cast(self, node: ast.Call, name: str) -> bool:
        if name not in CASTS:
            return False
        if name in ("to", "type"):
            told = [*node.args, *(one.value for one in node.keywords if one.arg == "dtype")]
            named = [self.names.dotted(one) for one in told if isinstance(one, (ast.Name, ast.Attribute))]
            return any(_INTEGERS.fullmatch(one) for one in named)
        return not node.args and not node.keywords


def sets_flag(node: ast.Assign) -> bool:
    """Whether an assignment is ``something.requires_grad = True``."""
    flags = (one for one in node.targets if isinstance(one, ast.Attribute) and one.attr == "requires_grad")
    return any(flags) and is_constant(node.value, True)


def is_constant(node: ast.expr, value: bool) -> bool:
    """Whether an expression is this very constant."""
    return isinstance(node, ast.Constant) and node.value is value


def _is_written_out(node: ast.expr) -> bool:
    """Whether an expression holds nothing but numbers and texts."""
    return not any(isinstance(one, (ast.Name, ast.Attribute, ast.Call)) for one in ast.walk(node))


def _may_be_tensor(node: ast.expr) -> bool:
    """Whether the argument of ``float`` may be a tensor: no number, no text, no ``len()``, no setting."""
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Name) and called.id in ("len", "int", "str", "input"):
        return False
    first: ast.AST = node
    while isinstance(first, (ast.Attribute, ast.Subscript)):
        first = first.value
    setting = first is not node and isinstance(first, ast.Name) and first.id in _SETTINGS - {"self"}
    return not setting and not _is_written_out(node)
