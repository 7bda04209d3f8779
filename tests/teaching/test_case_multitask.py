"""The batch with nothing to learn from: it crashes in epoch 6 as reported, and every cure does what the text says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.cases.multitask import __main__ as program
from gradkit.cases.multitask import attempts, price, programs, ranks, train_multitask
from gradkit.cases.multitask.clips import make_loaders, normalize
from gradkit.cases.multitask.train_multitask import build, compute_loss, parse
from gradkit.core.i18n import speaking, words
from gradkit.teaching import examples

NO_GRADIENT = "element 0 of tensors does not require grad and does not have a grad_fn"
CONSTANT = "action_loss = torch.tensor(0.0, device=device)"
CPU = ["--device", "cpu", "--no-amp"]

Made = tuple[torch.nn.Module, Callable[[], torch.Tensor]]


def epochs_told(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^epoch (\d+): train loss", text, re.MULTILINE)]


def losses_told(text: str, which: str) -> list[float]:
    return [float(number) for number in re.findall(rf"{which} loss ([\d.]+)", text)]


# the program


def test_it_trains_for_five_epochs_and_raises_in_the_sixth(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        program.main([*CPU, "--model_type", "action_only", "--batch_size", "2"])
    assert epochs_told(capsys.readouterr().out) == [1, 2, 3, 4, 5]


def test_with_one_clip_a_batch_it_raises_in_the_first_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        program.main([*CPU, "--batch_size", "1"])
    assert epochs_told(capsys.readouterr().out) == []


def test_epoch_6_is_the_first_in_which_a_batch_of_two_has_no_label() -> None:
    loader, _ = make_loaders(2, parse().seed)
    empty = [sum(not batch["action_mask"].any() for batch in loader) for _ in range(6)]
    assert empty[:5] == [0] * 5
    assert empty[5] > 0


def test_most_clips_show_the_same_action_and_some_in_both_loaders_have_no_label() -> None:
    for loader in make_loaders(2, 7):
        clips = loader.dataset.clips
        actions = torch.stack([clip["action"] for clip in clips])
        assert actions.bincount().max() >= len(clips) // 2
        assert 0 < sum(not clip["action_mask"] for clip in clips) < len(clips)


@pytest.mark.parametrize("fix", ["guard", "times_zero", "skip", "every_rank", "agreed"])
def test_with_any_fix_it_trains_to_the_end(fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    program.main([*CPU, "--fix", fix])
    text = capsys.readouterr().out
    assert epochs_told(text) == list(range(1, 9))
    losses = losses_told(text, "train")
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("fix", ["none", "skip"])
@pytest.mark.parametrize("batch_size", ["1", "2"])
def test_the_multitask_model_trains_with_and_without_mixed_precision(
    fix: str, batch_size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for amp in ("--amp", "--no-amp"):
        program.main(["--device", "cpu", amp, "--fix", fix, "--batch_size", batch_size, "--model_type", "multitask",
                      "--epochs", "4"])  # fmt: skip
        losses = losses_told(capsys.readouterr().out, "train")
        assert len(losses) == 4
        assert losses[-1] < 0.8 * losses[0]


def test_mixed_precision_scales_the_loss_and_clips_what_was_unscaled() -> None:
    args = parse(["--device", "cpu", "--amp"])
    model, optimizer, scaler, _, _ = build(args)
    train_multitask.train_step(args, model, programs.clips(labelled=True), optimizer, scaler)
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    assert scaler.get_scale() == 65536
    assert 0.01 < norm < 1.001


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["gradkit.cases.multitask"], 1, NO_GRADIENT),
        (["gradkit.cases.multitask.train_multitask", "--model_type", "multitask", "--epochs", "1"], 0, "epoch 1"),
        (["gradkit.cases.multitask", "--fix", "skip"], 0, "epoch 8"),
        (["gradkit.cases.multitask.price"], 0, "SGD, weight decay"),
    ],
)
def test_every_program_runs_from_the_command_line(
    arguments: list[str], status: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(gradkit.__file__).parents[1]))
    ran = subprocess.run([sys.executable, "-m", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == status, ran.stderr
    assert says in ran.stdout + ran.stderr


# the diagnosis


@pytest.mark.parametrize("make", [programs.make, programs.make_epoch_6])
def test_a_diagnosis_names_the_constant(make: Callable[[], Made]) -> None:
    model, step = make()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.location is not None
    assert (finding.cause, finding.location.text.strip()) == ("constant_loss", CONSTANT)
    assert Path(finding.location.file).name == "train_multitask.py"
    assert set(finding.parameters) == {name for name, _ in model.named_parameters()}


def test_the_step_of_epoch_6_is_the_one_that_raised_and_its_weights_are_trained() -> None:
    model, step = programs.make_epoch_6()
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        step().backward()
    fresh = build(parse(CPU))[0]
    assert not torch.equal(price.weights(model), price.weights(fresh))


def test_in_the_multitask_model_the_same_line_starves_the_action_head_of_this_batch() -> None:
    model, step = programs.make_multitask()
    step().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == [
        "action_head.weight",
        "action_head.bias",
    ]
    model.zero_grad()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert set(finding.parameters) == {"action_head.weight", "action_head.bias"}


@pytest.mark.parametrize("loss_fn", [attempts.times_zero, attempts.every_rank])
def test_of_a_zero_that_hangs_on_something_a_diagnosis_says_what_is_still_wrong(
    loss_fn: Callable[..., torch.Tensor],
) -> None:
    model, step = programs.program(loss_fn)
    report = gradkit.diagnose(step, model=model)
    assert report.healthy
    assert report.barren
    (zero,) = report.harmless
    assert "0.0 * " in zero.location.text
    for language, sentence in (("en", "every gradient is exactly zero"), ("zh", "每个梯度都恰好为零")):
        assert sentence in report.verdict(language)
        assert f"attempts.py:{zero.location.line}" in report.verdict(language)
        assert report.verdict(language) in report.text(language)


@pytest.mark.parametrize("make", [programs.make_fixed, programs.make_multitask_fixed, programs.make_every_rank])
def test_what_is_sound_gets_a_clean_bill(make: Callable[[], Made]) -> None:
    model, step = make()
    report = gradkit.diagnose(step, model=model)
    assert (report.healthy, report.barren) == (True, False)


def test_of_a_step_that_skips_a_diagnosis_says_that_there_is_no_loss() -> None:
    model, step = programs.program(attempts.skip)
    assert step() is None
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.variant) == ("constant_loss", "nothing")
    assert finding.location is not None
    assert "None" in finding.location.text


@pytest.mark.parametrize("name", [name for name in examples.BUILTINS if name.startswith("multitask")])
def test_the_examples_of_the_panel_are_these_programs(name: str) -> None:
    assert gradkit.diagnose(examples.from_builtin(name)).healthy is name.endswith(("fixed", "times_zero"))


# the prices


@pytest.mark.parametrize("optimizer", price.OPTIMIZERS)
def test_a_step_that_is_left_out_moves_no_weight(optimizer: str) -> None:
    for fix in ("guard", "skip", "agreed"):
        for batch in (programs.clips(labelled=False), price.nobody_there()):
            assert price.moved(optimizer, fix, batch) == 0


@pytest.mark.parametrize("fix", ["times_zero", "every_rank"])
def test_a_zero_loss_moves_the_weights_by_momentum_and_weight_decay(fix: str) -> None:
    moved = {optimizer: price.moved(optimizer, fix, programs.clips(labelled=False)) for optimizer in price.OPTIMIZERS}
    assert moved["SGD"] == 0
    assert moved["SGD, momentum"] > 1e-2
    assert moved["Adam"] > 1e-3
    assert moved["AdamW"] > 1e-3
    assert 1e-4 < moved["SGD, weight decay"] < 1e-2


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_on_ranks_names_the_prices_that_are_measured(language: str) -> None:
    with speaking(language):
        told = words("ranks.price")
    for optimizer, figure in [("SGD, momentum", 0.072), ("Adam", 0.0082), ("SGD, weight decay", 0.0007)]:
        moved = price.moved(optimizer, "every_rank", programs.clips(labelled=False))
        assert moved == pytest.approx(figure, rel=0.05)
        assert f"{figure:g}" in told


@pytest.mark.parametrize("optimizer", price.OPTIMIZERS)
def test_a_nan_in_the_clip_gets_in_by_the_output_and_not_by_the_weights(optimizer: str) -> None:
    model, take = price.warmed_up(optimizer, "times_zero")
    take(price.nobody_there())
    assert price.weights(model).isnan().all()
    assert torch.tensor(price.moved(optimizer, "every_rank", price.nobody_there())).isfinite()


def test_beside_a_labelled_clip_a_nan_spoils_the_gradients_whatever_the_cure() -> None:
    labelled, nobody = programs.clips(labelled=True), price.nobody_there()
    mixed = {name: torch.cat([labelled[name], nobody[name]]) for name in labelled}
    kept = {name: value[mixed["action_mask"] > 0] for name, value in mixed.items()}
    args = parse(CPU)
    for batch, spoiled in ((mixed, True), (kept, False)):
        model = build(args)[0]
        attempts.skip(args, model, batch).backward()
        assert any(not p.grad.isfinite().all() for p in model.parameters()) is spoiled


def test_a_clip_in_which_the_detector_finds_nothing_is_nan_as_the_program_normalizes_it() -> None:
    assert normalize(torch.zeros(4, 3, 2)).isnan().all()


# the other beliefs


def test_the_constant_keypoint_loss_was_never_to_blame() -> None:
    args = parse([*CPU, "--model_type", "action_only"])
    loss = compute_loss(args, build(args)[0], programs.clips(labelled=True))
    assert loss.requires_grad
    assert (loss + torch.tensor(0.0)).requires_grad


def test_the_guard_never_fires_beside_the_zero_that_has_a_grad_fn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    program.main([*CPU, "--fix", "times_zero", "--epochs", "6"])
    assert not caplog.records
    program.main([*CPU, "--fix", "guard", "--epochs", "6"])
    assert [record.getMessage() for record in caplog.records] == [
        "[warn] Skipping optimization step: loss doesn't require grad"
    ]


def test_the_guard_lets_a_frozen_model_pass_with_a_warning_and_skip_does_not() -> None:
    args = parse(CPU)
    model, optimizer, scaler, _, _ = build(args)
    model.requires_grad_(False)
    attempts.guarded_step(args, model, programs.clips(labelled=True), optimizer, scaler)
    with pytest.raises(RuntimeError, match=NO_GRADIENT):
        attempts.skipping_step(args, model, programs.clips(labelled=True), optimizer, scaler)


def test_in_validation_the_zero_has_no_history_and_pulls_the_mean_down() -> None:
    args = parse(CPU)
    model, _, _, _, loader = build(args)
    with torch.no_grad():
        assert not attempts.times_zero(args, model, programs.clips(labelled=False)).requires_grad
    reported, accuracy = train_multitask.validate(args, model, loader, attempts.times_zero)
    honest, same = train_multitask.validate(args, model, loader, attempts.skip)
    empty = sum(not batch["action_mask"].any() for batch in loader)
    assert empty
    assert reported == pytest.approx(honest * (1 - empty / len(loader)))
    assert accuracy == same


# two processes


@pytest.mark.slow
def test_two_processes_stay_equal_only_if_both_take_every_step() -> None:
    skip, every, zero, clean = ranks.together(("skip", False), ("every_rank", False), ("times_zero", True),
                                              ("every_rank", True))  # fmt: skip
    assert len(skip[0]) == len(skip[1]) == 2
    assert skip[0][1].startswith("raised")
    assert skip[1][0].startswith("loss none")
    weights = [[re.findall(r"weights (\S+)", text) for text in pair] for pair in every]
    assert weights[0] == weights[1] != []
    assert every == [[text.replace("gradient nan", "") for text in pair] for pair in clean]
    assert all("weights nan" in text for pair in zero for text in pair)
    alone, halved = (float(re.findall(r"gradient ([\d.]+)", text)[0]) for text in (skip[0][0], every[0][0]))
    assert halved == pytest.approx(alone / 2, rel=0.01)


@pytest.mark.slow
def test_without_a_label_on_either_process_a_step_costs_what_it_costs_alone_unless_both_agree_to_skip() -> None:
    first, second = ranks.prices("every_rank", "agreed")
    empty = programs.clips(labelled=False)
    assert first == second
    assert first["every_rank"] == pytest.approx([price.moved(one, "every_rank", empty) for one in price.OPTIMIZERS])
    assert first["agreed"] == [0] * len(price.OPTIMIZERS)


def agreed_on(rank: int, folder: str) -> None:
    """The second process has no label: both take the step, and write down where it has brought a weight."""
    ranks.meet(rank, f"{folder}/meet")
    model, take = price.warmed_up("SGD", "agreed", ranks.DistributedDataParallel)
    before = price.weights(model)
    loss = take(programs.clips(labelled=rank == 0))
    moved = (price.weights(model) - before).abs().max().item()
    Path(folder, f"moved.{rank}").write_text(f"{loss is not None} {moved}")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_both_processes_take_a_step_in_which_one_of_them_has_a_label(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(agreed_on, (str(tmp_path),), nprocs=2)
    said = [Path(tmp_path, f"moved.{rank}").read_text().split() for rank in range(2)]
    assert [taken for taken, _ in said] == ["True", "True"]
    assert said[0][1] == said[1][1]
    assert float(said[0][1]) > 1e-4
