"""The resumed LoRA run: every program runs as its text says, and gradkit names the line."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

import gradkit
from gradkit.cases import resume_lora, resume_lora_optimizer
from gradkit.core.errors import GradkitError
from gradkit.load.step import from_spec
from gradkit.report.report import Report

NO_GRADIENT = "element 0 of tensors does not require grad"
WRONG_LOAD = "model = PeftModel.from_pretrained(model, adapter)"


def before_and_after(text: str) -> tuple[float, float]:
    before, after = re.findall(r"loss (?:before|after): +([\d.]+)", text)
    return float(before), float(after)


# -- the commands ---------------------------------------------------------------------------------------------------


def test_the_uncured_program_has_nothing_to_train_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        resume_lora.main([])
    assert "trainable params: 0 ||" in capsys.readouterr().out


def test_the_cured_program_prints_its_trainable_parameters_and_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume_lora.main(["--fixed", "--output_dir", str(tmp_path), "--epochs", "1", "--learning_rate", "1e-2"])
    text = capsys.readouterr().out
    assert re.search(r"trainable params: 16,384 \|\| all params: [\d,]+ \|\| trainable%: \d+\.\d{4}", text)
    before, after = before_and_after(text)
    assert after < before
    assert (tmp_path / "adapter_config.json").is_file()


def test_a_run_is_begun_and_resumed_by_two_commands_and_its_loss_goes_on_falling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    resume_lora.main(["--fresh", "--output_dir", first, "--epochs", "2"])
    untrained, left = before_and_after(capsys.readouterr().out)
    resume_lora.main(["--fixed", "--resume_from", first, "--output_dir", second, "--epochs", "2"])
    taken_up, after = before_and_after(capsys.readouterr().out)
    assert untrained > left == taken_up > after


def test_the_base_model_is_a_local_folder_or_a_built_in_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume_lora.make_base(tmp_path / "base", "qwen3-small")
    text = {}
    for name in (str(tmp_path / "base"), "qwen3-small"):
        resume_lora.main(["--fresh", "--model_name", name])
        text[name] = capsys.readouterr().out.partition("\n")[2]
    assert "trainable params: 59,392 ||" in text["qwen3-small"]
    assert len(set(text.values())) == 1


def test_a_base_model_that_is_neither_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        resume_lora.main(["--model_name", "qwen3-huge"])
    assert "no such folder, and none of qwen3-tiny, qwen3-small" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["input_grads", "loss_flag"])
def test_what_silences_the_error_teaches_nothing(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    resume_lora.main(["--program", program])
    text = capsys.readouterr().out
    assert "trainable params: 0 ||" in text
    before, after = before_and_after(text)
    assert before == after


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("loss_per_token", "grad can be implicitly created only for scalar outputs"),
        ("running_loss", "Trying to backward through the graph a second time"),
    ],
)
def test_the_related_errors_are_there_with_the_adapter_loaded_to_be_trained(
    program: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match=message):
        resume_lora.main(["--program", program])
    assert "trainable params: 16,384 ||" in capsys.readouterr().out


@pytest.mark.slow
def test_the_temporary_run_is_gone_when_the_program_ends(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "gradkit.cases.resume_lora", "--fixed"],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(gradkit.__file__).parents[1])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"Resuming from {tmp_path}" in child.stdout
    assert list(tmp_path.iterdir()) == []


# -- the diagnoses --------------------------------------------------------------------------------------------------


@functools.cache
def diagnosed(program: str) -> Report:
    model, step = resume_lora.make(program)
    if program == "running_loss":
        step().backward()  # the first step is sound
    return gradkit.diagnose(step, model=model)


@pytest.mark.parametrize(
    ("program", "cause", "line"),
    [
        ("broken", "adapter_inference_mode", WRONG_LOAD),
        ("input_grads", "adapter_inference_mode", WRONG_LOAD),
        ("loss_flag", "adapter_inference_mode", WRONG_LOAD),
        ("loss_per_token", "non_scalar", "return F.cross_entropy("),
        ("running_loss", "double_backward", "self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss"),
    ],
)
def test_a_diagnosis_names_the_line_of_each_broken_program(program: str, cause: str, line: str) -> None:
    finding, *rest = diagnosed(program).findings
    assert [(one.cause, one.variant) for one in rest] == ([("new_leaf", "flag")] if program == "loss_flag" else [])
    assert finding.location is not None
    assert finding.location.file == resume_lora.__file__
    assert finding.cause == cause
    assert finding.location.text.strip().startswith(line)


@pytest.mark.parametrize("program", ["input_grads", "loss_flag"])
def test_of_what_only_silences_the_error_the_report_says_that_nothing_is_reached(program: str) -> None:
    assert not any(parameter.reached for parameter in diagnosed(program).parameters)
    assert "none of the 28 parameters that should train gets a gradient" in diagnosed(program).verdict("en")


def test_the_cured_program_gets_a_clean_bill() -> None:
    assert diagnosed("fixed").healthy


# -- what the text claims -------------------------------------------------------------------------------------------


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


def test_with_the_saved_optimizer_a_run_goes_on_as_if_it_had_never_stopped() -> None:
    courses = resume_lora_optimizer.compare(first_epochs=2, steps=3)
    assert courses["saved_optimizer"] == courses["never_stopped"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_new_optimizer_takes_the_longest_step_there_is_and_the_loss_jumps_after_a_long_run(seed: int) -> None:
    courses = resume_lora_optimizer.compare(first_epochs=12, steps=1, seed=seed)
    saved, new = courses["saved_optimizer"], courses["new_optimizer"]
    assert new.moved[0] == pytest.approx(1e-2 * 16_384**0.5, rel=1e-3)  # the learning rate, in every one of them
    assert saved.moved[0] < new.moved[0] / 3
    assert saved.losses[1] < saved.losses[0] == new.losses[0] < new.losses[1] - 0.05


def test_after_a_very_short_run_a_new_optimizer_does_no_harm() -> None:
    courses = resume_lora_optimizer.compare(first_epochs=1, steps=2)
    assert courses["new_optimizer"].losses[-1] < courses["new_optimizer"].losses[0]


def test_the_comparison_prints_a_line_for_each_way_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    resume_lora_optimizer.main(["--first_epochs", "1", "--steps", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["never_stopped", "saved_optimizer", "new_optimizer"]
    assert lines[0].split()[1:] == lines[1].split()[1:] != lines[2].split()[1:]


def test_the_learning_rate_of_the_command_is_used_although_the_saved_state_has_one(tmp_path: Path) -> None:
    resume_lora.make_base(tmp_path / "base")
    model, saved = resume_lora.first_run(tmp_path / "base", tmp_path / "adapter", epochs=1, learning_rate=1e-2)
    optimizer = resume_lora.load_optimizer(model, tmp_path / "adapter", learning_rate=3e-4)
    assert [group["lr"] for group in optimizer.param_groups] == [3e-4]
    assert len(optimizer.state) == len(saved.state) == 28


def test_an_adapter_folder_without_training_state_can_be_resumed_too(tmp_path: Path) -> None:
    model, _ = resume_lora.make_fixed()
    model.save_pretrained(tmp_path)
    assert not resume_lora.load_optimizer(model, tmp_path, 1e-2).state


def test_an_optimizer_of_the_trainable_parameters_alone_gives_up_before_backward() -> None:
    model, _ = resume_lora.make()
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])


def test_precision_follows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    chosen = {device: resume_lora.choose_dtype(device) for device in ("cpu", "mps", "cuda")}
    assert chosen == {"cpu": torch.float32, "mps": torch.float32, "cuda": torch.bfloat16}


# -- as material for gradkit's loader -------------------------------------------------------------------------------


def test_the_saved_run_can_be_loaded_from_its_folders_too() -> None:
    model, _ = resume_lora.make()
    folder = Path(model.peft_config["default"].base_model_name_or_path).parent
    batch = resume_lora.load_blocks()[0]
    for trainable in (None, True):
        step = from_spec(adapter=folder / "adapter", batch=batch, is_trainable=trainable)
        on_base = from_spec(model=folder / "base", adapter=folder / "adapter", batch=batch, is_trainable=trainable)
        step.model.eval(), on_base.model.eval()
        assert torch.equal(step.run(), on_base.run())  # type: ignore[arg-type]
        assert any(p.requires_grad for p in step.model.parameters()) is bool(trainable)


@pytest.mark.parametrize("trainable", [False, True])
def test_how_the_base_is_loaded_does_not_decide_whether_the_adapter_trains(trainable: bool) -> None:
    folder = Path(resume_lora.make("broken")[0].peft_config["default"].base_model_name_or_path).parent
    base = AutoModelForCausalLM.from_pretrained(
        folder / "base", device_map="cpu", low_cpu_mem_usage=True, trust_remote_code=True
    )
    model = PeftModel.from_pretrained(base, folder / "adapter", is_trainable=trainable)
    assert (model.get_nb_trainable_parameters()[0] > 0) is trainable


def test_an_adapter_on_a_model_that_it_does_not_fit_is_named() -> None:
    model, _ = resume_lora.make()
    adapter = Path(model.peft_config["default"].base_model_name_or_path).parent / "adapter"
    with pytest.raises(GradkitError) as caught:
        from_spec(model=torch.nn.Sequential(torch.nn.Linear(1, 1)), adapter=adapter, batch=torch.ones(1))
    assert caught.value.key == "adapter_failed"
    for language in ("en", "zh"):
        assert str(adapter) in caught.value.text(language)
        assert "Sequential" in caught.value.text(language)


# -- the notebook ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_notebook_runs_and_its_cells_show_what_its_text_says(language: str) -> None:
    folder = Path(gradkit.__file__).parents[1] / "notebooks" / language / "cases"
    book = nbformat.read(folder / "resume_lora.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=120, store_widget_state=False).execute(cwd=str(folder))
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    shown = [output.data.get("text/plain", "") for output in outputs if "data" in output]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert said.count(f"RuntimeError: {NO_GRADIENT}") == 1
    assert "model.training=True False\nmodel.training=False False\n" in said
    assert said.count("adapter_inference_mode") == 2
    assert "optimizer got an empty parameter list" in said
    assert "grad can be implicitly created only for scalar outputs" in said
    assert "Trying to backward through the graph a second time" in said
    assert {"(True, 0)", "1.28"} <= set(shown)
    first = {"en": "first step", "zh": "第一步"}[language]
    assert len(re.findall(rf"new_optimizer +{first} 1\.280", said)) == 3
    reports = [text for text in shown if re.search(r"\[(adapter_inference_mode|non_scalar|double_backward)\]", text)]
    assert len(reports) == 3
    assert any({"en": "Healthy:", "zh": "一切正常"}[language] in text for text in shown)
