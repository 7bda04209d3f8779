"""What the source of a function that builds an optimizer leaves out on purpose."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gradkit.core.records import Location
from gradkit.source import left_out

NAMES = ("encoder.0.weight", "decoder.up.weight", "head.bias")


def built(folder: Path, body: str) -> Location:
    path = folder / "program.py"
    text = "def configure(self, model, head, whole, locked):\n" + textwrap.indent(f"{body}\nreturn SGD(ps)\n", "    ")
    path.write_text(text, encoding="utf-8")
    return Location(str(path), len(text.splitlines()), function="configure")


ADDED = "ps = list(model.encoder.parameters())\nif whole:\n    ps += list(model.decoder.up.parameters())"
IN_AN_EXPRESSION = "ps = list(self.encoder.parameters())\nps += self.decoder.parameters() if whole else []"
WHOLE_OR_PART = "if whole:\n    ps = model.parameters()\nelse:\n    ps = model.encoder.parameters()"
BY_KEYS = "ps = [p for part in locked for p in model[part].parameters()] if locked else model.parameters()"
ALWAYS = "ps = list(model.encoder.parameters())\nps += list(model.decoder.parameters())"
TWICE = "ps = list(model.parameters())\nif whole:\n    ps += list(model.head.parameters())"
BARE = "ps = list(head.parameters()) if whole else []"


@pytest.mark.parametrize(
    ("body", "chosen"),
    [(ADDED, 1), (IN_AN_EXPRESSION, 1), (WHOLE_OR_PART, 3), (BY_KEYS, 3), (ALWAYS, 0), (TWICE, 0), (BARE, 1)],
)
def test_what_is_taken_in_on_a_condition_alone_is_left_out_by_it(body: str, chosen: int, tmp_path: Path) -> None:
    assert len(left_out.on_condition(built(tmp_path, body), NAMES)) == chosen


OF_ALL = "[p for n, p in model.named_parameters()"
LOOP = "ps = []\nfor n, p in model.named_parameters():\n    if n in locked:\n        continue\n    ps.append(p)"
GROUPS = f"ps = {OF_ALL} if 'a' not in n]\nps += {OF_ALL} if 'b' not in n]"


@pytest.mark.parametrize(
    ("body", "refuses"),
    [
        (f"ps = {OF_ALL} if not n.startswith(locked)]", True),
        (f"ps = {OF_ALL} if 'a' not in n and 'b' not in n]", True),
        (LOOP, True),
        (f"ps = {OF_ALL} if 'encoder' in n]", False),
        (f"ps = {OF_ALL}]", False),
        (GROUPS, False),
    ],
)
def test_who_goes_through_the_names_once_and_refuses_some_leaves_them_out_by_name(
    body: str, refuses: bool, tmp_path: Path
) -> None:
    assert left_out.by_name(built(tmp_path, body)) is refuses


def test_at_the_top_of_a_file_nothing_is_said_to_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("if whole:\n    ps = model.head.parameters()\nSGD(ps)\n", encoding="utf-8")
    spot = Location(str(path), 3)
    assert (left_out.on_condition(spot, NAMES), left_out.by_name(spot)) == ((), False)
