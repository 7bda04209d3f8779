"""Adapters of peft that are trainable and switched off: where that was done."""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit

peft = pytest.importorskip("peft")


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.query(x).tanh())


def adapted() -> nn.Module:
    config = peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False)
    model: nn.Module = peft.get_peft_model(Base(), config)
    return model


def marked(function: Callable[..., object]) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if line.rstrip().endswith("# CUT"))


def test_a_loss_computed_with_the_adapter_disabled_is_named_at_the_block() -> None:
    model, x = adapted(), torch.randn(6, 4)

    def step() -> torch.Tensor:
        with model.disable_adapter():  # CUT
            return model(x).sum()

    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.cause == "adapter_inactive"
    assert finding.location is not None
    assert finding.location.line == marked(step)


def test_adapter_layers_disabled_for_good_are_named_where_that_was_done() -> None:
    model, x = adapted(), torch.randn(6, 4)

    def evaluate() -> None:
        model.base_model.disable_adapter_layers()  # CUT
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("lora" in name)

    evaluate()
    (finding,) = gradkit.diagnose(lambda: model(x).sum(), model=model).findings
    assert finding.cause == "adapter_inactive"
    assert finding.location is not None
    assert finding.location.line == marked(evaluate)


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({"query": nn.Linear(4, 4)}) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer["query"](x).tanh()
        return x


def test_adapters_that_a_loop_has_added_are_told_once_at_its_line() -> None:
    """They go by the numbers of the layers, too: a layer's parameters are not those of the adapter of its number."""
    config, x = peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False), torch.randn(6, 4)
    model = peft.get_peft_model(Stacked(), config, adapter_name="0")

    def add(count: int) -> None:
        for i in range(1, count):
            model.add_adapter(str(i), config)  # CUT
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("lora" in name)

    add(3)
    (finding,) = gradkit.diagnose(lambda: model(x).sum(), model=model).findings
    assert (finding.cause, finding.facts["adapter"]) == ("adapter_inactive", "1, 2")
    assert len(finding.parameters) == 12
    assert all(name.split(".")[-2] in "12" for name in finding.parameters)
    assert finding.location is not None
    assert finding.location.line == marked(add)


def test_a_reference_pass_with_the_adapter_disabled_is_sound() -> None:
    model, x = adapted(), torch.randn(6, 4)

    def step() -> torch.Tensor:
        with torch.no_grad(), model.disable_adapter():
            reference = model(x)
        return (model(x) - reference).pow(2).sum()

    assert gradkit.diagnose(step, model=model).findings == ()


AFTER_LOADING = {
    "nothing": ("", "cures"),
    "a loop over all parameters": (
        """
    for parameter in model.parameters():
        parameter.requires_grad = False
""",
        "waits",
    ),
    "the whole model": ("\n    model.requires_grad_(False)\n", "waits"),
    "a loop that spares the adapter": (
        """
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            continue
        parameter.requires_grad = False
""",
        "cures",
    ),
    "a part of the model": ("\n    model.base_model.model.out.requires_grad_(False)\n", "cures"),
    "a branch that may not run": ("\n    if not model.training:\n        model.requires_grad_(False)\n", "cures"),
}


@pytest.mark.parametrize("after", AFTER_LOADING)
def test_loading_an_adapter_as_trainable_cures_unless_a_later_line_freezes_it_again_as_does(
    after: str, tmp_path: Path
) -> None:
    adapted().save_pretrained(tmp_path)
    lines, outcome = AFTER_LOADING[after]
    file = tmp_path / "reloading.py"
    load = "    model = peft.PeftModel.from_pretrained(base, folder)"
    file.write_text(f"import peft\n\n\ndef reload(base, folder):\n{load}\n{lines}    return model\n", encoding="utf-8")
    program = runpy.run_path(str(file))
    model, x = program["reload"](Base(), tmp_path), torch.randn(6, 4)
    told = gradkit.diagnose(partial(loss_of, model, x, program["reload"]), model=model).findings
    assert [f.tried and f.tried.outcome for f in told] == ([outcome] if outcome == "cures" else [outcome, None])


def loss_of(model: nn.Module, x: torch.Tensor, _reload: object) -> torch.Tensor:
    loss: torch.Tensor = model(x).square().mean()
    return loss
