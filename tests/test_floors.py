"""A module imports from its own floor or one below, and never in a circle; docs/design.md names the floors."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
PACKAGE = REPO / "gradkit"
PROGRAMS = ("books", "cases", "claims", "guides")  # written the way that users write: they import what users import


def _floors() -> dict[str, int]:
    """``{"load": 1, "widgets/": 7, ...}``, from the table in the design."""
    design = (REPO / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \w+ \| ([^|]+) \|", design, re.MULTILINE)
    return {room: int(number) for number, rooms in rows for room in re.findall(r"`([\w/]+)`", rooms)}


FLOORS = _floors()
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in PROGRAMS)


def _name(path: Path) -> str:
    """``"load"``, ``"widgets/panel"``."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def _room(module: str) -> str:
    return f"{module.split('/', maxsplit=1)[0]}/" if "/" in module else module


def _imports(path: Path) -> set[str]:
    """The modules of ours that ``path`` imports anywhere, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_name(path)}:{node.lineno} imports relatively; write gradkit.x in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = (name.split(".")[1:] for name in found if name.split(".")[0] == "gradkit")
    return {module for parts in ours if (module := _longest(parts))}


def _longest(parts: list[str]) -> str:
    """The longest beginning of ``parts`` that is a module of ours, ``"__init__"`` for the package itself."""
    for end in range(len(parts), 0, -1):
        below = "/".join(parts[:end])
        if (PACKAGE / f"{below}.py").is_file():
            return below
        if (PACKAGE / below / "__init__.py").is_file():
            return f"{below}/__init__"
    return "" if parts and parts[0] in PROGRAMS else "__init__"


IMPORTS = {_name(path): _imports(path) for path in MODULES}


def test_the_design_names_a_floor_for_every_module() -> None:
    assert {_room(module) for module in IMPORTS} - set(FLOORS) == set()


def test_the_design_names_no_module_that_is_gone() -> None:
    assert set(FLOORS) - {_room(module) for module in IMPORTS} == set()


@pytest.mark.parametrize("module", [module for module in IMPORTS if _room(module) in FLOORS])
def test_a_module_imports_nothing_from_a_floor_above(module: str) -> None:
    assert {below for below in IMPORTS[module] if FLOORS.get(_room(below), 0) > FLOORS[_room(module)]} == set()


def test_no_imports_go_round_in_a_circle() -> None:
    graphlib.TopologicalSorter(IMPORTS).prepare()  # a CycleError names the circle
