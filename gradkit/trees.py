"""A syntax tree with the way from each node to the outside: walked once, however often it is asked."""

from __future__ import annotations

import ast
from typing import Any

from gradkit.words import FUNCTIONS


class Tree:
    """A syntax tree, walked.

    Attributes:
        nodes: every node, outer ones before what is in them.

    Example:
        >>> tree = Tree(ast.parse("def f():\\n    return g(1)"))
        >>> [type(node).__name__ for node in tree.inside(tree.nodes[-1])]
        ['Module', 'FunctionDef', 'Return', 'Call']
        >>> tree.function(tree.nodes[-1]).name
        'f'
    """

    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[Any] = [tree]
        self._parents: dict[int, ast.AST] = {}
        self._functions: dict[int, Any] = {}
        for node in self.nodes:  # it grows on the way
            function = node if isinstance(node, FUNCTIONS) else self._functions.get(id(node))
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.expr_context, ast.operator)):
                    continue  # shared between nodes, and of no interest
                self._parents[id(child)] = node
                self._functions[id(child)] = function
                self.nodes.append(child)

    def inside(self, node: ast.AST) -> list[Any]:
        """The nodes that a node is inside of, outermost first."""
        found: list[Any] = []
        while (outer := self._parents.get(id(node))) is not None:
            found.append(outer)
            node = outer
        return found[::-1]

    def function(self, node: ast.AST) -> Any:
        """The innermost function that a node is inside of, None if it is in none."""
        return self._functions.get(id(node))
