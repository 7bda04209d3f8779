"""Programs that tests diagnose, one file a cause: those of a folder in a fixed order, by file and then as written."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def files(package: str) -> list[ModuleType]:
    """The modules of a folder of programs, by name."""
    folder = importlib.import_module(package)
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return [importlib.import_module(f"{package}.{name}") for name in names]


def entered(package: str, mark: str) -> dict[str, Any]:
    """What the decorators of ``shared`` entered under this mark, by the name of the function."""
    found: dict[str, Any] = {}
    for module in files(package):
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__ or mark not in getattr(value, "__dict__", {}):
                continue
            if name in found:
                raise ValueError(f"two programs have the name {name}")
            found[name] = vars(value)[mark]
    return found
