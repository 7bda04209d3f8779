"""The table "six faults x tools" of docs/other_tools.md; our own row is computed. tools/readme.py writes it."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

import gradkit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).parents[1]
FAULTS = REPO / "tests" / "peer_faults"
DATA = REPO / "tools" / "peer_table.toml"


def is_right(program: str) -> bool:
    """Whether gradkit's first finding on this program has its cause and one of its ``# CUT`` lines.

    Args:
        program: name of a file in ``tests/peer_faults``, without its ending.
    """
    path = FAULTS / f"{program}.py"
    spec = importlib.util.spec_from_file_location(f"peer_fault_{program}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model, batch = module.build()
    findings = gradkit.diagnose(model, batch, should_train=getattr(module, "SHOULD_TRAIN", None)).findings
    if not findings or findings[0].location is None:
        return not module.CAUSE and not findings
    place = (findings[0].location.file, findings[0].location.line)
    return findings[0].cause == module.CAUSE and place in {(str(path), line) for line in cut_lines(path)}


def cut_lines(path: Path) -> set[int]:
    """The lines of a program that end in ``# CUT``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# CUT")}


def table(language: str) -> str:
    """The table in Markdown, with what its words mean, in ``"en"`` or ``"zh"``."""
    data = _data()
    words = data["words"][language]
    head = [words["tool"], *(fault[language] for fault in data["fault"])]
    own = [words["gradkit"], *(_cell([words["right" if form else "off"] for form in forms]) for forms in _ours())]
    others = [
        [tool["name"], *(_cell([words[word] for word in cell.split()]) for cell in tool["cells"])]
        for tool in data["tool"]
    ]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), own, *others])
    return f"{words['head']}\n\n{lines}\n\n{words['legend']}\n\n{words['about']}"


def others() -> int:
    """How many other tools the table tells of; one that is tried in several ways counts once."""
    return len({one.split(" (")[0] for tool in _data()["tool"] for one in tool["name"].split(", ")})


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


@functools.cache
def _ours() -> list[list[bool]]:
    """For each fault, whether gradkit is right in each of its forms."""
    return [[is_right(program) for program in fault["programs"]] for fault in _data()["fault"]]


def _cell(forms: list[str]) -> str:
    return forms[0] if len(set(forms)) == 1 else " / ".join(forms)
