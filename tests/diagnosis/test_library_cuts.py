"""Cuts inside of installed libraries: the user's line, the way from there, and what to do on that line."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradkit
from gradkit.core.records import Finding
from gradkit.report.report import Report

FILES = {
    "softmask/__init__.py": "from softmask.overlap import overlap, Meter\n",
    "softmask/overlap.py": """\
import torch
from softmask.common import normalised

def overlap(logits, target):
    soft = normalised(logits)
    return 1 - (soft * target).sum() / (soft.sum() + target.sum())

class Meter:
    def update(self, logits, target):
        with torch.no_grad():
            self.value = overlap_of(logits, target)

def overlap_of(logits, target):
    return (logits.sigmoid() * target).mean()

@torch.no_grad()
def sampled(model, x):
    return model(x)

def wrap(function):
    def wrapped(*given):
        with torch.no_grad():
            return function(*given)
    return wrapped

quiet = wrap(overlap_of)
""",
    "softmask/common.py": "def normalised(logits):\n    values = logits.detach().sigmoid()\n    return values\n",
    "softmask/metrics.py": "def accuracy(logits, target):\n    return (logits.argmax(-1) == target).float().mean()\n",
}


@pytest.fixture(scope="module")
def softmask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A library as ``pip install --target`` leaves it."""
    folder = tmp_path_factory.mktemp("libraries")
    for name, text in FILES.items():
        path: Path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "softmask-1.0.dist-info").mkdir()
    (folder / "softmask-1.0.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in FILES))
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module("softmask.metrics")
        yield importlib.import_module("softmask")
    finally:
        sys.path.remove(str(folder))
        for name in [one for one in sys.modules if one.partition(".")[0] == "softmask"]:
            del sys.modules[name]


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


X, Y = torch.ones(2, 4), torch.ones(2, 3)


def only(report: Report) -> Finding:
    assert len(report.findings) == 1, report.findings
    found: Finding = report.findings[0]
    assert found.location is not None
    assert found.location.file == __file__
    return found


def test_the_line_that_calls_the_library_is_named_and_the_cut_is_shown_where_it_stands(
    softmask: ModuleType, net: nn.Module
) -> None:
    found = only(gradkit.diagnose(lambda: softmask.overlap(net(X), Y), model=net))
    inside = next(note for note in found.notes if note.kind == "in_library_way")
    assert found.cause == "detach"
    assert inside.location is not None
    assert inside.location.text.strip() == "values = logits.detach().sigmoid()"
    assert inside.facts == {"call": "detach", "package": "softmask", "way": "overlap.py:5"}


def test_the_report_does_not_say_of_a_line_what_stands_elsewhere(softmask: ModuleType, net: nn.Module) -> None:
    report = gradkit.diagnose(lambda: softmask.overlap(net(X), Y), model=net)
    section = report.sections()[0]
    assert section.title.endswith("inside softmask")
    assert [line.label for line in section.code if line.label] == ["leads to detach, inside softmask"]
    assert "remove detach()" not in report.text()
    assert "common.py:2" in report.text()


def test_a_block_of_a_librarys_is_shown_under_the_name_that_the_user_has_called(
    softmask: ModuleType, net: nn.Module
) -> None:
    def step() -> torch.Tensor:
        meter = softmask.Meter()
        meter.update(net(X), Y)
        loss: torch.Tensor = meter.value
        return loss

    found = only(gradkit.diagnose(step, model=net))
    assert (found.cause, found.library) == ("no_grad_block", "update")
    assert [n.location.text.strip() for n in found.notes if n.kind == "off_in_library" and n.location] == [
        "with torch.no_grad():"
    ]


def test_a_wrapper_of_a_librarys_goes_by_what_the_user_has_called(softmask: ModuleType, net: nn.Module) -> None:
    quiet = softmask.overlap.__globals__["quiet"]
    found = only(gradkit.diagnose(lambda: quiet(net(X), Y), model=net))
    assert found.library == "quiet"


def test_a_decorator_of_a_librarys_is_shown_where_it_stands(softmask: ModuleType, net: nn.Module) -> None:
    sampled = softmask.overlap.__globals__["sampled"]
    found = only(gradkit.diagnose(lambda: sampled(net, X).sum(), model=net))
    (inside,) = [note for note in found.notes if note.kind == "off_in_library"]
    assert found.cause == "no_grad_decorator"
    assert inside.location is not None
    assert inside.location.text.strip() == "@torch.no_grad()"


def test_a_metric_as_the_loss_is_answered_with_a_loss(softmask: ModuleType, net: nn.Module) -> None:
    accuracy = sys.modules["softmask.metrics"].accuracy
    report = gradkit.diagnose(lambda: accuracy(net(X), torch.zeros(2)), model=net)
    assert only(report).cause == "non_differentiable_op"
    assert "a metric measures and does not train" in report.text("en")
    assert "指标只用来衡量" in report.text("zh")


def test_a_block_of_the_users_around_a_librarys_call_stays_the_users(softmask: ModuleType, net: nn.Module) -> None:
    overlap_of = softmask.overlap.__globals__["overlap_of"]

    def step() -> torch.Tensor:
        with torch.no_grad():
            loss: torch.Tensor = overlap_of(net(X), Y)
        return loss

    report = gradkit.diagnose(step, model=net)
    assert only(report).library == ""
    assert "softmask" not in report.text()


class Checkpointed(nn.Module):
    """As models are that recompute a block."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.body, x, use_reentrant=True)
        out: torch.Tensor = self.head(hidden)
        return out


class WithMethod(Checkpointed):
    """As the models of transformers are."""

    def enable_input_require_grads(self) -> None:
        """Let the inputs require grad."""


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize(("kind", "proposed"), [(Checkpointed, False), (WithMethod, True)])
def test_a_method_is_proposed_only_of_a_model_that_has_it(kind: type[nn.Module], proposed: bool) -> None:
    model = kind()
    report = gradkit.diagnose(lambda: model(X).mean(), model=model)
    assert only(report).cause == "checkpoint_reentrant"
    assert ("model.enable_input_require_grads()" in report.text("en")) is proposed
    assert ("model.enable_input_require_grads()" in report.text("zh")) is proposed


def test_of_an_editable_install_it_is_said_that_the_line_in_it_may_be_the_users_to_change(
    tmp_path: Path, net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "environment" / "halved-1.0.dist-info"
    for folder in (record, tmp_path / "halved"):
        folder.mkdir(parents=True)
    (record / "METADATA").write_text("Name: halved\nVersion: 1.0\n")
    told = {"url": (tmp_path / "halved").as_uri(), "dir_info": {"editable": True}}
    (record / "direct_url.json").write_text(json.dumps(told))
    (tmp_path / "halved" / "halved.py").write_text("def half(x):\n    return x.detach() / 2\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(record.parent), str(tmp_path / "halved")])
    half = importlib.import_module("halved").half
    monkeypatch.delitem(sys.modules, "halved")
    report = gradkit.diagnose(lambda: half(net(X)).sum(), model=net)
    assert only(report).facts["package"] == "halved"
    assert "halved is installed in editable mode: if it is yours, change the line in it" in report.text()
