"""A change is offered only if it cures: applied to a copy of the program, it gives the gradients that were meant."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.records import Finding
from gradkit.report import fix
from gradkit.types import Report
from tests.programs import judged
from tests.programs.judged import Judged

COUNT = itertools.count()


def imported(file: Path) -> ModuleType:
    """A file as a module of its own, so that nothing of an earlier state of it is left."""
    copy = file.with_name(f"judged_{next(COUNT)}.py")
    shutil.copy(file, copy)
    spec = importlib.util.spec_from_file_location(copy.stem, copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[copy.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[ModuleType]:
    before = set(sys.modules)
    yield imported(Path(shutil.copy(judged.__file__, tmp_path / "programs.py")))
    for name in set(sys.modules) - before:
        if name.startswith("judged_"):
            del sys.modules[name]


def diagnosed(program: Judged) -> Report:
    return gradkit.diagnose(program.step, model=program.model, optimizer=program.optimizer)


def offered(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.tried is not None and finding.tried.changes]


def cured(programs: ModuleType, report: Report) -> ModuleType:
    """The program after every offered change was written into its file."""
    assert programs.__file__ is not None
    file = Path(programs.__file__)
    for finding in offered(report):
        assert finding.tried is not None
        fix.apply_edit(file, finding.tried.changes)
    return imported(file)


def gradients(program: Judged) -> dict[str, torch.Tensor | None]:
    """What each optimizer of the program would take after one step of its own, or one backward of its loss."""
    program.model.zero_grad()
    loss = program.step()
    if loss.grad_fn is not None and all(p.grad is None for p in program.model.parameters()):
        loss.backward()
    return {name: parameter.grad for name, parameter in program.model.named_parameters()}


def assert_alike(one: dict[str, torch.Tensor | None], other: dict[str, torch.Tensor | None]) -> None:
    assert one.keys() == other.keys()
    for name, grad in one.items():
        meant = other[name]
        assert (grad is None) == (meant is None), name
        if grad is not None and meant is not None:
            cosine = torch.cosine_similarity(grad.flatten().double(), meant.flatten().double(), 0)
            assert float(cosine) >= 0.99, name


CURED = (
    "generated_once", "handed_back", "a_block_round_frozen_and_trained", "kept_in_an_attribute", "a_decorated_method",
    "a_block_round_teacher_and_student", "a_carried_state", "detached_in_a_helper", "reentrant",
)  # fmt: skip


@pytest.mark.parametrize("name", CURED)
def test_the_offered_change_gives_the_gradients_that_were_meant(programs: ModuleType, name: str) -> None:
    report = diagnosed(getattr(programs, name)())
    assert offered(report)
    after = cured(programs, report)
    assert_alike(gradients(getattr(after, name)()), gradients(getattr(after, f"{name}_fixed")()))


@pytest.mark.parametrize("name", CURED)
def test_after_the_offered_change_nothing_is_found_any_more(programs: ModuleType, name: str) -> None:
    after = cured(programs, diagnosed(getattr(programs, name)()))
    assert diagnosed(getattr(after, name)()).findings == ()


# -- what is withheld, and why ----------------------------------------------------------------------------------------


def test_a_detach_that_gives_the_encoder_its_gradient_stays() -> None:
    report = diagnosed(judged.straight_through())
    (finding,) = report.findings
    assert (finding.variant, finding.tried) == ("straight_through", None)
    assert finding.notes[0].kind == "straight_through"
    assert "leave that line as it is" in report.text("en")


def test_features_of_a_stem_are_to_be_computed_anew_and_not_detached() -> None:
    report = diagnosed(judged.features_before_the_loop())
    assert [finding.variant for finding in report.findings] == ["once"]
    assert offered(report) == []
    assert "compute it again" in report.text("en")


def test_a_leaf_that_each_step_makes_anew_is_missed_by_nobody() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(5, 4).requires_grad_(False), nn.Linear(4, 1)
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            inputs = self.table(ids).requires_grad_(True)  # as enable_input_require_grads() does
            with torch.no_grad():
                scaled = inputs * self.scale
            out: torch.Tensor = self.head(inputs + scaled)
            return out

    torch.manual_seed(0)
    net = Adapted()
    (finding,) = gradkit.diagnose(lambda: net(torch.arange(5)).square().mean(), model=net).findings
    assert finding.tried is not None
    assert (finding.cause, finding.tried.outcome, finding.tried.gained) == ("no_grad_block", "cures", ("scale",))


def test_the_loss_of_a_generator_is_not_kept_from_it(programs: ModuleType) -> None:
    (finding,) = diagnosed(programs.generated_once()).findings
    assert finding.tried is not None
    assert finding.tried.kind == "earlier"
    assert finding.tried.other is not None
    assert finding.tried.other.why == "term"


def test_what_is_stored_is_stored_without_its_history(programs: ModuleType) -> None:
    (finding,) = diagnosed(programs.handed_back()).findings
    assert finding.tried is not None
    assert finding.tried.kind == "stored"
    assert finding.tried.other is not None
    assert finding.tried.other.why == "keeps"


def test_a_teacher_that_no_optimizer_holds_stays_in_the_block(programs: ModuleType) -> None:
    (finding,) = diagnosed(programs.a_block_round_teacher_and_student()).findings
    assert finding.tried is not None
    assert finding.tried.other is not None
    assert (finding.tried.other.why, finding.tried.other.harmed) == ("reaches", ("teacher.bias", "teacher.weight"))


def test_a_change_that_may_not_be_tried_is_not_offered() -> None:
    program = judged.detached_in_a_helper()
    report = gradkit.diagnose(program.step, model=program.model, replay=False)
    (finding,) = report.findings
    assert finding.tried is not None
    assert (finding.tried.outcome, finding.tried.why, finding.tried.changes) == ("untried", "not_run", ())
    assert report.runs == 1


def test_a_change_to_a_line_before_the_step_is_not_tried() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), torch.randn(6, 4)

    def features() -> torch.Tensor:
        with torch.no_grad():
            return model[0](x)

    kept = features()
    report = gradkit.diagnose(lambda: model[1](kept).sum(), model=model)
    assert offered(report) == []


class Stepped(nn.Module):
    """Keeps how far it has come, as a tensor that is made when it is first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.rate, self.steps = nn.Linear(4, 1), None

    def forward(self) -> torch.Tensor:
        if self.steps is None:
            self.steps = torch.arange(4.0)
        return self.rate(self.steps).sum()


@torch.inference_mode()
def look(model: nn.Module) -> float:
    return float(model())


def test_a_decorator_of_what_ran_before_the_step_is_not_taken_off_for_a_trial() -> None:
    model = Stepped()
    look(model)
    (found,) = gradkit.diagnose(model, model=model).findings
    assert found.cause == "inference_mode"
    assert found.location.text == "@torch.inference_mode()"
    assert (found.tried.outcome, found.tried.why) == ("untried", "setup")


def test_a_change_is_tried_with_the_others_where_it_is_no_use_alone() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), torch.randn(6, 4)

    def step() -> torch.Tensor:
        code = model[0](x).detach()
        code = code.tanh().data
        return model[1](code).sum()

    found = gradkit.diagnose(step, model=model).findings
    assert [finding.tried.why for finding in found if finding.tried is not None] == ["together", "together"]


# -- what is meant to learn -------------------------------------------------------------------------------------------


def test_a_copy_that_no_optimizer_holds_is_not_expected_to_learn() -> None:
    report = diagnosed(judged.a_target_that_is_a_copy())
    assert report.healthy
    assert report.meant.source == "optimizer"
    assert len(report.meant.apart) == 4
    assert "gradkit takes what should learn from Adam" in report.text("en")
    assert report.data()["meant"]["optimizer"] == "Adam"


def test_what_is_named_is_expected_to_learn_whatever_the_optimizer_holds() -> None:
    program = judged.a_target_that_is_a_copy()
    report = gradkit.diagnose(
        program.step, model=program.model, optimizer=program.optimizer, should_train=["online.*", "target.*"]
    )
    assert "no_grad_block" in [finding.cause for finding in report.findings]


def test_what_a_gradient_reaches_behind_what_learns_was_forgotten() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), torch.randn(6, 4)
    report = gradkit.diagnose(lambda: model(x).sum(), model=model, optimizer=torch.optim.SGD(model[0].parameters()))
    assert [finding.cause for finding in report.findings] == ["optimizer_mismatch"]


# -- no trace ---------------------------------------------------------------------------------------------------------


def test_afterwards_every_function_has_its_own_code_again() -> None:
    functions = [judged.Decorated.encode, judged.Store.put, judged.Keeping.forward, judged._scaled]
    before = [function.__code__ for function in functions]
    for name in ("a_decorated_method", "handed_back", "kept_in_an_attribute", "detached_in_a_helper"):
        diagnosed(getattr(judged, name)())
    assert all(function.__code__ is code for function, code in zip(functions, before, strict=True))


def test_an_interrupt_while_a_change_is_tried_leaves_nothing_behind() -> None:
    program = judged.detached_in_a_helper()
    before, code = copy.deepcopy(program.model.state_dict()), judged._scaled.__code__
    changed = []

    def step() -> torch.Tensor:
        changed.append(judged._scaled.__code__ is not code)
        if changed.count(True) == 2:
            raise KeyboardInterrupt
        return program.step()

    with pytest.raises(KeyboardInterrupt):
        gradkit.diagnose(step, model=program.model)
    assert judged._scaled.__code__ is code
    assert all(torch.equal(now, before[name]) for name, now in program.model.state_dict().items())
    assert all(parameter.grad is None for parameter in program.model.parameters())


def test_weights_and_optimizer_are_as_before_although_it_stepped() -> None:
    program = judged.a_block_round_teacher_and_student()
    assert program.optimizer is not None
    before = copy.deepcopy((program.model.state_dict(), program.optimizer.state_dict()))
    diagnosed(program)
    now = program.model.state_dict()
    assert all(torch.equal(now[name], value) for name, value in before[0].items())
    assert program.optimizer.state_dict() == before[1]


def test_a_sound_step_runs_once() -> None:
    assert diagnosed(judged.detached_in_a_helper_fixed()).runs == 1


# -- what is stored, and what is said of it ----------------------------------------------------------------------------


class Held:
    value: torch.Tensor | None = None


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.out, self.held = nn.Linear(4, 4), nn.Linear(4, 4), Held()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.held.value = torch.sigmoid(self.gate(x)).data
        return self.read(x)

    def read(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(x * self.held.value)
        return out


def test_one_pass_that_is_kept_until_the_next_does_no_harm_where_nothing_else_cures() -> None:
    torch.manual_seed(0)
    net, x = Gated(), torch.randn(2, 4)
    report = gradkit.diagnose(lambda: net(x).square().mean(), model=net)
    (finding,) = report.findings
    assert finding.tried is not None
    assert (finding.tried.outcome, finding.tried.why) == ("cures", "replaced")
    assert "until the next pass replaces it" in report.text("en")
    assert "到下一次就被替换" in report.text("zh")


def _with_a_list() -> tuple[nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), []


def test_what_is_put_into_a_list_for_later_is_put_there_without_its_history() -> None:
    net, kept = _with_a_list()
    optimizer, x = torch.optim.SGD(net.parameters(), 0.1), torch.randn(2, 4)

    def step() -> torch.Tensor:
        for _ in range(2):
            optimizer.zero_grad()
            out = net(x)
            kept.append(out)
            loss = out.square().mean() + 0.1 * (kept[0] - out).square().mean()
            loss.backward()
            optimizer.step()
        return loss

    report = gradkit.diagnose(step, model=net, optimizer=optimizer)
    (finding,) = report.findings
    assert finding.tried is not None
    assert [change.text.strip() for change in finding.tried.changes] == [
        "kept.append(out)",
        "kept.append(out.detach())",
    ]
    assert "compute it again" not in report.text("en")


def test_a_fault_of_the_trial_itself_is_not_told() -> None:
    net, kept = _with_a_list()
    optimizer, x = torch.optim.SGD(net.parameters(), 0.1), torch.randn(2, 4)

    def step() -> torch.Tensor:
        for _ in range(3):
            kept.append(net(x).mean())
            loss = torch.stack(kept).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    report = gradkit.diagnose(step, model=net, optimizer=optimizer)
    assert report.findings[0].cause == "double_backward"
    assert "has no attribute" not in report.text("en")


def test_words_that_were_not_tried_are_marked_as_such_in_both_languages() -> None:
    report = diagnosed(judged.straight_through())
    assert "(advice, not tried)" in report.text("en")
    assert "仅为建议" in report.text("zh")
    offered_one = diagnosed(judged.kept_in_an_attribute())
    assert "advice" not in offered_one.text("en")
