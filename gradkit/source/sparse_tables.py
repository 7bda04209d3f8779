"""The lines that ask an embedding for sparse gradients, those that make one without, and who builds an optimizer.

``nn.Embedding(..., sparse=True)`` and its kin: a gradient then holds the rows alone that the batch has looked up.
Source: https://pytorch.org/docs/stable/generated/torch.nn.Embedding.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkit.core.records import Location
from gradkit.source import locations, syntax

_TABLES = frozenset("Embedding EmbeddingBag embedding embedding_bag".split())


@dataclass(frozen=True)
class Table:
    """A line that makes, or looks up in, an embedding.

    Attributes:
        location: the call.
        is_sparse: it asks for sparse gradients, or what it hands on may.
    """

    location: Location
    is_sparse: bool


def tables(files: Iterable[str]) -> list[Table]:
    """The embeddings of some files, in the order of their lines."""
    found = (one for file in dict.fromkeys(files) for one in _in(file))
    return sorted(found, key=lambda one: (one.location.file, one.location.line))


def builders(files: Iterable[str], kind: str) -> list[tuple[str, Location]]:
    """The calls that build an optimizer of a class, or of its kin with a ``W``, each with the name that it calls."""
    return [
        (syntax.call_name(node), locations.place(file, node, syntax.function_of(around)))
        for file in dict.fromkeys(files)
        for node, around in syntax.statements(file)
        if isinstance(node, ast.Call) and syntax.call_name(node) in (kind, f"{kind}W")
    ]


def _in(file: str) -> Iterator[Table]:
    for node, around in syntax.statements(file):
        if not isinstance(node, ast.Call) or not _is_table(node):
            continue
        asked = next((one.value for one in node.keywords if one.arg == "sparse"), None)
        is_sparse = asked is not None and not (isinstance(asked, ast.Constant) and not asked.value)
        yield Table(locations.place(file, node, syntax.function_of(around)), is_sparse)


def _is_table(call: ast.Call) -> bool:
    """Whether a call makes an embedding: ``nn.Embedding(...)``, ``nn.Embedding.from_pretrained(...)``."""
    if syntax.call_name(call) in _TABLES:
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "from_pretrained" else None
    return owner is not None and ast.unparse(owner).rpartition(".")[2] in _TABLES
