"""What a name in a source file stands for, by its imports and plain assignments: ``t.no_grad`` is ``torch.no_grad``."""

from __future__ import annotations

import ast
from collections.abc import Iterable


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
