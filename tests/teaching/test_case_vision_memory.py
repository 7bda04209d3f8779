"""The vision memory study: three attempts that could not help, the cause, its cure, and the suspects where guilty."""

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

import gradkit
from gradkit.cases.vision_memory import attempts, programs
from gradkit.cases.vision_memory.__main__ import main
from gradkit.cases.vision_memory.adapter_only_trainer import NOTES, batches, tokenize, train, worth_an_image
from gradkit.cases.vision_memory.attempts import ATTEMPTS
from gradkit.cases.vision_memory.mem_adapter_only import MEMConfig, MEMModel, PageStore, render
from gradkit.cases.vision_memory.verify_gradient_flow import verify_gradient_flow
from gradkit.core.i18n import words
from gradkit.report.report import Report

NO_GRADIENT = "element 0 of tensors does not require grad and does not have a grad_fn"
NEVER_REACHED = ("never_called", "attempt_1", "attempt_2", "attempt_3")
CUTS = {
    "detached": ("detach", "self.pages[key] = memory.detach()"),
    "no_grad_too_wide": ("no_grad_block", "with torch.no_grad():"),
    "no_grad_round_llm": ("no_grad_block", "with torch.no_grad():"),
}
BROKEN = (*NEVER_REACHED, *CUTS)
EVERYTHING = batches(NOTES, len(NOTES))[0]
SHORT = batches(NOTES)[0]


@functools.cache
def diagnosed(name: str) -> Report:
    model, step = programs.make(name)
    return gradkit.diagnose(step, model=model)


def on(model: torch.nn.Module, batch: list[torch.Tensor] = EVERYTHING) -> Report:
    return gradkit.diagnose(lambda: model(batch).loss, model=model)


def called(model: torch.nn.Module, batch: list[torch.Tensor]) -> set[str]:
    """Names of the modules that a forward pass calls."""
    seen: set[str] = set()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: seen.add(name))
    model(batch)
    return seen


# -- the commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(4))
def test_what_was_reported_and_every_attempt_end_in_the_same_error(number: int) -> None:
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        main(["--attempt", str(number)])


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program_raises_in_backward(name: str) -> None:
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        main(["--program", name])


def test_the_fixed_program_trains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--program", "fixed"]) is None
    text = capsys.readouterr().out
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", text)]
    assert "4 of 8 texts" in text
    assert len(losses) == 3
    assert losses[0] - losses[-1] > 0.05


def test_the_comparison_says_what_the_attempts_changed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--compare"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert [line for line in lines if not line.endswith("the same to the last bit")] == lines[-1:]


@pytest.mark.slow
@pytest.mark.parametrize(("given", "status"), [(["--attempt", "3"], 1), (["--program", "fixed", "--verify"], 0)])
def test_it_is_a_command(given: list[str], status: int, tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "gradkit.cases.vision_memory", *given],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(gradkit.__file__).parents[1])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == status
    assert (NO_GRADIENT in child.stderr) is bool(status)


# -- the diagnosis --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEVER_REACHED)
def test_before_and_after_every_attempt_the_batch_does_not_reach_proj(name: str) -> None:
    (finding,) = diagnosed(name).findings
    assert finding.cause == "trainable_unused"
    assert finding.location is not None
    assert finding.location.text.strip() == "self.proj = nn.Sequential("
    assert {parameter.split(".")[0] for parameter in finding.parameters} == {"proj"}
    assert len(finding.parameters) == 4
    assert [(note.kind, note.location.text.strip()) for note in finding.notes if note.location] == [
        ("not_run", "return self.store.put(bytes(old.tolist()), self.proj(features))"),
        ("only_if", "if len(old) >= self.config.render_from:"),
    ]


@pytest.mark.parametrize("name", CUTS)
def test_where_the_suspects_are_guilty_they_are_named_and_it_is_proven(name: str) -> None:
    (finding,) = diagnosed(name).findings
    assert finding.location is not None
    assert (finding.cause, finding.location.text.strip()) == CUTS[name]
    assert Path(finding.location.file).name == "attempts.py"
    assert finding.proof == "proven"


def test_of_a_block_that_takes_in_frozen_layers_first_the_layer_is_named_that_lost_its_gradient() -> None:
    assert diagnosed("no_grad_too_wide").findings[0].module == "proj.0"
    assert diagnosed("no_grad_round_llm").findings[0].module == "base_llm_model.model.layers.0.input_layernorm"


def test_of_the_two_no_grad_blocks_the_one_is_named_that_does_harm() -> None:
    report = diagnosed("no_grad_round_llm")
    assert report.findings[0].location is not None
    assert report.findings[0].location.function == "NoGradRoundLLM.predict"
    assert "MEMModel.read" in {one.location.function for one in report.harmless}


def test_two_cuts_in_a_row_are_both_named_and_either_alone_once_the_other_is_mended() -> None:
    both = on(programs.build(attempts.NoGradTooWide, attempts.DetachingStore))
    assert sorted(finding.cause for finding in both.findings) == ["detach", "no_grad_block"]
    assert [finding.cause for finding in on(programs.build(store=attempts.DetachingStore)).findings] == ["detach"]
    assert [finding.cause for finding in on(programs.build(attempts.NoGradTooWide)).findings] == ["no_grad_block"]


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_on_a_batch_that_reaches_proj_every_version_gets_a_clean_bill(kind: type[MEMModel]) -> None:
    report = on(programs.build(kind))
    assert report.healthy
    assert report.findings == ()


def test_the_suspects_are_looked_at_and_found_harmless() -> None:
    report = diagnosed("fixed")
    assert report.healthy
    texts = {one.location.text.strip() for one in on(programs.build()).harmless}
    assert texts == {"with torch.no_grad():", "self.pages[key] = memory.detach()", "return torch.cat([pad, embeds])"}


# -- why the attempts could not matter ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ATTEMPTS[1:])
def test_an_attempt_leaves_loss_and_gradients_the_same_to_the_last_bit(kind: type[MEMModel]) -> None:
    before, after = programs.gradients(MEMModel), programs.gradients(kind)
    assert all(gradient.norm() > 0 for gradient in before.values())
    assert programs.same(before, after)


def test_bit_by_bit_is_not_met_by_just_anything() -> None:
    one = programs.gradients(MEMModel)
    assert not programs.same(one, {name: value * 1.0001 for name, value in one.items()})
    assert not programs.same(one, {"loss": one["loss"]})


def test_the_batch_that_is_compared_has_padding_and_images() -> None:
    model = programs.build()
    lengths = {len(model.embed(tokens)[0]) for tokens in EVERYTHING}
    assert len(lengths) > 1
    assert len(model.store.pages) == len(worth_an_image(NOTES, model.config)) == 4


def test_train_on_frozen_parts_switches_dropout_on_and_no_gradient() -> None:
    still, noisy = programs.build(MEMModel, dropout=0.1), programs.build(attempts.Attempt3, dropout=0.1)
    losses = [[model(EVERYTHING).loss.item() for _ in range(2)] for model in (still, noisy)]
    assert losses[0][0] == losses[0][1]
    assert losses[1][0] != losses[1][1]
    before, after = programs.gradients(MEMModel, 0.1), programs.gradients(attempts.Attempt3, 0.1)
    assert before.keys() == after.keys()
    assert not programs.same(before, after)


def test_a_frozen_embedding_has_no_grad_fn_and_needs_none() -> None:
    embeds, _ = programs.build().embed(SHORT[0])
    assert (embeds.requires_grad, embeds.grad_fn) == (False, None)
    embeds, _ = programs.build().embed(EVERYTHING[-1])
    assert embeds.requires_grad


# -- the cause ------------------------------------------------------------------------------------------------------


def test_short_texts_run_the_whole_model_but_for_encoder_and_projection() -> None:
    seen = called(programs.build(), SHORT)
    assert "base_llm_model" in seen
    assert not {"ocr_embed", "proj"} & seen
    assert {"ocr_embed", "proj"} <= called(programs.build(), EVERYTHING)


def test_only_the_texts_differ_between_what_was_reported_and_what_trains() -> None:
    broken, fixed = programs.PROGRAMS["never_called"], programs.PROGRAMS["fixed"]
    assert broken[:2] == fixed[:2] == (MEMModel, PageStore)
    assert set(fixed[2]()) < set(broken[2]())


def test_one_text_that_is_rendered_is_enough_for_a_batch() -> None:
    assert on(programs.build(), [*SHORT, EVERYTHING[-1]]).healthy


def test_texts_as_long_as_it_takes_are_kept() -> None:
    config = MEMConfig()
    just = "x" * (config.keep + config.render_from)
    assert worth_an_image([just, just[1:]], config) == [just]
    assert "proj" in called(programs.build(), [tokenize(just)])


def test_training_moves_proj_and_nothing_else() -> None:
    model = programs.build()
    before = {name: p.clone() for name, p in model.named_parameters()}
    train(model, programs.long_notes(), epochs=2)
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if name.startswith("proj.")}


# -- what it prints -------------------------------------------------------------------------------------------------


def test_the_verification_of_a_sound_step_passes_point_by_point(capsys: pytest.CaptureFixture[str]) -> None:
    model = programs.build()
    assert verify_gradient_flow(model, EVERYTHING)
    said = re.sub(r"0x\w+", "0x", re.sub(r"\d+\.\d+", "N", capsys.readouterr().out)).splitlines()
    assert said == [
        "✓ forward pass succeeded", "   loss value: N", "   loss requires_grad: True",
        "   loss grad_fn: <NllLossBackward0 object at 0x>", "✓ backward pass succeeded",
        "✓ proj has a gradient, norm N", "✓ frozen parts have no gradient", "all checks passed",
    ]  # fmt: skip
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("name", BROKEN)
def test_the_verification_stops_every_broken_program(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--program", name, "--verify"]) == 1
    said = capsys.readouterr().out
    assert "loss requires_grad: False\n   loss grad_fn: None\n✗ backward pass failed" in said


def test_the_verification_sees_a_part_that_was_not_frozen_and_a_projection_that_was() -> None:
    model = programs.build(attempts.Attempt1)
    model.ocr_embed.norm.requires_grad_(True)
    assert not verify_gradient_flow(model, EVERYTHING)
    model = programs.build()
    model.proj[2].bias.requires_grad_(False)
    assert not verify_gradient_flow(model, EVERYTHING)


def test_the_parameters_are_counted_part_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    model = programs.build()
    count = sum(p.numel() for p in model.parameters())
    model.print_trainable_parameters()
    said = capsys.readouterr().out
    assert f"trainable params: 3,168 || all params: {count:,} || trainable%: {100 * 3168 / count:.4f}%" in said
    assert "base_llm_model trainable params: 0 (should be 0)" in said
    assert "ocr_embed trainable params: 0 (should be 0)" in said
    assert "proj trainable params: 3,168" in said
    assert "WARNING" not in said


def test_what_should_be_frozen_and_is_not_is_warned_of_and_the_other_way_round(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = programs.build()
    model.ocr_embed.norm.requires_grad_(True)
    model.proj.requires_grad_(False)
    model.print_trainable_parameters()
    said = capsys.readouterr().out
    assert "WARNING: ocr_embed should be frozen but has 64 trainable params!" in said
    assert "WARNING: proj should be trained but has no trainable params!" in said
    assert "WARNING: base_llm_model" not in said


@pytest.mark.parametrize(("kind", "mode"), [(MEMModel, "eval"), (attempts.Attempt3, "train")])
def test_modes_and_trainable_parameters_are_told_apart(
    kind: type[MEMModel], mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train(programs.build(kind), programs.long_notes(), epochs=0)
    said = capsys.readouterr().out
    assert "the whole: train, 3,168 trainable params" in said
    assert f"base_llm_model: {mode}, 0 trainable params" in said
    assert f"ocr_embed: {mode}, 0 trainable params" in said
    assert "proj: train, 3,168 trainable params" in said


def test_the_size_that_was_reported_is_met_to_the_last_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    with torch.device("meta"):
        model = MEMModel(MEMConfig.reported(), PageStore())
    model.print_trainable_parameters()
    said = capsys.readouterr().out
    assert "trainable params: 18,882,560 || all params: 8,607,498,496 || trainable%: 0.2194%" in said
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.slow
def test_the_size_that_was_reported_runs_on_meta_and_is_diagnosed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--counts"])
    assert "requires_grad True" in capsys.readouterr().out
    with torch.device("meta"):
        model = MEMModel(MEMConfig.reported(), PageStore()).train()
    assert [finding.cause for finding in on(model, [torch.arange(20)]).findings] == ["trainable_unused"]


# -- the pieces -----------------------------------------------------------------------------------------------------


def test_a_page_can_be_read_back() -> None:
    tokens = EVERYTHING[-1]
    page = render(tokens, 64, 4)
    glyphs = page[0].view(16, 4, 16, 4).permute(0, 2, 1, 3).reshape(256, 16)
    bytes_read = (glyphs[:, :8].long() << torch.arange(8)).sum(1)
    assert page.shape == (3, 64, 64)
    assert bytes_read[-len(tokens) :].tolist() == tokens.tolist()
    assert bytes_read[: -len(tokens)].eq(0).all()


def test_the_memory_of_a_page_changes_the_loss() -> None:
    model = programs.build()
    before = model(EVERYTHING).loss.item()
    with torch.no_grad():
        model.proj[2].weight.mul_(-1)
    assert abs(model(EVERYTHING).loss.item() - before) > 1e-4


def test_two_pages_are_two_memories() -> None:
    model = programs.build()
    a, b = (model.memory(tokens) for tokens in EVERYTHING[-2:])
    assert a.shape == b.shape == (32, 48)
    assert not torch.allclose(a, b)


# -- the notebook ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_notebook_runs_and_its_cells_show_what_its_text_says(language: str) -> None:
    folder = Path(gradkit.__file__).parents[1] / "notebooks" / language / "cases"
    book = nbformat.read(folder / "vision_memory.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=120, store_widget_state=False).execute(cwd=str(folder))
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    shown = [output.data.get("text/plain", "") for output in outputs if "data" in output]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "(True, False, False, 0)" in shown
    assert "{'Attempt1': True, 'Attempt2': True, 'Attempt3': True}" in shown
    assert [value for value in shown if value in ("True", "False")] == ["False"] * 4 + ["True"]
    assert "(56, [[18, 19, 28, 36], [105, 106, 109, 112]])" in shown
    assert "(True, ['proj.0.weight', 'proj.0.bias', 'proj.2.weight', 'proj.2.bias'])" in shown
    assert said.count("trainable_unused self.proj") == 3
    assert said.count("proven, in") == 3
    reported = {"trained": "18,882,560", "count": "8,607,498,496", "percent": "0.2194"}
    assert words("case.trainable", language, **reported) in said
    assert said.count(words("case.forward", language)) == 5
    assert {"en": "looked at, harmless", "zh": "无害"}[language] in "".join(shown)
