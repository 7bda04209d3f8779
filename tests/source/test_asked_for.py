"""Which calls of a file come about only under a condition, and what that asks for."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gradkit.source.asked_for import asked_for

BODY = """\
class Net:
    def __init__(self):
        self.eye = self.eye()
    def forward(self, scene, image=None):
        x = self.ear(scene)
{body}
        return self.tell(x)
    def look(self, scene):
        return checkpoint(self.far, scene)
"""


def found(tmp_path: Path, body: str, outside: str = "") -> dict[str, list[str]]:
    path = tmp_path / "net.py"
    text = BODY.format(body=textwrap.indent(textwrap.dedent(body), " " * 8))
    path.write_text(text + textwrap.dedent(outside), encoding="utf-8")
    told: dict[str, list[str]] = {}
    for one in asked_for(str(path)):
        told.setdefault(one.attribute, []).append(one.key)
    return told


@pytest.mark.parametrize(
    "body",
    [
        'if "image" in scene:\n    x = x + self.eye(scene["image"])',
        'x = x + self.eye(image) if scene.get("image") is not None else x',
        'if "image" not in scene:\n    return x\nx = self.eye(x)',
        'scene.get("image") is not None and self.eye(x)',
        "if image is not None:\n    x = self.eye(image)",
        'picture = scene.get("image")\nif picture is not None:\n    x = self.eye(picture)',
    ],
)
def test_what_a_condition_asks_for_is_found(tmp_path: Path, body: str) -> None:
    assert found(tmp_path, body)["eye"] == ["image"]


@pytest.mark.parametrize(
    "body",
    [
        'x = self.eye(scene["image"] if "image" in scene else x)',
        'if "image" in scene:\n    x = self.eye(x)\nx = self.eye(x)',
        "x = self.eye(x)",
    ],
)
def test_what_is_called_in_any_case_is_left_out(tmp_path: Path, body: str) -> None:
    assert "eye" not in found(tmp_path, body)


def test_both_arms_of_a_condition_ask_for_nothing_that_could_be_lacking(tmp_path: Path) -> None:
    body = 'if "image" in scene:\n    x = self.eye(x)\nelse:\n    x = self.eye(-x)'
    assert set(found(tmp_path, body)["eye"]) == {""}


def test_a_condition_that_asks_for_nothing_in_particular_is_found_all_the_same(tmp_path: Path) -> None:
    assert found(tmp_path, "if x.mean() > 0:\n    x = self.eye(x)")["eye"] == [""]


def test_a_method_that_is_called_under_a_condition_is_gone_into(tmp_path: Path) -> None:
    assert found(tmp_path, 'if "depth" in scene:\n    x = self.look(scene)')["far"] == ["depth"]


def test_a_loop_outside_of_the_model_is_read_as_well(tmp_path: Path) -> None:
    outside = 'for scene in scenes:\n    if "image" in scene:\n        loss = net.eye(scene["image"])\n'
    assert found(tmp_path, "pass", outside)["eye"] == ["image"]
