"""A program with its text in two languages beside it, in one folder: what guides and claims have in common.

A text begins with a few ``key: value`` lines between two ``---``; its parts begin with ``## id`` or ``## id | title``.
The Chinese one carries an ``en-hash``: the :func:`stamp` of the English one that it was written from.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_PART = re.compile(r"^## (\w+)(?: \| (.+))?$", re.MULTILINE)


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The facts at the head of a text, and the rest of it.

    Example:
        >>> front_matter("---\\ntitle: A: b\\n---\\nText\\n")
        ({'title': 'A: b'}, 'Text\\n')
    """
    _, head, body = text.split("---\n", 2)
    pairs = (line.split(":", 1) for line in head.splitlines())
    return {key.strip(): value.strip() for key, value in pairs}, body


def paired_parts(body: str) -> Iterator[tuple[str, str, str]]:
    """Id, title (``""`` if it has none) and text of each part.

    Example:
        >>> list(paired_parts("## why | Because\\n\\nSo.\\n\\n## end\\n"))
        [('why', 'Because', 'So.'), ('end', '', '')]
    """
    heads = list(_PART.finditer(body))
    ends = [head.start() for head in heads[1:]] + [len(body)]
    for head, end in zip(heads, ends, strict=True):
        yield head[1], head[2] or "", body[head.end() : end].strip()


def stamp(english: str, digits: int = 12) -> str:
    """What the Chinese text carries to say which English one it was written from: hexadecimal digits.

    Args:
        digits: how many; the stamps that stand in the texts have twelve, those in the cells of books eight.

    Example:
        >>> stamp("a") == stamp("a") != stamp("b")
        True
    """
    return hashlib.sha256(english.encode()).hexdigest()[:digits]


def function(lines: list[str], name: str) -> list[str]:
    """The lines of a function of a program; ``[]`` if there is none of that name.

    Example:
        >>> function(["import os", "def f():", "    return os"], "f")
        ['def f():', '    return os']
    """
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return lines[node.lineno - 1 : node.end_lineno]
    return []


def load_paired(path: Path, name: str) -> ModuleType:
    """The program in ``path`` as a module, run once in a process."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]
