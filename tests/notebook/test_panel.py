"""The panel, by the state of its widgets: what a browser shows follows from that."""

from __future__ import annotations

import dataclasses
import linecache
import math
import os
import re
import runpy
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import ipywidgets
import pytest
import torch
from torch import nn

import gradkit
from gradkit.core import i18n
from gradkit.core.records import Parameter
from gradkit.notebook import panel_run
from gradkit.notebook import request as notebook_request
from gradkit.notebook.accessibility import Accessibility
from gradkit.notebook.graph_view import GraphView
from gradkit.notebook.panel import Panel
from gradkit.notebook.parameters import Table
from gradkit.notebook.parts import Sheet, shown
from gradkit.report.report import Report

CJK = re.compile(r"[\u4e00-\u9fff]")
PROSE = re.compile(r"\b[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}\b")

TRAIN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.encoder(x).detach())


def build_model():
    return Net()


def make_batch():
    return {"x": torch.ones(3, 4)}


def make_wide_batch():
    return {"x": torch.ones(3, 9)}


def loss_fn(output, batch):
    return output.square().mean()


model = Net()


def step():
    return model(torch.ones(3, 4)).square().mean()
"""


class Net(nn.Module):
    """Counts its runs, and loses the gradient of its encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head, self.runs = nn.Linear(4, 4), nn.Linear(4, 2), SimpleQueue()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs.put(1)
        return self.head(self.encoder(x).detach())


def square(output: torch.Tensor, batch: Any) -> torch.Tensor:
    return output.square().mean()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The variables of the notebook that the panel is in."""
    variables: dict[str, Any] = {}
    monkeypatch.setattr(notebook_request, "notebook_variables", lambda: variables)
    return variables


@pytest.fixture(autouse=True, scope="module")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Examples are copied into the current folder: that is not the repository."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("work"))
    yield
    os.chdir(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a ``train.py`` in it."""
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def press(panel: Panel, button: ipywidgets.Button) -> None:
    """Click, and wait for the end of what it began."""
    button.click()
    if panel.job is not None:
        panel.job.wait(60)
    assert panel.job is None


def diagnosed(**given: Any) -> Panel:
    panel = Panel(**given)
    press(panel, panel.diagnose)
    return panel


def by_example(name: str) -> Panel:
    panel = Panel()
    panel.form.source.names.value = f"{name}.title"
    press(panel, panel.diagnose)
    return panel


def by_file(panel: Panel, **texts: str) -> Panel:
    """Fill in the form for Python files."""
    panel.form.kind.value = "file"
    source, batch = panel.form.source, panel.form.batch
    source.mode.value = "step" if "step" in texts else "model"
    entries = {"step": source.step, "model": source.model, "batch": batch.batch, "loss": batch.loss}
    for name, text in texts.items():
        entries[name].control.value = text
    return panel


def by_step() -> Panel:
    """The step of ``train.py`` in the current folder, diagnosed."""
    panel = by_file(Panel(), step="train.py:step")
    press(panel, panel.diagnose)
    return panel


def text_of(html: str) -> str:
    """What a person reads of some HTML, code left out."""
    prose = re.sub(r"<(style|pre|code)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", prose))


def visible(widget: Any) -> Iterator[str]:
    """Every string that can be read on a widget and what is in it, tooltips and names for screen readers included."""
    if isinstance(widget, Accessibility):
        yield from (widget.label, widget.said)
    if not shown(widget):
        return
    if isinstance(widget, GraphView):
        yield from widget.labels.values()
        yield " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", widget.svg))
        for card in widget.node_info.values():
            yield from (card["title"], card["state"], *card["why"], *(row[0] for row in card["rows"]))
    elif isinstance(widget, ipywidgets.Box):
        for child in widget.children:
            yield from visible(child)
    elif isinstance(widget, (ipywidgets.HTML, Sheet)):
        html = widget.html if isinstance(widget, Sheet) else widget.value
        yield text_of(html)
        yield from (unescape(title) for title in re.findall(r'(?:title|aria-label|alt)="([^"]*)"', html))
    else:
        yield from (widget.description or "", widget.tooltip or "", getattr(widget, "placeholder", "") or "")
        if isinstance(widget, ipywidgets.Dropdown):
            yield from (label for label, _ in widget.options)


def nameless(widget: Any) -> list[Any]:
    """The controls that can be seen and have neither a name nor a hint."""
    if isinstance(widget, ipywidgets.Box):
        return [found for child in widget.children if shown(child) for found in nameless(child)]
    controls = (ipywidgets.Button, ipywidgets.Checkbox, ipywidgets.Text, ipywidgets.Combobox, ipywidgets.Dropdown)
    named = not isinstance(widget, controls) or widget.description or getattr(widget, "placeholder", "")
    return [] if named else [widget]


def not_chinese(panel: Panel) -> list[str]:
    return [text for text in visible(panel) if PROSE.search(text) and not CJK.search(text)]


def not_english(panel: Panel) -> list[str]:
    return [text for text in visible(panel) if CJK.search(text.replace("中文", ""))]


def read(panel: Panel) -> str:
    return "\n".join(visible(panel))


# -- loading --------------------------------------------------------------------------------------------------------


def test_a_built_in_example_is_diagnosed_by_one_click() -> None:
    panel = by_example("vision_memory_detached")
    assert [finding.cause for finding in panel.report.findings] == ["detach"]
    assert "attempts.py:59" in panel.results.findings.verdict.value


def test_a_step_in_a_file_is_diagnosed(folder: Path) -> None:
    panel = by_step()
    assert panel.report.findings[0].location.text.strip() == "return self.head(self.encoder(x).detach())"


def test_a_model_a_batch_and_a_loss_in_a_file_are_diagnosed(folder: Path) -> None:
    panel = by_file(Panel(), model="train.py:build_model", batch="train.py:make_batch", loss="train.py:loss_fn")
    press(panel, panel.diagnose)
    assert panel.report.findings[0].cause == "detach"


def test_what_was_loaded_is_shown_before_it_is_run(folder: Path) -> None:
    panel = by_file(Panel(), model="train.py:build_model", batch="train.py:make_batch", loss="train.py:loss_fn")
    press(panel, panel.load)
    card = text_of(panel.card.text.value)
    assert "30 values in the parameters, 30 of them trainable" in card
    assert re.search(r"x\s+\[3, 4\]\s+float32\s+cpu", card)
    assert panel.report is None


def test_a_state_dict_goes_into_a_model_from_a_file(folder: Path) -> None:
    wanted = {name: torch.full_like(value, 0.5) for name, value in Net().state_dict().items()}
    torch.save(wanted, folder / "weights.pt")
    panel = Panel()
    panel.form.kind.value = "weights"
    source, batch = panel.form.source, panel.form.batch
    source.base.control.value, source.weights.control.value = "train.py:build_model", "weights.pt"
    batch.batch.control.value, batch.loss.control.value = "train.py:make_batch", "train.py:loss_fn"
    press(panel, panel.load)
    assert all((value == 0.5).all() for value in panel.loaded.step.model.state_dict().values())


def test_the_objects_of_the_notebook_are_offered_by_name(notebook: dict[str, Any]) -> None:
    notebook.update(net=Net(), activation=nn.ReLU(), batch=torch.ones(2, 4), square=square, three=3, _x=torch.ones(1))
    panel = Panel()
    panel.form.kind.value = "objects"
    source, batch = panel.form.source, panel.form.batch
    assert [name for _, name in source.model.control.options] == ["", "net"]
    assert [name for _, name in batch.pick_batch.control.options] == ["", "batch"]
    assert [name for _, name in batch.pick_loss.control.options] == ["", "square", "activation"]
    batch.pick_loss.control.value = "square"
    press(panel, panel.diagnose)
    assert panel.report.label == "net"


def test_objects_made_later_are_offered_after_looking_again(notebook: dict[str, Any]) -> None:
    panel = Panel()
    panel.form.kind.value = "objects"
    notebook["net"] = Net()
    panel.form.source.look_again()
    assert panel.form.source.model.text == "net"


def test_a_panel_can_be_opened_on_objects(notebook: dict[str, Any]) -> None:
    panel = diagnosed(model=Net(), batch=torch.ones(2, 4), loss=square)
    assert panel.report.findings[0].parameters == ("encoder.weight", "encoder.bias")


def test_a_panel_can_be_opened_on_a_step(notebook: dict[str, Any]) -> None:
    net = Net()
    panel = diagnosed(step=lambda: square(net(torch.ones(2, 4)), None))
    assert panel.report.findings[0].cause == "detach"


def test_a_model_that_was_made_anew_under_its_name_is_the_one_that_is_diagnosed(notebook: dict[str, Any]) -> None:
    notebook.update(net=Net(), batch=torch.ones(2, 4))
    panel = Panel(notebook["net"], notebook["batch"], loss=square)
    press(panel, panel.diagnose)
    notebook["net"] = second = Net()
    press(panel, panel.diagnose)
    assert panel.loaded.step.model is second


def test_an_optimizer_of_another_model_is_found_out(notebook: dict[str, Any]) -> None:
    notebook["net"] = net = nn.Linear(4, 2)
    notebook["optimizer"] = torch.optim.SGD(nn.Linear(4, 2).parameters(), lr=0.1)
    panel = diagnosed(model=net, batch=torch.ones(2, 4), loss=square, optimizer=notebook["optimizer"])
    assert not panel.report.healthy


def test_gradients_switched_off_in_the_notebook_are_off_in_the_panel(notebook: dict[str, Any]) -> None:
    torch.set_grad_enabled(False)
    panel = diagnosed(model=nn.Linear(4, 2), batch=torch.ones(2, 4), loss=square)
    assert [finding.cause for finding in panel.report.findings] == ["grad_disabled_globally"]


def test_a_batch_that_fits_the_model_is_proposed_and_diagnosed(notebook: dict[str, Any]) -> None:
    notebook["net"] = Net()
    panel = Panel()
    panel.form.kind.value = "objects"
    press(panel, panel.form.batch.propose)
    assert panel.form.batch.made.text == "float32[4, 4]"
    panel.form.batch.said.control.value = "output.square().mean()"
    press(panel, panel.diagnose)
    assert [finding.cause for finding in panel.report.findings] == ["detach"]


def test_a_batch_is_proposed_for_a_model_in_a_file(folder: Path) -> None:
    panel = by_file(Panel(), model="train.py:build_model", loss="train.py:loss_fn")
    press(panel, panel.form.batch.propose)
    assert panel.form.batch.batch.text == "float32[4, 4]"
    press(panel, panel.diagnose)
    assert [finding.cause for finding in panel.report.findings] == ["detach"]


def test_a_model_that_says_nothing_of_its_input_is_told_so_beside_the_batch(notebook: dict[str, Any]) -> None:
    notebook["scale"] = nn.ParameterList([torch.ones(2)])
    panel = Panel()
    panel.form.kind.value = "objects"
    press(panel, panel.form.batch.propose)
    assert "x=float32[4, 3]" in panel.form.problems["batch"].value


def test_a_line_that_describes_no_batch_is_told_beside_the_batch(folder: Path) -> None:
    panel = by_file(Panel(), model="train.py:build_model", batch="x=floaty[2]", loss="mse_loss")
    press(panel, panel.diagnose)
    assert "floaty" in panel.form.problems["batch"].value


def test_patterns_choose_what_should_train(notebook: dict[str, Any]) -> None:
    panel = Panel(Net(), torch.ones(2, 4), loss=square)
    panel.form.batch.should_train.control.value = "head.*"
    press(panel, panel.diagnose)
    assert panel.report.healthy


def test_proposals_name_functions_and_files_without_running_them(folder: Path) -> None:
    (folder / "explodes.py").write_text("def step(): ...\nraise SystemExit\n", encoding="utf-8")
    (folder / "batch.npz").write_bytes(b"")
    panel = by_file(Panel(), model="")
    assert {"train.py:step", "explodes.py:step"} <= set(panel.form.source.model.control.options)
    assert "batch.npz" in panel.form.batch.batch.control.options


def test_a_file_that_was_changed_is_loaded_again(folder: Path) -> None:
    panel = by_step()
    assert not panel.report.healthy
    (folder / "train.py").write_text(TRAIN.replace(".detach()", ""), encoding="utf-8")
    press(panel, panel.diagnose)
    assert panel.report.healthy


# -- what can go wrong ----------------------------------------------------------------------------------------------


def problems(panel: Panel) -> dict[str, str]:
    """The errors on the screen, by where they stand."""
    places = {**panel.form.problems, "run": panel.problem}
    return {name: text_of(problem.value).strip() for name, problem in places.items() if shown(problem)}


@pytest.mark.parametrize(
    ("texts", "place", "says"),
    [
        ({"step": "none.py:step"}, "source", ("No such file: none.py", "找不到文件")),
        ({"step": "train.py:walk"}, "source", ("train.py has no walk", "walk")),
        ({"model": "train.py:make_batch"}, "source", ("not a torch.nn.Module", "不是 torch.nn.Module")),
        ({"model": "train.py:build_model"}, "batch", ("needs a batch", "批次")),
        ({"model": "train.py:build_model", "batch": "none.pt"}, "batch", ("No such file: none.pt", "找不到文件")),
        (
            {"model": "train.py:build_model", "batch": "train.py:make_batch", "loss": "train.py:none"},
            "batch",
            ("train.py has no none", "none"),
        ),
        (
            {"model": "train.py:build_model", "batch": "train.py:make_wide_batch", "loss": "train.py:loss_fn"},
            "run",
            ("stopped at a shape", "形状"),
        ),
        ({"model": "train.py:build_model", "batch": "train.py:make_batch"}, "batch", ("holds no loss", "loss")),
    ],
)  # fmt: skip
def test_an_error_stands_where_it_belongs_in_both_languages(
    folder: Path, texts: dict[str, str], place: str, says: tuple[str, str]
) -> None:
    panel = by_file(Panel(), **texts)
    press(panel, panel.diagnose)
    assert list(problems(panel)) == [place]
    assert says[0] in problems(panel)[place]
    panel.languages.value = "zh"
    assert says[1] in problems(panel)[place]
    assert not_chinese(panel) == []


def test_a_shape_that_does_not_fit_shows_the_batch(folder: Path) -> None:
    panel = by_file(Panel(), model="train.py:build_model", batch="train.py:make_wide_batch", loss="train.py:loss_fn")
    press(panel, panel.diagnose)
    assert "x: float32 [3, 9]" in unescape(panel.problem.value)


def test_nothing_chosen_is_told(notebook: dict[str, Any]) -> None:
    panel = Panel()
    panel.form.kind.value = "objects"
    press(panel, panel.diagnose)
    assert "Nothing is chosen yet" in problems(panel)["source"]


def test_a_variable_that_is_gone_is_told(notebook: dict[str, Any]) -> None:
    notebook["net"] = Net()
    panel = Panel()
    panel.form.kind.value = "objects"
    notebook.clear()
    press(panel, panel.diagnose)
    assert "no variable net" in problems(panel)["source"]


def test_what_nobody_foresaw_is_one_sentence_and_a_folded_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("<b>boom</b>")

    monkeypatch.setattr(panel_run, "diagnose_asked", fail)
    panel = by_example("vision_memory_fixed")
    assert "did not foresee" in problems(panel)["run"]
    assert "&lt;b&gt;boom&lt;/b&gt;" in panel.problem.value
    assert re.search(r"<details><summary>Traceback</summary>.*in fail", panel.problem.value, re.DOTALL)


def test_a_pattern_that_matches_nothing_is_told_beside_the_patterns(notebook: dict[str, Any]) -> None:
    panel = Panel(Net(), torch.ones(2, 4), loss=square)
    panel.form.batch.should_train.control.value = "decoder.*"
    press(panel, panel.diagnose)
    assert "No parameter of the model matches decoder.*" in problems(panel)["batch"]


def test_an_error_goes_away_with_the_next_try(folder: Path) -> None:
    panel = by_file(Panel(), step="none.py:step")
    press(panel, panel.diagnose)
    panel.form.source.step.control.value = "train.py:step"
    press(panel, panel.diagnose)
    assert problems(panel) == {}


# -- what is shown --------------------------------------------------------------------------------------------------


def test_a_sound_model_gets_a_clean_bill_and_no_guide() -> None:
    panel = by_example("vision_memory_fixed")
    assert "gkp-good" in panel.results.findings.verdict.value
    assert "Healthy" in text_of(panel.results.findings.verdict.value)
    assert not shown(panel.results.tabs.buttons["guide"])


def test_several_findings_are_told_to_be_several() -> None:
    first, second, third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
    model = nn.ModuleList([first, second, third])

    def step() -> torch.Tensor:
        hidden = first(torch.ones(2, 4)).detach()
        hidden = second(hidden).data
        return third(hidden).sum()

    panel = diagnosed(model=model, step=step)
    results = panel.results
    assert len(results.findings.cards.children) == 2
    assert "2 things to change" in read(panel)
    assert [button.description.split()[1] for button in results.guide.stops.children] == ["data_attr", "detach"]


def test_the_code_of_a_finding_is_shown_with_its_line() -> None:
    panel = by_example("vision_memory_detached")
    card = panel.results.findings.cards.children[0].children[0].value
    assert '<span class="gk-hit">.detach()</span>' in card
    assert "attempts.py:59" in card


def test_a_finding_can_be_shown_in_the_picture() -> None:
    panel = by_example("vision_memory_detached")
    panel.results.tabs.value = "table"
    _, buttons = panel.results.findings.cards.children[0].children
    buttons.children[1].click()
    chosen = panel.results.view.node_info[panel.results.view.selected]
    assert panel.results.tabs.value == "picture"
    assert chosen["place"] == "attempts.py:59"


def test_after_a_diagnosis_the_form_is_one_line_and_comes_back_as_it_was_filled_in(folder: Path) -> None:
    panel = by_step()
    assert (shown(panel.form), shown(panel.summary)) == (False, True)
    panel.change.click()
    assert (shown(panel.form), shown(panel.summary)) == (True, False)
    assert panel.form.source.step.text == "train.py:step"


def test_what_was_found_is_shown_only_beside_the_form_that_it_was_found_for(folder: Path) -> None:
    panel = by_step()
    panel.change.click()
    panel.form.source.step.control.value = "train.py:st"
    assert not shown(panel.results)
    panel.form.source.step.control.value = "train.py:step"
    assert shown(panel.results)


def test_what_was_found_before_does_not_stand_beside_an_error(folder: Path) -> None:
    panel = by_step()
    (folder / "train.py").write_text("1 / 0", encoding="utf-8")
    press(panel, panel.diagnose)
    assert "could not be imported" in problems(panel)["source"]
    assert (shown(panel.results), shown(panel.form)) == (False, True)


def test_looking_at_another_source_loses_nothing(folder: Path, notebook: dict[str, Any]) -> None:
    panel = by_file(Panel(), model="train.py:build_model", batch="b.pt")
    for kind in ("builtin", "objects", "weights", "file"):
        panel.form.kind.value = kind
    request = panel.form.request()
    assert request.named == {"model": "train.py:build_model", "batch": "b.pt"}


# -- pages that run no widgets --------------------------------------------------------------------------------------


def test_a_page_without_widgets_is_told_how_to_get_a_report() -> None:
    still = Panel(language="en")._repr_mimebundle_()
    assert "gradkit.diagnose(model, batch)" in text_of(still["text/html"])
    assert "gradkit.diagnose(model, batch)" in still["text/plain"]


def test_a_page_without_widgets_shows_the_last_report_with_its_picture() -> None:
    panel = by_example("vision_memory_detached")
    still = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in still
    assert still["text/html"] == panel.report.cell("en")
    assert "data:image/png" in still["text/html"]
    assert still["text/plain"] == panel.report.text("en")


def test_a_plain_python_prompt_shows_a_line() -> None:
    assert repr(Panel()) == "<gradkit.Panel: nothing diagnosed yet>"
    assert "attempts.py:59" in repr(by_example("vision_memory_detached"))


# -- the table ------------------------------------------------------------------------------------------------------


def test_parameters_that_should_train_and_do_not_come_first() -> None:
    table = by_example("vision_memory_detached").results.parameters.table
    assert [row.name for row in table.found[:2]] == ["proj.0.weight", "proj.0.bias"]
    assert text_of(table.body.html).count("should train, none arrives") == 4


def test_the_table_is_filtered_by_name_and_by_gradient() -> None:
    panel = diagnosed(model=Net(), batch=torch.ones(2, 4), loss=square)
    table = panel.results.parameters.table
    table.state.value = "missing"
    assert [row.name for row in table.found] == ["encoder.weight", "encoder.bias"]
    table.search.value = "BIAS"
    assert [row.name for row in table.found] == ["encoder.bias"]
    table.state.value = ""
    assert [row.name for row in table.found] == ["encoder.bias", "head.bias"]
    table.search.value = "nothing of the kind"
    assert "No parameter matches" in text_of(table.body.html)


def test_thousands_of_parameters_come_in_pages() -> None:
    panel = by_example("vision_memory_fixed")
    table, row = panel.results.parameters.table, panel.report.parameters[0]
    table.show([row] * 5000)
    assert len(table.body.html) < 20_000
    assert "1 – 15 of 5,000" in text_of(table.count.value)
    table.next.click()
    assert "16 – 30 of 5,000" in text_of(table.count.value)
    table.back.click()
    assert table.back.disabled


def rows_of(*facts: dict[str, Any]) -> list[Parameter]:
    plain = Parameter("w", (2,), 2, "float32", True, True, True, True, True, 1.0, "Linear")
    return [dataclasses.replace(plain, **one) for one in facts]


def order_of(table: Table, column: str) -> list[str]:
    table.body.press(f"sort:{column}")
    return [row.name for row in table.found]


def test_a_click_on_the_head_of_a_column_sorts_by_it_and_another_one_the_other_way_round() -> None:
    table = Table()
    table.show(rows_of({"name": "h.10.w", "shape": (3,), "numel": 3}, {"name": "h.9.w", "shape": (9,), "numel": 9}))
    assert order_of(table, "name") == ["h.9.w", "h.10.w"]
    assert 'aria-sort="ascending"><button type="button" class="gkp-sort" data-press="sort:name"' in table.body.html
    assert order_of(table, "name") == ["h.10.w", "h.9.w"]
    assert 'aria-sort="descending"><button type="button" class="gkp-sort" data-press="sort:name"' in table.body.html
    assert order_of(table, "shape") == ["h.10.w", "h.9.w"]
    assert table.body.html.count('aria-sort="none"') == 5


def test_every_column_sorts() -> None:
    table = Table()
    rows = rows_of({"name": "a", "requires_grad": False}, {"name": "b", "training": False}, {"name": "c", "used": False,
                   "reached": False, "grad_norm": None}, {"name": "d", "grad_norm": 0.5})  # fmt: skip
    table.show(rows)
    assert order_of(table, "trainable")[-1] == "a"
    assert order_of(table, "mode")[-1] == "b"
    assert order_of(table, "gradient")[0] == "c"
    assert order_of(table, "norm") == ["d", "a", "b", "c"]
    assert order_of(table, "norm") == ["a", "b", "d", "c"]


def test_a_gradient_that_is_no_number_counts_as_the_largest() -> None:
    table = Table()
    table.show(rows_of({"name": "nan", "grad_norm": math.nan}, {"name": "small"}))
    assert order_of(table, "norm") == ["small", "nan"]


def test_the_table_is_filtered_by_state_by_requires_grad_and_by_module() -> None:
    table = Table()
    frozen = {"requires_grad": False, "should_train": False, "reached": False, "grad_norm": None}
    table.show(rows_of({"name": "base.w", **frozen}, {"name": "proj.w"}, {"name": "proj.b", **frozen}))
    table.module.value = "proj"
    assert [row.name for row in table.found] == ["proj.w", "proj.b"]
    table.trainable.value = "frozen"
    assert [row.name for row in table.found] == ["proj.b"]
    table.module.value = ""
    table.state.value = "frozen"
    assert [row.name for row in table.found] == ["base.w", "proj.b"]
    table.state.value = "reached"
    assert table.found == []


def test_a_change_of_language_keeps_order_filters_and_page() -> None:
    table = Table()
    table.show(rows_of(*({"name": f"h.{at}.w"} for at in range(40))))
    table.body.press("sort:name")
    table.body.press("sort:name")
    table.state.value = "reached"
    table.next.click()
    shown_before = re.findall(r"h\.<wbr>\d+", table.body.html)
    table.speak("zh")
    assert re.findall(r"h\.<wbr>\d+", table.body.html) == shown_before
    assert table.state.value == "reached"
    assert CJK.search(text_of(table.body.html))


def test_modules_open_in_place_and_lead_to_their_parameters() -> None:
    panel = by_example("vision_memory_detached")
    panel.results.tabs.value, page = "table", panel.results.parameters
    page.ways.value = "modules"
    assert (shown(page.table), shown(page.by_module)) == (False, True)
    paths = [share.path for share in page.by_module.seen]
    assert "proj" in paths
    assert "proj.0" not in paths
    assert "✗ no gradient" in read(panel)
    page.by_module.body.press("open:proj")
    assert "proj.0" in [share.path for share in page.by_module.seen]
    page.by_module.body.press("open:proj")
    assert "proj.0" not in [share.path for share in page.by_module.seen]
    page.by_module.body.press("list:proj")
    assert page.ways.value == "list"
    assert {row.name for row in page.table.found} == {"proj.0.weight", "proj.0.bias", "proj.2.weight", "proj.2.bias"}


def test_a_module_of_thousands_is_shown_in_part_and_says_so() -> None:
    panel = by_example("vision_memory_fixed")
    by_module = panel.results.parameters.by_module
    rows = rows_of(*({"name": f"experts.{at}.weight"} for at in range(2000)))
    by_module.show(dataclasses.replace(panel.report, parameters=tuple(rows)))
    assert len(by_module.body.html) < 400_000
    assert "and 1,701 more" in text_of(by_module.body.html)


# -- the guide ------------------------------------------------------------------------------------------------------


def test_the_guide_is_walked_to_its_end_and_ends_in_another_diagnosis() -> None:
    panel = by_example("vision_memory_detached")
    walk, buttons = panel.results.guide, panel.results.findings.cards.children[0].children[1]
    buttons.children[0].click()
    assert panel.results.tabs.value == "guide"
    titles = []
    while shown(walk.next):
        titles.append(re.search(r"<h4>(.*?)</h4>", walk.head.value)[1])
        walk.next.click()
    assert len(set(titles)) == 5
    assert shown(walk.again)
    first = panel.report
    press(panel, walk.again)
    assert panel.report is not first


def test_the_walk_shows_the_persons_own_line_and_the_change_to_it(folder: Path) -> None:
    panel = by_step()
    walk = panel.results.guide
    walk.go(2)
    assert "self.encoder(x)" in walk.mine.value
    assert not shown(walk.change)
    walk.go(3)
    assert shown(walk.change)
    assert "gk-minus" in walk.change.body.value
    assert walk.change.write.description == "Write it into train.py"


def test_the_change_is_written_on_request_and_the_next_diagnosis_is_healthy(folder: Path) -> None:
    panel = by_step()
    walk = panel.results.guide
    walk.go(3)
    assert (folder / "train.py").read_text(encoding="utf-8") == TRAIN
    walk.change.write.click()
    assert (folder / "train.py").read_text(encoding="utf-8") == TRAIN.replace(".detach()", "")
    assert (folder / "train.py.before-gradkit").read_text(encoding="utf-8") == TRAIN
    press(panel, walk.change.again)
    assert panel.report.healthy
    assert panel.results.tabs.value == "compare"
    assert "2 of the 4" in panel.results.compare.before.value
    assert "4 of the 4" in panel.results.compare.after.value
    assert "2 more parameters" in panel.results.compare.words.value
    assert "no longer found: detach" in panel.results.compare.words.value
    before, after = (
        re.sub("<[^>]*>", "", side.value) for side in (panel.results.compare.before, panel.results.compare.after)
    )
    changed = next(line.strip() for line in TRAIN.splitlines() if ".detach()" in line)
    assert re.search(rf"\d+ - +{re.escape(changed)}", before)
    assert re.search(rf"\d+ \+ +{re.escape(changed.replace('.detach()', ''))}", after)


def test_a_written_change_is_taken_back_also_after_the_next_diagnosis(folder: Path) -> None:
    panel = by_step()
    walk = panel.results.guide
    walk.go(3)
    walk.change.write.click()
    press(panel, walk.change.again)
    walk.change.undo.click()
    assert (folder / "train.py").read_text(encoding="utf-8") == TRAIN
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]
    press(panel, walk.again)
    assert not panel.report.healthy


def test_a_file_that_was_changed_meanwhile_is_not_written_and_says_so(folder: Path) -> None:
    panel = by_step()
    walk = panel.results.guide
    walk.go(3)
    mine = TRAIN.replace("(x).detach()", "(x).detach() * 1")
    (folder / "train.py").write_text(mine, encoding="utf-8")
    walk.change.write.click()
    assert shown(walk.change.problem)
    assert (folder / "train.py").read_text(encoding="utf-8") == mine


def test_after_the_cure_the_checklist_says_that_the_finding_is_gone(folder: Path) -> None:
    panel = by_step()
    walk = panel.results.guide
    walk.go(4)
    assert "✗" in walk.mine.value
    (folder / "train.py").write_text(TRAIN.replace(".detach()", ""), encoding="utf-8")
    press(panel, panel.diagnose)
    assert walk.stop.cured
    assert walk.number == 4
    assert "no longer finds this" in walk.mine.value
    assert "✗" not in walk.mine.value


def test_how_far_one_came_is_kept_for_each_finding(folder: Path) -> None:
    twice = """x = self.encoder(x).detach()
        with torch.no_grad():
            x = self.head(x)
        return x * self.scale"""
    text = TRAIN.replace("return self.head(self.encoder(x).detach())", twice)
    text = text.replace("self.head = nn", "self.scale = nn.Parameter(torch.ones(()))\n        self.head = nn")
    (folder / "train.py").write_text(text, encoding="utf-8")
    panel = by_step()
    walk = panel.results.guide
    assert len(walk.stops.children) >= 2
    first = walk.stop
    walk.go(2)
    walk.stops.children[1].click()
    assert walk.stop is not first
    assert walk.number == 0
    walk.stops.children[0].click()
    assert walk.number == 2


def test_another_program_begins_anew(folder: Path) -> None:
    panel = by_step()
    panel.results.guide.go(3)
    panel.form.kind.value = "builtin"
    panel.form.source.names.value = "vision_memory_detached.title"
    press(panel, panel.diagnose)
    assert panel.results.guide.number == 0
    assert not shown(panel.results.tabs.buttons["compare"])


def test_code_in_a_cell_is_changed_by_hand_where_no_page_can_write_into_it(notebook: dict[str, Any]) -> None:
    cell = "/tmp/ipykernel_1/7.py"  # as IPython names it; there is no such file
    source = "def step():\n    return model(x).detach().sum() * model.weight.sum()\n"
    names = {"model": nn.Linear(2, 1), "x": torch.ones(1, 2)}
    linecache.cache[cell] = (len(source), None, source.splitlines(keepends=True), cell)
    exec(compile(source, cell, "exec"), names)
    panel = diagnosed(step=names["step"], model=names["model"])
    walk = panel.results.guide
    walk.go(3)
    assert shown(walk.change)
    assert not shown(walk.change.write)
    assert "Make the change in the cell by hand" in walk.change.note.value
    assert "at notebook cell:2" in walk.change.body.value


def test_a_proof_in_a_guide_is_folded_and_a_difference_is_coloured() -> None:
    walk = by_example("vision_memory_detached").results.guide
    walk.go(0)
    assert re.search(
        r'<details class="gkp-proof"><summary>✓ checked by <code>experiment_\w+</code></summary><pre', walk.page.value
    )
    walk.go(3)
    assert walk.page.value.count("gkp-minus") == walk.page.value.count("gkp-plus") == 2


# -- two languages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["builtin", "file", "objects", "weights"])
def test_every_word_of_the_form_changes_with_the_language(kind: str, notebook: dict[str, Any]) -> None:
    panel = Panel()
    panel.form.kind.value = kind
    assert nameless(panel) == []
    assert not_english(panel) == []
    panel.languages.buttons["zh"].click()
    assert not_chinese(panel) == []
    panel.languages.buttons["en"].click()
    assert not_english(panel) == []


@pytest.mark.parametrize("tab", ["picture", "table", "modules", "guide"])
def test_every_word_of_the_results_changes_with_the_language(tab: str) -> None:
    panel = by_example("vision_memory_never_called")
    if tab == "modules":
        panel.results.parameters.ways.value, tab = tab, "table"
    panel.results.tabs.value = tab
    assert nameless(panel) == []
    assert not_english(panel) == []
    panel.languages.buttons["zh"].click()
    assert not_chinese(panel) == []
    assert len(CJK.findall(read(panel))) > 100


def test_what_nobody_foresaw_is_told_in_the_language_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_run, "diagnose_asked", lambda *_: 1 / 0)
    panel = by_example("vision_memory_fixed")
    assert not_english(panel) == []
    panel.languages.buttons["zh"].click()
    assert not_chinese(panel) == []
    assert "没有预料到" in problems(panel)["run"]


def test_every_word_of_a_running_diagnosis_changes_with_the_language(notebook: dict[str, Any]) -> None:
    model = Endless(stubborn=False)
    panel = Panel(model, torch.rand(3, 4), loss=square)
    panel.diagnose.click()
    job = panel.job
    assert model.began.wait(20)
    panel.languages.buttons["zh"].click()
    assert "运行 step" in read(panel)
    assert not_chinese(panel) == []
    panel.cancel.click()
    assert "正在取消" in read(panel) or panel.job is None
    job.wait(20)
    assert not_chinese(panel) == []


def test_what_a_screen_reader_was_told_changes_with_the_language() -> None:
    panel = by_example("vision_memory_detached")
    panel.languages.buttons["zh"].click()
    assert panel.manners.said == panel.report.verdict("zh")


def test_a_change_of_language_runs_nothing_and_moves_nothing(notebook: dict[str, Any]) -> None:
    net = Net()
    panel = diagnosed(model=net, batch=torch.ones(2, 4), loss=square)
    results = panel.results
    results.view.selected = chosen = next(number for number, card in results.view.node_info.items() if card["code"])
    results.tabs.value = "guide"
    results.guide.go(3)
    runs = net.runs.qsize()
    panel.languages.buttons["zh"].click()
    assert (results.view.selected, results.tabs.value, results.guide.number) == (chosen, "guide", 3)
    assert "只对写日志的副本做 detach" in results.guide.head.value
    assert net.runs.qsize() == runs > 0


def test_what_a_click_writes_is_in_the_language_of_its_own_panel() -> None:
    first = Panel(language="zh").results.parameters.table
    second = Panel(language="en").results.parameters.table
    for table in (first, second):
        table.show(rows_of({"name": "w"}))
        table.body.press("sort:name")
    assert CJK.search(text_of(first.body.html))
    assert not CJK.search(text_of(second.body.html))


def test_the_language_chosen_on_the_panel_is_that_of_what_is_typed_next() -> None:
    panel = Panel(language="en")
    panel.languages.buttons["zh"].click()
    assert i18n.language() == "zh"


# -- cancelling -----------------------------------------------------------------------------------------------------


class Endless(nn.Module):
    """Changes what it can and never comes back."""

    def __init__(self, *, stubborn: bool) -> None:
        super().__init__()
        self.norm, self.stubborn, self.began = nn.BatchNorm1d(4), stubborn, threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.norm.eval().requires_grad_(False)
        with torch.no_grad():
            self.norm.weight.add_(torch.rand(4))
        while True:
            try:
                x = self.norm(x)
                self.began.set()
            except BaseException:
                if self.stubborn:
                    return x
                raise


@pytest.mark.parametrize("stubborn", [False, True])
def test_cancel_ends_a_forward_pass_and_leaves_the_model_as_it_was(stubborn: bool, notebook: dict[str, Any]) -> None:
    model = Endless(stubborn=stubborn)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    panel = Panel(model, torch.rand(3, 4), loss=square)
    random = torch.get_rng_state()
    panel.diagnose.click()
    job = panel.job
    assert model.began.wait(20)
    assert (shown(panel.cancel), shown(panel.diagnose)) == (True, False)
    panel.cancel.click()
    job.wait(20)
    assert panel.job is None
    assert "Cancelled" in read(panel)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.norm.training
    assert model.norm.weight.requires_grad
    assert torch.equal(torch.get_rng_state(), random)
    assert panel.report is None


def test_cancel_ends_a_file_that_takes_forever_to_load(folder: Path) -> None:
    (folder / "slow.py").write_text("import time\nwhile True:\n    time.sleep(0.001)\n", encoding="utf-8")
    panel = by_file(Panel(), step="slow.py:step")
    panel.diagnose.click()
    job = panel.job
    job.wait(0.2)
    panel.cancel.click()
    job.wait(20)
    assert "Cancelled" in read(panel)
    assert problems(panel) == {}


def test_after_a_cancel_the_next_diagnosis_comes_through(folder: Path) -> None:
    test_cancel_ends_a_file_that_takes_forever_to_load(folder)
    panel = by_step()
    assert panel.report is not None


def test_a_second_click_while_it_runs_starts_nothing(notebook: dict[str, Any]) -> None:
    model = Endless(stubborn=False)
    panel = Panel(model, torch.rand(3, 4), loss=square)
    panel.diagnose.click()
    job = panel.job
    panel.diagnose.click()
    assert panel.job is job
    panel.cancel.click()
    panel.cancel.click()
    job.wait(20)
    assert panel.job is None


def test_the_stages_are_told_while_it_runs(notebook: dict[str, Any]) -> None:
    model = Endless(stubborn=False)
    panel = Panel(model, torch.rand(3, 4), loss=square)
    panel.diagnose.click()
    job = panel.job
    assert model.began.wait(20)
    assert '<li class="gkp-current">Run the step</li>' in panel.progress.line.value
    panel.languages.buttons["zh"].click()
    assert '<li class="gkp-current">运行 step</li>' in panel.progress.line.value
    panel.cancel.click()
    job.wait(20)
    assert not shown(panel.progress)


@pytest.fixture
def elsewhere(folder: Path) -> Report:
    """A report on a loop that failed in a program of its own."""
    loop = "for x in torch.ones(2, 3, 4):\n    model(x).data.sum().backward()\n"
    (folder / "fails.py").write_text(TRAIN + loop, encoding="utf-8")
    with pytest.raises(RuntimeError) as caught:
        runpy.run_path(str(folder / "fails.py"))
    report = gradkit.explain(caught.value)
    assert report.findings
    return report


def opened_on(report: Report) -> Panel:
    panel = Panel()
    panel.show_report(report)
    return panel


def test_a_report_of_elsewhere_says_what_was_run_again_and_offers_no_diagnosis(elsewhere: Report) -> None:
    panel = opened_on(elsewhere)
    assert panel.report is elsewhere
    assert "gradkit ran one pass of the loop in line" in panel.short.text.value
    assert (shown(panel.results), shown(panel.change)) == (True, True)
    assert (shown(panel.diagnose), shown(panel.form)) == (False, False)
    assert not shown(panel.results.tabs.buttons["compare"])
    panel.languages.buttons["zh"].click()
    assert "重新运行了一轮" in panel.short.text.value


def test_a_report_of_elsewhere_stays_while_the_form_is_filled_in(elsewhere: Report) -> None:
    panel = opened_on(elsewhere)
    panel.change.click()
    assert (shown(panel.form), shown(panel.diagnose), panel.diagnose.description) == (True, True, "Diagnose")
    by_file(panel, step="train.py:step")
    assert shown(panel.results)


def test_what_the_form_names_is_not_compared_with_a_report_of_elsewhere(elsewhere: Report) -> None:
    panel = opened_on(elsewhere)
    panel.change.click()
    panel.form.kind.value = "builtin"
    press(panel, panel.diagnose)
    assert panel.report is not elsewhere
    assert not panel.results.compare.there
    assert panel.diagnose.description == "Diagnose again"


def test_the_guide_to_a_report_of_elsewhere_ends_with_running_the_program_again(elsewhere: Report) -> None:
    panel = opened_on(elsewhere)
    guide = panel.results.guide
    guide.go(99)
    assert (shown(guide.again), shown(guide.rerun)) == (False, True)
    panel.change.click()
    panel.form.kind.value = "builtin"
    press(panel, panel.diagnose)
    guide.go(99)
    assert (shown(guide.again), shown(guide.rerun)) == (True, False)


def test_a_page_that_cannot_run_the_panel_says_how_to() -> None:
    assert Panel()._repr_mimebundle_()["text/plain"].startswith("The gradkit panel: run this cell to use it.")
