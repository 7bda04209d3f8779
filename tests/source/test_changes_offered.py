"""Changes that a line suggests by its source, and those that it must not suggest."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gradkit.core.records import Finding
from gradkit.source import changes, locations


def _offered(cause: str, text: str, folder: Path, word: str) -> list[str]:
    """What is offered for the first call of ``word`` in a text."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call) and word in ast.unparse(one.func)]
    spot = locations.place(str(path), min(calls, key=lambda one: one.lineno))
    return [change.text.strip() for change in changes.derive_change(Finding(cause, spot)) if change.sign == "+"]


LOADED = "model = PeftModel.from_pretrained(base, folder{rest})\n"


@pytest.mark.parametrize(
    ("rest", "now"),
    [
        ("", ", is_trainable=True"),
        (', "default", False', ', "default", True'),
        (", is_trainable=False", ", is_trainable=True"),
    ],
)
def test_an_adapter_is_loaded_as_trainable_by_the_argument_that_there_is(rest: str, now: str, tmp_path: Path) -> None:
    offered = _offered("adapter_inference_mode", LOADED.format(rest=rest), tmp_path, "from_pretrained")
    assert offered == [LOADED.format(rest=now).strip()]


@pytest.mark.parametrize("rest", [", **options", ', "default", trainable', ", is_trainable=flag"])
def test_where_something_else_decides_whether_it_trains_nothing_is_offered(rest: str, tmp_path: Path) -> None:
    assert _offered("adapter_inference_mode", LOADED.format(rest=rest), tmp_path, "from_pretrained") == []


LATER = """
def prepare(model):
    return prepare_model_for_kbit_training(model)


def load(folder):
    model = PeftModel.from_pretrained(base, folder)
    return prepare(model)
"""
AT_ONCE = "model = prepare_model_for_kbit_training(PeftModel.from_pretrained(base, folder))\n"
BEFORE = "model = PeftModel.from_pretrained(prepare_model_for_kbit_training(base), folder)\n"


@pytest.mark.parametrize(("text", "offered"), [(LATER, 0), (AT_ONCE, 0), (BEFORE, 1)])
def test_what_is_frozen_again_by_pefts_preparation_is_not_cured_by_the_flag(
    text: str, offered: int, tmp_path: Path
) -> None:
    assert len(_offered("adapter_inference_mode", text, tmp_path, "from_pretrained")) == offered


HELPER = """
def as_tensor(data):
    return torch.as_tensor(data)


total = as_tensor([loss, other]).sum()
"""


@pytest.mark.parametrize(("more", "offered"), [("", 1), ("weights = as_tensor([1.0, 0.5])\n", 0)])
def test_a_helper_that_others_hand_numbers_to_is_not_made_to_stack(more: str, offered: int, tmp_path: Path) -> None:
    assert len(_offered("rewrap_tensor", HELPER + more, tmp_path, "torch.as_tensor")) == offered
