"""What the source of a function that builds an optimizer leaves out on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradkit.core.records import Location
from gradkit.source import left_out

NAMES = ("encoder.0.weight", "decoder.up.weight", "head.bias")


def built(folder: Path, body: str) -> Location:
    path = folder / "program.py"
    path.write_text("def configure(self, model, head, whole, locked):\n" + body, encoding="utf-8")
    return Location(str(path), 1 + len(body.splitlines()), function="configure")


@pytest.mark.parametrize(
    ("body", "chosen"),
    [
        ("    ps = list(model.encoder.parameters())\n    if whole:\n        ps += list(model.decoder.up.parameters())\n", 1),
        ("    ps = list(self.encoder.parameters())\n    ps += self.decoder.parameters() if whole else []\n", 1),
        ("    if whole:\n        ps = model.parameters()\n    else:\n        ps = model.encoder.parameters()\n", 3),
        ("    ps = [p for part in locked for p in model[part].parameters()] if locked else model.parameters()\n", 3),
        ("    ps = list(model.encoder.parameters())\n    ps += list(model.decoder.parameters())\n", 0),
        ("    ps = list(model.parameters())\n    if whole:\n        ps += list(model.head.parameters())\n", 0),
        ("    ps = list(head.parameters()) if whole else []\n", 1),
    ],
)
def test_what_is_taken_in_on_a_condition_alone_is_left_out_by_it(body: str, chosen: int, tmp_path: Path) -> None:
    assert len(left_out.on_condition(built(tmp_path, body + "    return SGD(ps)\n"), NAMES)) == chosen


@pytest.mark.parametrize(
    ("body", "refuses"),
    [
        ("    ps = [p for n, p in model.named_parameters() if not n.startswith(locked)]\n", True),
        ("    ps = [p for n, p in model.named_parameters() if 'a' not in n and 'b' not in n]\n", True),
        ("    ps = []\n    for n, p in model.named_parameters():\n        if n in locked:\n            continue\n        ps.append(p)\n", True),
        ("    ps = [p for n, p in model.named_parameters() if 'encoder' in n]\n", False),
        ("    ps = [p for n, p in model.named_parameters()]\n", False),
        (
            "    ps = [p for n, p in model.named_parameters() if 'a' not in n]\n"
            "    ps += [p for n, p in model.named_parameters() if 'b' not in n]\n",
            False,
        ),
    ],
)  # fmt: skip
def test_who_goes_through_the_names_once_and_refuses_some_leaves_them_out_by_name(
    body: str, refuses: bool, tmp_path: Path
) -> None:
    assert left_out.by_name(built(tmp_path, body + "    return SGD(ps)\n")) is refuses


def test_at_the_top_of_a_file_nothing_is_said_to_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("if whole:\n    ps = model.head.parameters()\nSGD(ps)\n", encoding="utf-8")
    spot = Location(str(path), 3)
    assert (left_out.on_condition(spot, NAMES), left_out.by_name(spot)) == ((), False)
