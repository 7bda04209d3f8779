"""The built-in examples are real programs: they fail as people's do, and their cures train."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import gradkit
from gradkit import load
from gradkit.cases import resume_lora
from gradkit.cases.vision_memory import programs as vision_memory
from gradkit.errors import GradkitError
from gradkit.i18n import words

FAULTY = ("resume_lora", "vision_memory_never_called", "vision_memory_detached")
NO_GRADIENT = "element 0 of tensors does not require grad"


@pytest.mark.parametrize("name", load.BUILTINS)
def test_every_example_has_a_title_and_a_text_in_both_languages(name: str) -> None:
    for part in ("title", "about"):
        english, chinese = words(f"builtin.{name}.{part}", "en"), words(f"builtin.{name}.{part}", "zh")
        assert english.isascii()
        assert re.search(r"[\u4e00-\u9fff]", chinese)


@pytest.mark.parametrize("name", load.BUILTINS)
def test_an_example_loads_as_a_step_that_runs_again_and_again(name: str) -> None:
    step = load.from_builtin(name)
    losses = [step.run() for _ in range(2)]
    assert all(isinstance(loss, torch.Tensor) and loss.isfinite() for loss in losses)
    assert step.label == name
    assert step.files
    assert all("cases" in Path(file).parts for file in step.files)


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_example_fails_in_backward_as_peoples_programs_do(name: str) -> None:
    loss = load.from_builtin(name).run()
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
    for name in load.BUILTINS:
        load.from_builtin(name)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "cause", "line", "starved"),
    [
        ("resume_lora", "adapter_inference_mode", "model = PeftModel.from_pretrained(model, adapter)", 28),
        ("vision_memory_never_called", "trainable_unused", "self.proj = nn.Sequential(", 4),
        ("vision_memory_detached", "detach", "self.pages[key] = memory.detach()", 4),
    ],
)
def test_a_diagnosis_names_the_cause_and_the_line(name: str, cause: str, line: str, starved: int) -> None:
    (finding,) = gradkit.diagnose(load.from_builtin(name)).findings
    assert finding.location is not None
    assert (finding.cause, finding.location.text.strip(), len(finding.parameters)) == (cause, line, starved)


@pytest.mark.parametrize("name", sorted(set(load.BUILTINS) - set(FAULTY)))
def test_the_harmless_look_alikes_are_not_accused(name: str) -> None:
    report = gradkit.diagnose(load.from_builtin(name))
    assert report.healthy
    assert report.findings == ()


# resume_lora


def test_the_resumed_adapter_is_the_one_that_was_saved() -> None:
    frozen, _ = resume_lora.make()
    live, _ = resume_lora.make_fixed()
    ours = {name: p for name, p in frozen.named_parameters() if "lora_B" in name}
    assert ours
    assert all(p.abs().sum() > 0 and torch.equal(p, live.get_parameter(name)) for name, p in ours.items())
    assert not any(p.requires_grad for p in frozen.parameters())


def test_two_more_steps_lower_the_loss_of_the_cured_run() -> None:
    model, _ = resume_lora.make_fixed()
    batches = resume_lora.load_blocks()
    before = resume_lora.evaluate(model, batches)
    losses = resume_lora.train(model, batches, epochs=1, learning_rate=1e-2)
    assert len(losses) == 2
    assert resume_lora.evaluate(model, batches) < before - 0.02


def test_the_cured_program_prints_its_trainable_parameters_and_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume_lora.main(["--fixed", "--output_dir", str(tmp_path), "--epochs", "1", "--learning_rate", "1e-2"])
    text = capsys.readouterr().out
    assert re.search(r"trainable params: 16,384 \|\| all params: [\d,]+ \|\| trainable%: \d+\.\d{4}", text)
    before, after = (float(value) for value in re.findall(r"loss (?:before|after): +([\d.]+)", text))
    assert after < before
    assert (tmp_path / "adapter_config.json").is_file()


def test_the_uncured_program_has_nothing_to_train_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        resume_lora.main([])
    assert "trainable params: 0 ||" in capsys.readouterr().out


def test_the_saved_run_can_be_loaded_from_its_folders_too() -> None:
    model, _ = resume_lora.make()
    folder = Path(model.peft_config["default"].base_model_name_or_path).parent
    batch = resume_lora.load_blocks()[0]
    for trainable in (None, True):
        step = load.from_spec(adapter=folder / "adapter", batch=batch, is_trainable=trainable)
        on_base = load.from_spec(model=folder / "base", adapter=folder / "adapter", batch=batch, is_trainable=trainable)
        step.model.eval(), on_base.model.eval()
        assert torch.equal(step.run(), on_base.run())  # type: ignore[arg-type]
        assert any(p.requires_grad for p in step.model.parameters()) is bool(trainable)


def test_an_adapter_on_a_model_that_it_does_not_fit_is_named() -> None:
    model, _ = resume_lora.make()
    adapter = Path(model.peft_config["default"].base_model_name_or_path).parent / "adapter"
    with pytest.raises(GradkitError) as caught:
        load.from_spec(model=torch.nn.Sequential(torch.nn.Linear(1, 1)), adapter=adapter, batch=torch.ones(1))
    assert caught.value.key == "adapter_failed"
    for language in ("en", "zh"):
        assert str(adapter) in caught.value.text(language)
        assert "Sequential" in caught.value.text(language)


@pytest.mark.slow
def test_the_temporary_run_is_gone_when_the_program_ends(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "gradkit.cases.resume_lora", "--fixed"],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(load.__file__).parents[1])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"Resuming from {tmp_path}" in child.stdout
    assert list(tmp_path.iterdir()) == []
