"""The built-in examples are real programs: they fail as people's do, and their cures train."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.cases import resume_lora
from gradkit.cases.vision_memory import programs as vision_memory
from gradkit.core.i18n import words
from gradkit.teaching import examples

FAULTY = ("resume_lora", "vision_memory_never_called", "vision_memory_detached", "multitask_epoch_6")
SILENT = ("multitask_keypoints_only",)
NO_GRADIENT = "element 0 of tensors does not require grad"


@pytest.mark.parametrize("name", examples.BUILTINS)
def test_every_example_has_a_title_and_a_text_in_both_languages(name: str) -> None:
    for part in ("title", "about"):
        english, chinese = words(f"builtin.{name}.{part}", "en"), words(f"builtin.{name}.{part}", "zh")
        assert english.isascii()
        assert re.search(r"[\u4e00-\u9fff]", chinese)


@pytest.mark.parametrize("name", examples.BUILTINS)
def test_an_example_loads_as_a_step_that_runs_again_and_again(name: str) -> None:
    step = examples.from_builtin(name)
    losses = [step.run() for _ in range(2)]
    assert all(isinstance(loss, torch.Tensor) and loss.isfinite() for loss in losses)
    assert step.label == name
    assert step.files
    assert all("cases" in Path(file).parts for file in step.files)


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_example_fails_in_backward_as_peoples_programs_do(name: str) -> None:
    loss = examples.from_builtin(name).run()
    assert isinstance(loss, torch.Tensor)
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        loss.backward()


@pytest.mark.parametrize("make", [resume_lora.make_fixed, vision_memory.make_fixed])
def test_a_cure_reaches_every_parameter_that_requires_grad(
    make: Callable[[], tuple[torch.nn.Module, Callable[[], torch.Tensor]]],
) -> None:
    model, step = make()
    step().backward()
    assert (
        {name for name, p in model.named_parameters() if p.grad is not None}
        == {name for name, p in model.named_parameters() if p.requires_grad}
        != set()
    )


def test_making_an_example_does_not_touch_the_random_state() -> None:
    before = torch.get_rng_state()
    for name in examples.BUILTINS:
        examples.from_builtin(name)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "cause", "line", "starved"),
    [
        ("resume_lora", "adapter_inference_mode", "model = PeftModel.from_pretrained(model, adapter)", 28),
        ("vision_memory_never_called", "trainable_unused", "self.proj = nn.Sequential(", 4),
        ("vision_memory_detached", "detach", "self.pages[key] = memory.detach()", 4),
        ("multitask_epoch_6", "constant_loss", "action_loss = torch.tensor(0.0, device=device)", 12),
        ("multitask_keypoints_only", "trainable_unused", "self.action_head = nn.Linear(hidden, len(ACTIONS))", 2),
    ],
)
def test_a_diagnosis_names_the_cause_and_the_line(name: str, cause: str, line: str, starved: int) -> None:
    (finding,) = gradkit.diagnose(examples.from_builtin(name)).findings
    assert finding.location is not None
    assert (finding.cause, finding.location.text.strip(), len(finding.parameters)) == (cause, line, starved)


@pytest.mark.parametrize("name", sorted({*examples.BUILTINS} - {*FAULTY, *SILENT}))
def test_the_harmless_look_alikes_are_not_accused(name: str) -> None:
    report = gradkit.diagnose(examples.from_builtin(name))
    assert report.healthy
    assert report.findings == ()


@pytest.mark.parametrize(("language", "says"), [("en", "copies the example into gradkit-examples"), ("zh", "复制到")])
def test_a_typed_report_on_an_example_says_where_to_change_it(
    language: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = gradkit.diagnose(examples.from_builtin("vision_memory_detached"))
    assert says in typed.text(language)
    assert list(tmp_path.iterdir()) == []
    copy = gradkit.diagnose(examples.from_copy("vision_memory_detached", tmp_path))
    assert copy.findings[0].tried is not None
    assert says not in copy.text(language)
