"""The whole line: sound programs get a clean bill, every cut is named at its line, the step runs as often as stated."""

from __future__ import annotations

import math
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
from gradkit.core.errors import GradkitError
from tests import snapshots
from tests.programs import cut as cut_programs
from tests.programs import sound as sound_programs
from tests.programs.shared import batch, pair, small


@pytest.mark.parametrize("name", sound_programs.PROGRAMS)
def test_a_clean_bill_for(name: str) -> None:
    model, step = sound_programs.PROGRAMS[name]()
    report = gradkit.diagnose(step, model=model)
    assert report.findings == ()
    assert report.healthy
    wanted = [row for row in report.parameters if row.should_train]
    assert all(row.reached for row in wanted)
    emptied = any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    zero = any(row.grad_norm == 0 for row in wanted)  # does it come back? that takes some steps, and one to ask why not
    drops_out = bool(report.meant.without_influence)
    assert (
        report.runs == 1
        or (report.runs == 2 and emptied)
        or (report.runs <= 3 and drops_out)
        or (report.runs <= 8 and zero)
    )


@pytest.mark.parametrize("name", cut_programs.names())
def test_the_lines_and_the_cause_are_named_of(name: str) -> None:
    program = cut_programs.PROGRAMS[name]
    model, step = program.build()
    report = gradkit.diagnose(step, model=model)
    found = [(finding.cause, finding.location and finding.location.line) for finding in report.findings]
    assert {line for _, line in found} == program.lines, found
    assert program.cause in {cause for cause, _ in found}, found
    assert all(finding.location.file == program.file for finding in report.findings)


# -- how often the step runs ------------------------------------------------------------------------------------------


def counted(step: Callable[[], Any]) -> tuple[Callable[[], Any], SimpleQueue[int]]:
    runs: SimpleQueue[int] = SimpleQueue()  # a list would be put back

    def run() -> Any:
        runs.put(1)
        return step()

    return run, runs


def cut_program() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model, x = pair(), batch()
    return model, lambda: model["outer"](model["inner"](x).detach()).sum()


def nan_program() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model, x = small(), batch()
    return model, lambda: (model(x) - model(x)).pow(2).sum().sqrt()


@pytest.mark.parametrize("build", [cut_program, nan_program, sound_programs.PROGRAMS["a_bidirectional_lstm"]])
def test_without_replay_the_step_runs_exactly_once(build: Any) -> None:
    model, step = build()
    step, runs = counted(step)
    report = gradkit.diagnose(step, model=model, replay=False)
    assert runs.qsize() == report.runs == 1


@pytest.mark.parametrize(("build", "expected"), [(cut_program, 6), (nan_program, 2)])
def test_with_replay_the_report_states_how_often_the_step_ran(build: Any, expected: int) -> None:
    model, step = build()
    step, runs = counted(step)
    report = gradkit.diagnose(step, model=model)
    assert runs.qsize() == report.runs == expected


def test_a_step_that_raises_is_not_run_again() -> None:
    def step() -> torch.Tensor:
        raise ValueError("no data")

    step, runs = counted(step)
    with pytest.raises(GradkitError, match="no data"):
        gradkit.diagnose(step, model=small())
    assert runs.qsize() == 1


def test_showing_a_report_never_runs_the_step() -> None:
    model, step = cut_program()
    step, runs = counted(step)
    report = gradkit.diagnose(step, model=model)
    before = runs.qsize()
    for language in ("en", "zh"):
        report.text(language), report.html(language, with_picture=False), report.verdict(language)
    assert runs.qsize() == before


# -- what it is asked -------------------------------------------------------------------------------------------------


def test_parameters_that_need_not_train_are_not_missed() -> None:
    model, step = cut_program()
    assert gradkit.diagnose(step, model=model, should_train=["outer.*"]).healthy
    assert gradkit.diagnose(step, model=model, should_train=["inner.weight"]).findings[0].parameters == (
        "inner.weight",
    )


def test_a_pattern_without_a_parameter_is_an_error() -> None:
    model, step = cut_program()
    with pytest.raises(GradkitError, match=r"projj\.\*"):
        gradkit.diagnose(step, model=model, should_train=["projj.*"])


def test_a_step_that_returns_no_tensor_is_an_error_that_names_what_it_returned() -> None:
    with pytest.raises(GradkitError, match="str"):
        gradkit.diagnose(lambda: "loss", model=small())


def test_an_optimizer_that_misses_a_parameter_is_found() -> None:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["inner"].parameters(), lr=0.1)
    report = gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model, optimizer=optimizer)
    assert [finding.cause for finding in report.findings] == ["optimizer_mismatch"]
    assert report.findings[0].parameters == ("outer.weight", "outer.bias")


def test_of_a_probe_the_report_says_what_gets_a_gradient_and_is_held_by_no_optimizer() -> None:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.1)
    report = gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model, optimizer=optimizer)
    assert report.healthy
    assert report.meant.unheld == ("inner.weight", "inner.bias")
    assert "2 parameters receive a gradient, and no optimizer at hand holds them (SGD)" in report.text("en")


def test_what_a_probe_leaves_out_is_accused_once_it_is_named() -> None:
    model, x = pair(), batch()
    optimizer = torch.optim.SGD(model["outer"].parameters(), lr=0.1)
    step = lambda: model["outer"](model["inner"](x)).sum()  # noqa: E731
    report = gradkit.diagnose(step, model=model, optimizer=optimizer, should_train=["inner.*", "outer.*"])
    assert [finding.cause for finding in report.findings] == ["optimizer_mismatch"]
    assert report.meant.unheld == ()


@pytest.mark.parametrize(("taken", "left"), [(0, "narrow"), (1, "wide")])
def test_of_tensors_that_are_brought_to_one_shape_each_comes_from_its_own(taken: int, left: str) -> None:
    model = nn.Module()
    model.wide, model.narrow = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2))
    report = gradkit.diagnose(lambda: torch.broadcast_tensors(model.wide, model.narrow * 2)[taken].sum(), model=model)
    assert [(one.cause, one.parameters) for one in report.findings] == [("trainable_unused", (left,))]


def test_an_optimizer_that_holds_more_than_the_model_is_fine() -> None:
    model, x, other = pair(), batch(), nn.Linear(1, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    assert gradkit.diagnose(lambda: model["outer"](model["inner"](x)).sum(), model=model, optimizer=optimizer).healthy


def test_a_model_and_a_batch_are_enough() -> None:
    model = small()
    report = gradkit.diagnose(model, batch(), loss=lambda output, given: F.mse_loss(output, given[:, :1]))
    assert report.healthy


def test_progress_is_told_each_stage_in_order() -> None:
    model, step = cut_program()
    stages: list[str] = []
    gradkit.diagnose(step, model=model, progress=stages.append)
    assert stages == ["trace", "reach", "cuts", "replay", "causes", "changes"]


# -- what it says -----------------------------------------------------------------------------------------------------


def test_a_proof_names_the_parameters_that_came_alive() -> None:
    model, step = cut_program()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.proof == "proven"
    assert finding.revived == finding.parameters == ("inner.weight", "inner.bias")
    assert finding.numel == 20
    assert finding.reruns == 1


def test_without_replay_nothing_is_called_proven() -> None:
    model, step = cut_program()
    (finding,) = gradkit.diagnose(step, model=model, replay=False).findings
    assert finding.proof == "likely"
    assert finding.revived == ()


def test_cuts_one_behind_the_other_are_proven_together() -> None:
    model, step = cut_programs.PROGRAMS["four_cuts_one_behind_the_other"].build()
    report = gradkit.diagnose(step, model=model)
    assert [finding.proof for finding in report.findings] == ["proven"] * 4


def test_a_rerun_that_raises_leaves_the_first_run_standing() -> None:
    model, once = pair(), SimpleQueue()
    once.put(batch())
    report = gradkit.diagnose(lambda: model["outer"](model["inner"](once.get_nowait()).detach()).sum(), model=model)
    assert [(finding.cause, finding.proof) for finding in report.findings] == [("detach", "likely")]


def test_a_loss_that_backward_refuses_is_no_clean_bill() -> None:
    model, x = nn.Module(), batch().to(torch.cfloat)
    model.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.cfloat))
    report = gradkit.diagnose(lambda: (x @ model.weight).sum(), model=model)
    assert not report.healthy


def test_a_loss_without_elements_is_no_clean_bill() -> None:
    model, x = small(), batch()
    report = gradkit.diagnose(lambda: model(x)[:0], model=model)
    assert [finding.cause for finding in report.findings] == ["non_scalar"]


class Refusing(torch.autograd.Function):
    """Raises in backward what no backward of torch's raises."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        raise ValueError("wrong shape in my backward")


def test_an_error_in_backward_becomes_a_finding_that_quotes_it() -> None:
    model, x = small(), batch()
    report = gradkit.diagnose(lambda: Refusing.apply(model(x)).sum(), model=model)
    assert not report.healthy
    assert "wrong shape in my backward" in report.text()


def test_an_error_in_backward_is_not_called_a_missing_connection() -> None:
    model, x = small(), batch()
    report = gradkit.diagnose(lambda: Refusing.apply(model(x)).sum(), model=model)
    assert "connected" not in report.verdict().replace("Every parameter is connected", "")
    assert "raises" in report.verdict()


def test_lazy_modules_that_have_no_shape_yet_are_an_error_that_says_what_to_do() -> None:
    model, x = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()), batch()
    with pytest.raises(GradkitError, match="once"):
        gradkit.diagnose(lambda: model(x).sum(), model=model)
    model(x)
    assert gradkit.diagnose(lambda: model(x).pow(3).sum(), model=model).healthy


def test_a_model_without_parameters_is_no_crash() -> None:
    x = batch()
    assert gradkit.diagnose(lambda: nn.ReLU()(x).sum(), model=nn.ReLU()).runs == 1


def test_a_diagnosis_inside_of_a_diagnosed_step_is_no_crash() -> None:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        assert gradkit.diagnose(lambda: model(x).sum(), model=model).healthy
        return model(x).sum()

    assert gradkit.diagnose(step, model=model).healthy


def test_a_parameter_that_is_only_logged_is_called_unused_even_if_its_value_turns_up_as_a_constant() -> None:
    model, x, log = nn.ModuleDict({"main": small(), "aux": nn.Linear(4, 1)}), batch(), []

    def step() -> torch.Tensor:
        hits = (model["aux"](x) > -1e9).float().sum()
        log.append(float(hits))
        return model["main"](x).sum() * 6.0

    report = gradkit.diagnose(step, model=model)
    assert [finding.cause for finding in report.findings] == ["trainable_unused"]


def test_a_forgotten_loss_that_is_only_logged_is_called_unused() -> None:
    model, x, history = nn.ModuleDict({"main": small(), "aux": nn.Linear(4, 1)}), batch(), []

    def step() -> torch.Tensor:
        aux = model["aux"](x).sum()
        history.append(aux.item())
        labels = torch.tensor([[float(i)] for i in range(6)])
        return F.mse_loss(model["main"](x), labels)

    report = gradkit.diagnose(step, model=model)
    assert [finding.cause for finding in report.findings] == ["trainable_unused"]
    assert report.findings[0].also[0].text.strip() == "history.append(aux.item())"


class LogsInside(nn.Module):
    """Logs one branch for the eye, and weighs the other by a number from a setting."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.aux = nn.Linear(4, 1), nn.Linear(4, 1)
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor, weight: float) -> torch.Tensor:
        self.seen.append(self.aux(x).mean().item())
        return self.main(x).sum() * torch.tensor(weight + 0.5)


def test_a_module_that_logs_a_branch_is_not_taken_for_a_round_trip_because_one_line_called_it() -> None:
    model, x = LogsInside(), batch()
    report = gradkit.diagnose(lambda: model(x, 1.0), model=model)
    assert [finding.cause for finding in report.findings] == ["trainable_unused"]


def test_a_number_logged_in_a_callee_is_not_what_the_same_line_makes_a_tensor_of() -> None:
    model, x, weight = LogsInside(), batch(), 2.0

    def step() -> torch.Tensor:
        return model(x, 1.0) * torch.tensor(weight)

    report = gradkit.diagnose(step, model=model)
    assert [finding.cause for finding in report.findings] == ["trainable_unused"]


def test_a_number_from_a_callee_inside_of_tensor_is_a_round_trip() -> None:
    model, x = small(), batch()

    def score(row: torch.Tensor) -> float:
        return round(math.sqrt(abs(model(row).sum().item())), 9)

    def step() -> torch.Tensor:
        return torch.tensor([score(row) for row in x]).mean()

    out, back = gradkit.diagnose(step, model=model).findings
    assert (out.cause, back.cause) == ("python_roundtrip", "rewrap_tensor")
    assert out.location is not None
    assert out.location.text.strip().endswith(".item())), 9)")
    assert back.location is not None
    assert "torch.tensor" in back.location.text


# -- models of transformers and peft ----------------------------------------------------------------------------------

IDS = torch.tensor([[5, 9, 2, 7], [3, 3, 8, 1]])
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def gpt2() -> Any:
    import transformers

    config = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def bert() -> Any:
    import transformers

    config = transformers.BertConfig(vocab_size=64, max_position_embeddings=32, **SIZES)
    return transformers.BertForMaskedLM(config)


def t5() -> Any:
    import transformers

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(vocab_size=64, decoder_start_token_id=0, **sizes)
    return transformers.T5ForConditionalGeneration(config)


def llama() -> Any:
    import transformers

    config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=1, **SIZES)
    return transformers.LlamaForCausalLM(config)


def gpt2_with_checkpoints() -> Any:
    model = gpt2().train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def gpt2_with_lora() -> Any:
    import peft

    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    return peft.get_peft_model(gpt2(), config)


def gpt2_with_prompt_tuning() -> Any:
    import peft

    return peft.get_peft_model(gpt2(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [gpt2, bert, t5, llama, gpt2_with_checkpoints, gpt2_with_lora, gpt2_with_prompt_tuning]
)
def test_a_clean_bill_and_nothing_left_behind_for_the_language_model(build: Callable[[], Any]) -> None:
    model = build()
    before = snapshots.take(model)
    assert gradkit.diagnose(lambda: model(input_ids=IDS, labels=IDS).loss, model=model).findings == ()
    assert snapshots.differences(before, snapshots.take(model)) == []


@pytest.mark.slow
def test_of_a_vision_transformer_only_the_truly_unused_is_told_aside() -> None:
    import transformers

    model = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=8, **SIZES))
    pixels = torch.randn(2, 3, 16, 16)
    report = gradkit.diagnose(lambda: model(pixels).last_hidden_state.mean(), model=model)
    assert report.findings == ()
    assert report.meant.left == ("pooler.dense.weight", "pooler.dense.bias")


@pytest.mark.slow
def test_a_detach_in_front_of_a_language_model_is_named_at_its_line() -> None:
    model = nn.ModuleDict({"lm": gpt2(), "project": nn.Linear(4, 16)})
    model["lm"].requires_grad_(False)
    images = torch.randn(2, 4)

    def step() -> torch.Tensor:
        words = model["lm"].transformer.wte(IDS)
        seen = model["project"](images).detach()[:, None]
        return model["lm"](inputs_embeds=torch.cat([seen, words], 1)).logits.mean()

    (finding,) = gradkit.diagnose(step, model=model).findings
    assert (finding.cause, finding.proof) == ("detach", "proven")
    assert 'model["project"](images).detach()' in finding.location.text


class Narrow(nn.Module):
    """Loses the gradient of its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x).detach())


@pytest.mark.parametrize("compiled", [torch.jit.script, lambda model: torch.jit.trace(model, torch.ones(2, 4))])
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_of_a_cut_inside_a_scripted_module_it_is_said_that_it_cannot_be_seen(compiled: Any) -> None:
    model = nn.ModuleDict({"inside": compiled(Narrow())})
    report = gradkit.diagnose(lambda: model["inside"](torch.ones(3, 4)).sum(), model=model)
    (finding,) = report.findings
    assert (finding.cause, finding.location, finding.variant) == ("unknown", None, "scripted")
    assert set(finding.parameters) == {"inside.inner.weight", "inside.inner.bias"}
