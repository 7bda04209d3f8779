"""The floor plan: a room imports from itself and from the rooms before it, and the documents tell it as it is."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
PACKAGE = REPO / "gradkit"

# Lowest first. A room with rooms inside: those too, lowest first; what lies in the room itself comes last.
ROOMS: dict[str, tuple[str, ...]] = {
    "core": (),
    "source": (),
    "state": (),
    "witness": (),
    "load": (),
    "tracing": (),
    "diagnosis": ("facts", "experiments", "rules"),
    "report": ("picture",),
    "api": ("scanning",),
    "live": (),
    "teaching": (),
    "notebook": (),
}
DOORS = ("cli", "diagnosis/__main__", "testing", "types", "__main__", "__init__")
PROGRAMS = ("cases", "teaching/guides", "teaching/claims", "teaching/books")  # written the way that users write
# Who may name a library that does not belong everywhere; what is in no row may be named by any room.
LIBRARIES = {
    "ipywidgets": {"notebook"}, "anywidget": {"notebook"}, "traitlets": {"notebook"},
    "IPython": {"notebook", "teaching"}, "pygraphviz": {"report"},
    "graphviz": {"report", "notebook"},  # the type of the drawing that a GraphView is handed by report
    "jupytext": {"teaching"}, "nbformat": {"teaching"}, "transformers": {"load", "live"}, "safetensors": {"load"},
    "peft": {"load", "diagnosis"},  # which of a model's layers are adapters, only their class tells
    "executing": {"source"}, "platformdirs": {"core"},
}  # fmt: skip
NO_TORCH = ("source", "report")  # they work on records and text; the exceptions are listed with their reason
TORCH_ALL_THE_SAME = {
    "source/constructors.py": "compares a built layer with what the source says",
    "report/picture/torchviz_view.py": "torchviz draws live tensors: empty ones stand for those of the run",
}


def _modules() -> list[Path]:
    found = (path for path in PACKAGE.rglob("*.py"))
    return sorted(path for path in found if not _name(path).startswith(tuple(f"{one}/" for one in PROGRAMS)))


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _floor(name: str) -> tuple[int, int]:
    """``(room, room inside of it)`` of ``"diagnosis/rules/setup.py"``; doors stand above all rooms."""
    parts = name.removesuffix(".py").split("/")
    rooms = list(ROOMS)
    if name.removesuffix(".py") in DOORS:
        return len(rooms) + DOORS.index(name.removesuffix(".py")), 0
    inner = ROOMS[parts[0]]
    return rooms.index(parts[0]), inner.index(parts[1]) if len(parts) > 2 and parts[1] in inner else len(inner)


def _imported(path: Path) -> set[str]:
    """Modules of ours that a file imports anywhere, by their files; the top name of any other."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_name(path)}:{node.lineno} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {_file(name.split(".")) for name in found} - {""}


def _file(parts: list[str]) -> str:
    if parts[0] != "gradkit":
        return parts[0]
    for end in range(len(parts), 0, -1):
        below = PACKAGE.joinpath(*parts[1:end])
        for file in (below.with_suffix(".py"), below / "__init__.py"):
            if file.is_file() and file != PACKAGE / "gradkit.py":
                return _name(file)
    return ""


MODULES = _modules()
IMPORTS = {_name(path): _imported(path) for path in MODULES}


def test_every_module_is_in_a_room_or_is_a_door() -> None:
    assert {name.split("/", maxsplit=1)[0].removesuffix(".py") for name in IMPORTS} - {*ROOMS, *DOORS} == set()


@pytest.mark.parametrize("module", IMPORTS)
def test_a_module_imports_nothing_from_a_room_above(module: str) -> None:
    ours = {name for name in IMPORTS[module] if name.endswith(".py")}
    assert {name for name in ours if _floor(name) > _floor(module)} == set()


def test_no_imports_go_round_in_a_circle() -> None:
    faces = {name for name in IMPORTS if name.endswith("__init__.py")}  # they only hand names on
    graph = {
        name: {one for one in used if one in IMPORTS and one not in faces}
        for name, used in IMPORTS.items()
        if name not in faces
    }
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("module", IMPORTS)
def test_a_library_is_named_only_where_it_belongs(module: str) -> None:
    room = module.split("/", maxsplit=1)[0]
    assert {name for name in IMPORTS[module] if room not in LIBRARIES.get(name, {room})} == set()
    if room in NO_TORCH and module not in TORCH_ALL_THE_SAME:
        assert "torch" not in IMPORTS[module]


@pytest.mark.parametrize("room", [*ROOMS, *(f"{room}/{inner}" for room, inside in ROOMS.items() for inner in inside)])
def test_a_room_says_what_it_takes_and_gives(room: str) -> None:
    said = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert "Takes:" in said
    assert "Gives:" in said


# Shorter than a module should be, and why it is one all the same.
SHORT = {
    "core/settings.py": "vocabulary",
    "core/package.py": "vocabulary",
    "teaching/examples.py": "the door to the built-in programs",
    "notebook/accessibility.py": "what the page's own script and the widgets agree upon",
    "report/picture/_dot_child.py": "a program, run by path",
}


@pytest.mark.parametrize("module", IMPORTS)
def test_a_module_is_no_heap_and_no_splinter(module: str) -> None:
    lines = len((PACKAGE / module).read_text(encoding="utf-8").splitlines())
    assert lines <= 500
    if not module.endswith("__init__.py") and module.removesuffix(".py") not in DOORS:
        assert lines >= 60 or module in SHORT


# -- what the documents say of it -----------------------------------------------------------------------------------

DOCUMENTS = sorted([*REPO.glob("docs/*.md"), *REPO.glob("CONTRIBUTING*.md"), *REPO.glob("README*.md")])
# A module by its path from the repository, or from the package: "tests/test_cli.py", "core/causes.py". What stands
# for many, "<cause>" or "*", has to stand for at least one.
PATH = re.compile(rf"(?<![\w/.-])(?:\.\./)?((?:gradkit|tests|tools|benchmarks|{'|'.join(ROOMS)})/[\w/<>*-]+\.py)\b")


def _design_row(room: str) -> list[str]:
    """What the design says of a room, column by column."""
    rows = (REPO / "docs" / "design.md").read_text(encoding="utf-8").splitlines()
    return next(row.strip("| ").split(" | ") for row in rows if row.startswith(f"| `{room}` | "))


def _exists(path: str) -> bool:
    pattern = re.sub(r"<\w+>", "*", path)
    return any(next(folder.glob(pattern), None) is not None for folder in (REPO, PACKAGE))


@pytest.mark.parametrize("room", ROOMS)
def test_the_design_says_which_rooms_a_room_imports(room: str) -> None:
    inside = [name for name in IMPORTS if name.startswith(f"{room}/") and name.removesuffix(".py") not in DOORS]
    used = {imported.partition("/")[0] for name in inside for imported in IMPORTS[name] if imported.endswith(".py")}
    assert re.findall(r"\w+", _design_row(room)[-1]) == [one for one in ROOMS if one in used - {room}]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(REPO).as_posix())
def test_every_module_that_a_document_names_by_its_path_is_there(document: Path) -> None:
    named = PATH.findall(document.read_text(encoding="utf-8"))
    assert [path for path in named if not _exists(path)] == []


def test_paths_of_modules_are_found_in_a_text() -> None:
    text = (
        "`tests/programs/cut/<cause>.py`, core/causes.py ([see](../gradkit/no_such.py)); not train.py, not a/core/b.py"
    )
    assert PATH.findall(text) == ["tests/programs/cut/<cause>.py", "core/causes.py", "gradkit/no_such.py"]
    assert [_exists(path) for path in PATH.findall(text)] == [True, True, False]
