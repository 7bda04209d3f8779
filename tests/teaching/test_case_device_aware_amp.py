"""Mixed precision that follows the device: every program runs as its text says, and gradkit names the line."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import torch
from torch import nn

import gradkit
from gradkit.cases import device_aware_amp as amp
from gradkit.cases import device_aware_amp_record as record
from gradkit.cases.device_aware_amp import TrainerConfig

CUDA_RECORD = Path(amp.__file__).with_name("records") / "device_aware_amp_cuda.json"
NO_GRADIENT = "element 0 of tensors does not require grad"
CPU = TrainerConfig()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    amp.main(["--device", "cpu", *arguments])
    return capsys.readouterr().out


def epochs(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"Epoch \S+ - Loss: ([\d.]+|nan)", text)]


# from the command line


def test_the_fixed_program_learns_on_the_cpu_without_a_scaler(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys)
    assert "dtype: torch.bfloat16" in text
    assert "GradScaler enabled: False" in text
    assert epochs(text) == sorted(epochs(text), reverse=True)
    assert epochs(text)[-1] < epochs(text)[0] / 2


def test_full_precision_takes_the_same_lines(capsys: pytest.CaptureFixture[str]) -> None:
    full, mixed = epochs(run(capsys, "--no_mixed_precision")), epochs(run(capsys))
    assert full == pytest.approx(mixed, abs=5e-3)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_names_that_speak_of_cuda_warn_on_a_cpu_and_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="CUDA is not available"):
        text = run(capsys, "--program", "cuda_only")
    assert epochs(text) == epochs(run(capsys, "--no_mixed_precision"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", ["symptom", "symptom_branches"])
def test_the_symptom_is_there_with_cudas_names_and_with_branches(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        amp.main(["--device", "cpu", "--program", program])
    assert "Before training - Val Loss: 0.0000" in capsys.readouterr().out
    assert not torch.is_grad_enabled()


def test_the_branches_alone_stop_at_a_scaler_that_was_never_used() -> None:
    with pytest.raises(AssertionError, match="Attempted unscale_ but _scale is None"):
        amp.main(["--device", "cpu", "--program", "branches"])


def test_logging_the_scaled_loss_silences_the_scaler_and_nothing_is_learned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    losses = epochs(run(capsys, "--program", "logged"))
    assert losses[-1] == pytest.approx(losses[0], abs=2e-4)


def test_past_the_scaler_clipping_hides_what_blows_up_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    clipped = epochs(run(capsys, "--program", "past_the_scaler"))
    assert clipped[-1] < clipped[0]
    assert math.isnan(epochs(run(capsys, "--program", "past_the_scaler", "--max_grad_norm", "inf"))[-1])


def test_it_measures_as_a_plain_file_that_knows_nothing_of_gradkit(tmp_path: Path) -> None:
    written = tmp_path / "deep" / "amp.json"
    command = [sys.executable, amp.__file__, "--device", "cpu", "--epochs", "1", "--record", str(written)]
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(command, cwd=tmp_path, env=alone, check=True, capture_output=True, timeout=120)
    assert json.loads(written.read_text(encoding="utf-8"))["device_type"] == "cpu"
    for module in (amp, record):
        assert not re.search(r"(from|import) gradkit", Path(module.__file__).read_text(encoding="utf-8"))


# gradkit's diagnosis


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("program", "cause", "line"),
    [
        ("symptom", "grad_disabled_globally", "torch.set_grad_enabled(False)"),
        ("symptom_branches", "grad_disabled_globally", "torch.set_grad_enabled(False)"),
        ("branches", "amp_misuse", "(loss / self.config.gradient_accumulation).backward()"),
        ("logged", "amp_misuse", "(loss / self.config.gradient_accumulation).backward()"),
    ],
)
def test_a_diagnosis_names_the_line_of_each_broken_program(program: str, cause: str, line: str) -> None:
    model, step = amp.make(program)
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.location is not None
    assert (finding.cause, finding.location.text.strip()) == (cause, line)
    assert finding.location.file == amp.__file__
    assert torch.is_grad_enabled()


def test_a_diagnosis_names_both_lines_that_touch_scaled_gradients() -> None:
    model, step = amp.make("past_the_scaler")
    findings = gradkit.diagnose(step, model=model).findings
    assert [finding.cause for finding in findings] == ["amp_misuse"] * 2
    assert {finding.location.text.strip() for finding in findings if finding.location} == {
        "clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)",
        "self.optimizer.step()",
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", ["fixed", "cuda_only"])
def test_a_sound_program_gets_a_clean_bill_with_autocast_and_scaler_in_it(program: str) -> None:
    model, step = amp.make(program)
    assert gradkit.diagnose(step, model=model).healthy


# what the text claims, measured


@pytest.mark.filterwarnings("ignore")
def test_updates_of_the_cpu_are_right_or_wrong_by_the_scale_exactly() -> None:
    rows = record.first_updates(CPU)
    assert rows["cuda_only"]["weights_moved"] == rows["full_precision"]["weights_moved"]
    assert rows["right_order"]["times_full_precision"] == pytest.approx(1, abs=0.01)
    assert rows["backward_not_scaled"]["times_full_precision"] == pytest.approx(1 / 65536, rel=1e-3)
    assert rows["step_past_the_scaler"]["times_full_precision"] == pytest.approx(65536, rel=1e-3)
    assert "_scale is None" in rows["branches"]["raised"]
    assert all(row["cosine"] > 0.999 for row in rows.values() if "cosine" in row)


def test_a_scaler_for_the_cpu_is_a_working_scaler() -> None:
    assert torch.amp.GradScaler("cpu").is_enabled()
    assert not torch.amp.GradScaler("cpu", enabled=False).is_enabled()
    loop = amp.build()
    loop.half, loop.scaler = torch.float16, torch.amp.GradScaler("cpu")
    assert loop.run_epoch() == pytest.approx(amp.build().run_epoch(), abs=5e-3)


def test_adam_hides_that_the_gradients_are_65536_times_too_small() -> None:
    losses = amp.build("logged", TrainerConfig(optimizer="Adam", learning_rate=0.01)).fit()
    assert losses[-1] < losses[0] / 2


def test_accumulated_gradients_are_those_of_one_large_batch() -> None:
    config = TrainerConfig(mixed_precision=False)
    small, large = amp.build("fixed", config), amp.build("fixed", config)
    for batch in small.train_batches[:2]:
        small.backward(small.loss(batch))
    bars, answers = (torch.cat(parts) for parts in zip(*large.train_batches[:2], strict=True))
    large.loss((bars, answers)).backward()
    for one, other in zip(small.model.parameters(), large.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6)


def test_batches_that_are_left_over_are_not_kept_for_the_next_epoch() -> None:
    loop = amp.build("fixed", TrainerConfig(gradient_accumulation=3))
    loop.run_epoch()
    assert len(loop.train_batches) % 3
    assert all(parameter.grad is None for parameter in loop.model.parameters())


def test_validation_without_data_is_no_number_and_leaves_grad_mode_alone() -> None:
    loop = amp.TrainingLoop(nn.Linear(2, 2), CPU, [])
    assert math.isnan(loop.validate())
    assert torch.is_grad_enabled()


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_one_code_path_asks_each_device_for_what_it_has(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "to", lambda self, _: self)
    loop = amp.TrainingLoop(nn.Linear(2, 2), TrainerConfig(device), [])
    assert loop.autocast().device == device
    assert loop.half == (torch.bfloat16 if device == "cpu" else torch.float16)


# the run on a GPU, kept as a record


def cuda_record() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(CUDA_RECORD.read_text(encoding="utf-8"))
    return kept


@pytest.mark.filterwarnings("ignore")
def test_the_record_says_where_it_was_made_and_has_every_number_of_today() -> None:
    kept = cuda_record()
    assert kept["device_type"] == "cuda"
    assert kept["device"].startswith("NVIDIA")
    assert kept["torch"][0].isdigit()
    assert set(kept) == set(record.measure(TrainerConfig(epochs=1)))


def test_on_the_gpu_mixed_precision_trained_as_full_precision_did() -> None:
    losses = cuda_record()["losses"]
    assert losses["mixed_precision"] == pytest.approx(losses["full_precision"], abs=0.02)
    assert losses["mixed_precision"][-1] < losses["mixed_precision"][0] / 2
    assert losses["backward_not_scaled"][-1] == pytest.approx(losses["backward_not_scaled"][0], abs=1e-3)


def test_on_the_gpu_the_wrong_orders_were_wrong_by_the_scale() -> None:
    rows = cuda_record()["first_updates"]
    assert rows["right_order"]["times_full_precision"] == pytest.approx(1, abs=0.02)
    assert rows["backward_not_scaled"]["times_full_precision"] == pytest.approx(1 / 65536, rel=0.02)
    assert rows["step_past_the_scaler"]["times_full_precision"] == pytest.approx(65536, rel=0.02)


def test_on_the_gpu_an_lstm_in_eval_stopped_backward_with_an_error_of_its_own() -> None:
    said = cuda_record()["lstm_backward"]
    assert said["train"] == "ran"
    assert "cudnn RNN backward can only be called in training mode" in said["eval"]


def test_on_the_gpu_the_branches_used_half_precision_although_they_were_told_not_to() -> None:
    assert cuda_record()["branches_that_were_told_no"] == "torch.float16"


def test_on_the_gpu_a_pass_without_grad_cut_nothing_from_the_next() -> None:
    reached, all_of_them = cuda_record()["reached_after_a_pass_without_grad"]
    assert reached == all_of_them


# the notebook


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_notebook_runs_and_its_cells_show_what_its_text_says(language: str) -> None:
    folder = Path(gradkit.__file__).parents[1] / "notebooks" / language / "cases"
    book = nbformat.read(folder / "device_aware_amp.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=120, store_widget_state=False).execute(cwd=str(folder))
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    shown = [output.data.get("text/plain", "") for output in outputs if "data" in output]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert said.count(f"RuntimeError: {NO_GRADIENT}") == 2
    assert said.count("AssertionError: Attempted unscale_ but _scale is None") == 1
    assert {"(True, 65536.0)", "False", "'torch.float16'"} <= set(shown)
    assert "1.52588e-05" in said
    assert "Loss went from nan to nan" in said
    assert re.findall(r"amp_misuse \d+ (\S+)", said) == [
        "(loss", "clip_grad_norm_(self.model.parameters(),", "self.optimizer.step()",
    ]  # fmt: skip
    assert sum({"en": "Healthy:", "zh": "一切正常"}[language] in text for text in [*shown, said]) == 2
