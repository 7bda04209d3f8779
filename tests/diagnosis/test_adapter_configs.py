"""An adapter that its config freezes is told at the line that says ``inference_mode=True``, wherever that stands."""

from __future__ import annotations

import runpy
import textwrap
from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.core.records import Finding
from gradkit.report.report import Report
from gradkit.source import adapter_configs, changes

pytest.importorskip("peft")

HEAD = """\
import torch
from torch import nn
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.q_proj(x)))


"""
CONFIG = 'LoraConfig(r=2, target_modules=["q_proj"])'
FROZEN = {
    "in the config": """
        config = LoraConfig(
            r=2,
            target_modules=["q_proj"],
            inference_mode=True,  # CUT
        )
        model = get_peft_model(Net(), config)
    """,
    "in a dictionary that a function hands on": """
        SETTINGS = {
            "target_modules": ["q_proj"],
            "inference_mode": True,  # CUT
        }

        def wrapped(base, **settings):
            return get_peft_model(base, LoraConfig(r=2, **settings))

        model = wrapped(Net(), **SETTINGS)
    """,
    "by the caller of a function": """
        def built(rank, serving=False):
            config = LoraConfig(r=rank, target_modules=["q_proj"], inference_mode=serving)
            return get_peft_model(Net(), config)

        model = built(2, serving=True)  # CUT
    """,
    "on the config afterwards": f"""
        config = {CONFIG}
        config.inference_mode = True  # CUT
        model = get_peft_model(Net(), config)
    """,
    "in a folder that the config is read from": f"""
        get_peft_model(Net(), {CONFIG}).save_pretrained(FOLDER)
        config = PeftConfig.from_pretrained(FOLDER)  # CUT
        model = get_peft_model(Net(), config)
    """,
    "where the adapter is switched to": f"""
        model = get_peft_model(Net(), {CONFIG}, adapter_name="a")
        model.add_adapter("b", {CONFIG})
        model.set_adapter("b", inference_mode=True)  # CUT
    """,
}
OTHERWISE = {
    "a loop freezes what is thawed before": """
        model = get_peft_model(Net(), LoraConfig(r=2, target_modules=["q_proj"], inference_mode=True))
        model.requires_grad_(True)
        for parameter in model.parameters():
            parameter.requires_grad = False  # CUT
    """,
    "a loop freezes an adapter that was made for training": f"""
        model = get_peft_model(Net(), {CONFIG})
        for parameter in model.parameters():
            parameter.requires_grad = False  # CUT
    """,
}
SOUND = {
    "thawed again": """
        model = get_peft_model(Net(), LoraConfig(r=2, target_modules=["q_proj"], inference_mode=True))
        for name, parameter in model.named_parameters():
            parameter.requires_grad = "lora" in name
    """,
    "with the flag taken back": f"""
        get_peft_model(Net(), {CONFIG}).save_pretrained(FOLDER)
        config = PeftConfig.from_pretrained(FOLDER)
        config.inference_mode = False
        model = get_peft_model(Net(), config)
    """,
}


def diagnosed(body: str, folder: Path) -> tuple[Report, set[int]]:
    """The report on a program that was watched while it was set up, and the marked lines."""
    text = HEAD + textwrap.dedent(body)
    file = folder / "program.py"
    lines = text.splitlines()
    file.write_text("\n".join(line.removesuffix("  # CUT") for line in lines) + "\n", encoding="utf-8")
    with gradkit.watch():
        model = runpy.run_path(str(file), {"FOLDER": str(folder / "saved")})["model"]
    x = torch.ones(2, 4)
    report = gradkit.diagnose(lambda: model(x).sum(), model=model, should_train=["*lora*"])
    return report, {number for number, line in enumerate(lines, 1) if line.endswith("# CUT")}


def lines_of(found: tuple[Finding, ...]) -> set[int]:
    return {one.location.line for one in found if one.location is not None}


@pytest.mark.parametrize("where", FROZEN)
def test_the_line_that_says_inference_mode_is_named(where: str, tmp_path: Path) -> None:
    report, marked = diagnosed(FROZEN[where], tmp_path)
    assert {one.cause for one in report.findings} == {"adapter_inference_mode"}
    assert lines_of(report.findings) == marked


@pytest.mark.parametrize("how", OTHERWISE)
def test_what_freezes_an_adapter_later_is_named_and_not_its_config(how: str, tmp_path: Path) -> None:
    report, marked = diagnosed(OTHERWISE[how], tmp_path)
    assert [one.cause for one in report.findings] == ["frozen_all"]
    assert lines_of(report.findings) == marked


@pytest.mark.parametrize("how", SOUND)
def test_an_adapter_that_trains_in_spite_of_its_config_is_left_alone(how: str, tmp_path: Path) -> None:
    report, _ = diagnosed(SOUND[how], tmp_path)
    assert report.healthy


def test_no_is_trainable_is_offered_to_what_only_reads_a_config(tmp_path: Path) -> None:
    report, _ = diagnosed(FROZEN["in a folder that the config is read from"], tmp_path)
    assert changes.derive_change(report.findings[0]) == ()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("model = get_peft_model(base, LoraConfig.from_pretrained(folder))", "saved"),
        ("config = PeftConfig.from_pretrained(folder)\nmodel = get_peft_model(base, config)", "saved"),
        ("config = LoraConfig(r=4, inference_mode=True)\nmodel = get_peft_model(base, config)", "config"),
    ],
)
def test_unseen_the_one_line_that_says_so_is_searched_for(text: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(text, encoding="utf-8")
    said = adapter_configs.said_in([str(file)])
    assert said is not None
    assert (said.location.line, said.kind) == (1, kind)


def test_a_config_that_is_mended_before_it_is_used_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("config = LoraConfig.from_pretrained(folder)\nconfig.inference_mode = False\n", encoding="utf-8")
    assert adapter_configs.said_in([str(file)]) is None
