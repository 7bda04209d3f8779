"""The line that copies an optimizer, or reads one back from a pickle: it holds copies of what it was built over.

Source: https://docs.python.org/3/library/copy.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from gradkit.core.records import Location
from gradkit.source import locations, syntax

_COPIES = frozenset(("deepcopy", "loads"))
_READERS = frozenset(("torch", "pickle", "dill", "cloudpickle", "joblib"))  # .load() of others reads anything
_OPTIMIZER = re.compile(r"(^|_|\b)opt(im|imi[sz]ers?)?(_|\b|\d|$)", re.I)
_CONTAINERS = (ast.Tuple, ast.List, ast.Dict)
_OF_STATES = frozenset(("load_state_dict", "state_dict"))


def optimizer_copied_at(files: Iterable[str]) -> Location | None:
    """The one line that copies what it calls an optimizer, or gives a copy such a name; None if no or several lines do.

    Args:
        files: the user's.
    """
    found = [
        locations.place(file, node, syntax.function_of(around))
        for file in files
        for node, around in syntax.statements(file)
        if isinstance(node, ast.Call) and around and _copies_an_optimizer(node, around[-1])
    ]
    return found[0] if len({(one.file, one.line) for one in found}) == 1 else None


def _copies_an_optimizer(call: ast.Call, statement: ast.AST) -> bool:
    """Whether a call in a statement copies an optimizer, as far as the names tell.

    Example:
        >>> texts = ["self.optimizer_ = pickle.loads(raw)", "new = copy.deepcopy(old.opt)", "net = copy.deepcopy(net)",
        ...     "optimizer.load_state_dict(torch.load('optimizer.pt'))", "net, opt = copy.deepcopy((net, opt))"]
        >>> def copied(text):
        ...     statement = ast.parse(text).body[0]
        ...     calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call)]
        ...     return any(_copies_an_optimizer(call, statement) for call in calls)
        >>> [copied(text) for text in texts]
        [True, True, False, False, False]
    """
    name = syntax.call_name(call)
    reads = name == "load" and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in _READERS
    if not reads and name not in _COPIES:
        return False
    if any(syntax.call_name(one) in _OF_STATES for one in ast.walk(statement) if isinstance(one, ast.Call)):
        return False
    told = [*_targets(statement, call), *call.args[:1]]
    several = any(isinstance(one, _CONTAINERS) for one in told)  # with its model, which is right
    return not several and any(_OPTIMIZER.search(word) for word in _words(told))


def _targets(statement: ast.AST, call: ast.Call) -> Sequence[ast.expr]:
    """What an assignment gives the result of a call."""
    return [target for target, value in syntax.pairs(statement) if any(node is call for node in ast.walk(value))]


def _words(nodes: Iterable[ast.expr]) -> Iterator[str]:
    for node in nodes:
        for one in ast.walk(node):
            if isinstance(one, ast.Name):
                yield one.id
            elif isinstance(one, ast.Attribute):
                yield one.attr
