"""The form: what stands there already, where its buttons are, and what becomes of an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradkit.notebook import request as notebook_request
from gradkit.notebook.panel import Panel
from gradkit.notebook.parameters import COLUMNS
from gradkit.notebook.parts import shown
from tests.notebook.test_panel import not_chinese, press, problems, text_of


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    monkeypatch.setattr(notebook_request, "notebook_variables", lambda: variables)
    return variables


def on_objects() -> Panel:
    panel = Panel()
    panel.form.kind.value = "objects"
    return panel


def my_loss(output: torch.Tensor, batch: Any) -> torch.Tensor:
    return output.square().mean()


def scale(output: torch.Tensor) -> torch.Tensor:
    return output * 2


def test_diagnose_stands_above_the_form() -> None:
    panel = Panel()
    assert panel.children.index(panel.actions) < panel.children.index(panel.form)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ({"criterion": nn.CrossEntropyLoss(), "act": nn.ReLU()}, "criterion"),
        ({"my_loss": my_loss, "scale": scale}, "my_loss"),
        ({"first_loss": my_loss, "criterion": nn.MSELoss()}, "criterion"),
        ({"scale": scale, "act": nn.ReLU()}, ""),
        ({}, ""),
    ],
)
def test_the_most_likely_loss_is_chosen_already(names: dict[str, Any], chosen: str, notebook: dict[str, Any]) -> None:
    notebook.update(net=nn.Linear(2, 2), batch=torch.ones(1, 2), **names)
    assert on_objects().form.batch.pick_loss.text == chosen


def test_no_loss_is_chosen_for_a_model_that_brings_its_own(notebook: dict[str, Any]) -> None:
    net = nn.Linear(2, 2)
    net.main_input_name = "input_ids"  # type: ignore[assignment]  # as transformers' models have it
    notebook.update(net=net, criterion=nn.CrossEntropyLoss())
    assert on_objects().form.batch.pick_loss.text == ""


def test_a_person_can_choose_none_and_it_stays_so(notebook: dict[str, Any]) -> None:
    notebook.update(net=nn.Linear(2, 2), criterion=nn.CrossEntropyLoss())
    panel = on_objects()
    panel.form.batch.pick_loss.control.value = ""
    panel.form.look_again()
    assert panel.form.batch.pick_loss.text == ""


@pytest.mark.parametrize("turn", ["mode", "kind"])
def test_an_error_goes_when_another_way_is_chosen(turn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    panel = Panel()
    panel.form.kind.value = "file"
    panel.form.source.mode.value = "step"
    panel.form.source.step.control.value = "none.py:step"
    press(panel, panel.diagnose)
    assert problems(panel)
    if turn == "mode":
        panel.form.source.mode.value = "model"
    else:
        panel.form.kind.value = "objects"
    assert problems(panel) == {}


def test_an_error_of_a_run_goes_as_well(notebook: dict[str, Any]) -> None:
    notebook.update(net=nn.Linear(2, 2), batch=torch.ones(1, 3), my_loss=my_loss)
    panel = on_objects()
    press(panel, panel.diagnose)
    assert list(problems(panel)) == ["run"]
    panel.form.kind.value = "builtin"
    assert problems(panel) == {}


def test_the_gradient_stands_right_behind_the_name() -> None:
    assert COLUMNS[:3] == ("name", "gradient", "norm")


BASE = """import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.value(self.query(x))


def build():
    return Base()


def build_frozen():
    return Base().requires_grad_(False)
"""


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Panel:
    """A panel on an adapter that was saved to ``adapter``, the box not ticked."""
    from peft import LoraConfig, get_peft_model

    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.py").write_text(BASE, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(BASE, names)
    get_peft_model(names["build"](), LoraConfig(r=2, target_modules=["query"])).save_pretrained("adapter")
    panel = Panel()
    panel.form.kind.value = "weights"
    source, batch = panel.form.source, panel.form.batch
    source.base.control.value, source.adapter.control.value = "base.py:build", "adapter"
    batch.batch.control.value, batch.loss.control.value = "float32[4, 8]", "output.square().mean()"
    return panel


def test_a_box_that_was_not_ticked_is_named_as_the_cure_and_ticked_by_a_click(adapter: Panel) -> None:
    press(adapter, adapter.diagnose)
    assert not adapter.report.healthy
    assert shown(adapter.box)
    assert "the adapter was loaded without is_trainable=True" in text_of(adapter.box.children[0].value)
    adapter.languages.value = "zh"
    assert not_chinese(adapter) == []
    press(adapter, adapter.box.children[1])
    assert adapter.report.healthy
    assert not shown(adapter.box)


def test_no_box_is_named_where_it_was_ticked_or_something_else_is_at_fault(adapter: Panel) -> None:
    adapter.form.source.trainable.value = True
    adapter.form.batch.loss.control.value = "output.detach().square().mean()"
    press(adapter, adapter.diagnose)
    assert not adapter.report.healthy
    assert not shown(adapter.box)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(2 * 26 * 26, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.conv(x).flatten(1))
        return found


def test_a_proposed_batch_is_tried_and_corrected_with_labels_for_the_loss(notebook: dict[str, Any]) -> None:
    notebook.update(net=Pictures(), criterion=nn.CrossEntropyLoss())
    panel = on_objects()
    press(panel, panel.form.batch.propose)
    assert panel.form.batch.made.text == "float32[4, 1, 28, 28]; int64[4]<10"
    assert "it runs" in text_of(panel.form.batch.passes.value)
    assert problems(panel) == {}
    press(panel, panel.diagnose)
    assert panel.report.healthy


def test_a_proposal_that_does_not_pass_says_why_in_both_languages(notebook: dict[str, Any]) -> None:
    class Refuses(Pictures):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("ragged lists only")

    notebook.update(net=Refuses())
    panel = on_objects()
    press(panel, panel.form.batch.propose)
    assert panel.form.batch.made.text.startswith("float32[4, 1,")
    assert "ragged lists only" in panel.form.problems["batch"].value
    assert not shown(panel.form.batch.passes)
    panel.languages.value = "zh"
    assert not_chinese(panel) == []
