"""What a function of a training program is for, told by its name, by what it calls and by who calls it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from gradkit.trees import Tree
from gradkit.words import FUNCTIONS

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
    called: dict[int, set[str]] = {id(one): set() for one in functions}
    for tree in trees:
        for node in tree.nodes:
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                outer = tree.function(node)
                while outer is not None:
                    called[id(outer)].add(name)
                    outer = tree.function(outer)
    found = {id(one): _told(one.name, called[id(one)]) for one in functions}
    for role in (FORWARD, TRAINING):  # what such a function calls is of its kind, unless its name says otherwise
        todo = [one for one in functions if found[id(one)] == role]
        while todo:
            names = called[id(todo.pop())]
            reached = [one for one in functions if one.name in names and found[id(one)] == OTHER]
            found.update((id(one), role) for one in reached)
            todo += reached
    return found


def of(node: ast.AST, tree: Tree, known: dict[int, str]) -> str:
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
