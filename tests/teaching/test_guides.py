"""Guides: each is complete in both languages, and every program, picture of code and claim in them runs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gradkit
from gradkit.core import causes
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking
from gradkit.report.report import Report
from gradkit.teaching import claim as teaching_claim
from gradkit.teaching.guide import (
    STEPS,
    case_source,
    cut_lines,
    guide,
    guides_folder,
    load_case,
    markdown,
    region,
)
from gradkit.witness.listening import listening

CAUSES = causes.causes()
FOLDER = guides_folder("detach").parent
NO_GUIDES = ("__init__.py", "__pycache__", "loops.py")
DIRECTIVE = re.compile(r"^\{\{.*\}\}$", re.MULTILINE)
HAN = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
NO_GRAD_FN = "element 0 of tensors does not require grad"

each_cause = pytest.mark.parametrize("cause", CAUSES)
each_language = pytest.mark.parametrize("language", ["en", "zh"])


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    """Grad mode is put back, whatever a wrong program did to it; warnings stay quiet."""
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def page(cause: str, language: str) -> str:
    return (FOLDER / cause / f"{language}.md").read_text(encoding="utf-8")


def experiments(cause: str) -> dict[str, Callable[[], None]]:
    found = vars(load_case(cause)).items()
    return {name.removeprefix("experiment_"): run for name, run in found if name.startswith("experiment_")}


def program(cause: str, maker: str) -> tuple[torch.nn.Module, Any, dict[str, torch.Tensor]]:
    """A guide's program, and what should train in it, as it is before the first step (which may replace it)."""
    module = load_case(cause)
    model, step = getattr(module, maker)()
    wanted = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if maker == "make" and hasattr(module, "SHOULD_TRAIN"):
        wanted = {name: value_at(model, name) for name in module.SHOULD_TRAIN}
    return model, step, wanted


def value_at(model: torch.nn.Module, name: str) -> torch.Tensor:
    """What stands at a dotted name, also inside a list, where ``get_parameter`` does not look."""
    value: Any = model
    for part in name.split("."):
        value = value[int(part)] if isinstance(value, list) else getattr(value, part)
    return value


def starved(wanted: dict[str, torch.Tensor]) -> list[str]:
    return [name for name, value in wanted.items() if value.grad is None or not value.grad.abs().sum() > 0]


def unmoved(step: Any, wanted: dict[str, torch.Tensor]) -> list[str]:
    """Names that a step of the program's own optimizer leaves as they were, after ``backward``."""
    before = {name: value.clone() for name, value in wanted.items()}
    step.optimizer.step()
    return [name for name, value in wanted.items() if torch.equal(value, before[name])]


def trained(cause: str) -> dict[str, torch.Tensor]:
    """What should train in the wrong program, after a forward pass and a backward."""
    _, step, wanted = program(cause, "make")
    loss = step()
    torch.set_grad_enabled(True)
    loss.backward()
    return wanted


def moved(step: Any, wanted: dict[str, torch.Tensor]) -> float:
    """How far a step that runs its own optimizer moves the parameters."""
    before = [value.detach().clone() for value in wanted.values()]
    step()
    return sum(float((value - old).norm()) for value, old in zip(wanted.values(), before, strict=True))


def leaves(loss: torch.Tensor) -> set[int]:
    """The ``id`` of every tensor that backward from ``loss`` gives a gradient to."""
    seen, todo = set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions]
    return {id(node.variable) for node in seen if hasattr(node, "variable")}


def diagnosed(cause: str, maker: str) -> Report:
    module = load_case(cause)
    model, step = getattr(module, maker)()
    should_train = getattr(step, "should_train", getattr(module, "SHOULD_TRAIN", None))
    optimizer = getattr(step, "optimizer", None)
    return gradkit.diagnose(step, model=model, should_train=should_train, optimizer=optimizer)


def test_there_is_a_guide_for_every_cause_and_for_no_other() -> None:
    assert sorted(path.parent.name for path in FOLDER.glob("*/case.py")) == list(CAUSES)
    assert sorted(path.name for path in FOLDER.iterdir() if path.name not in NO_GUIDES) == list(CAUSES)


def test_an_unknown_cause_is_named_with_the_guides_that_exist() -> None:
    with pytest.raises(GradkitError) as caught:
        guide("detached", "en")
    assert "detached" in str(caught.value)
    assert "no_grad_block" in str(caught.value)


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(GradkitError, match="fr"):
        guide("detach", "fr")


def test_a_part_that_the_program_has_not_is_named() -> None:
    with pytest.raises(GradkitError, match="nowhere"):
        region("detach", "nowhere")


@each_language
@each_cause
def test_a_guide_has_the_six_steps_in_order(cause: str, language: str) -> None:
    made = guide(cause, language)
    assert tuple(step.id for step in made.steps) == STEPS
    assert made.title
    assert made.summary
    assert all(step.title and step.markdown for step in made.steps)


@each_language
@each_cause
def test_no_directive_is_left_in_a_finished_guide(cause: str, language: str) -> None:
    assert "{{" not in markdown(guide(cause, language))


@each_language
@each_cause
def test_the_text_holds_no_code_of_its_own(cause: str, language: str) -> None:
    assert "```" not in page(cause, language)
    assert "# CUT" not in markdown(guide(cause, language))


@each_language
def test_the_last_step_names_the_beliefs_that_have_to_do_with_the_cause(language: str) -> None:
    last = guide("detach", language).steps[-1].markdown
    with speaking(language):
        related = teaching_claim.claims_about("detach")
    assert len(related) >= 3
    for claim in related:
        assert claim.belief in last
        assert f"gradkit claims {claim.id}" in last


@each_cause
def test_both_languages_show_the_same_code_in_the_same_order(cause: str) -> None:
    assert DIRECTIVE.findall(page(cause, "en")) == DIRECTIVE.findall(page(cause, "zh"))
    assert DIRECTIVE.findall(page(cause, "en"))


@each_cause
def test_the_chinese_page_is_stamped_with_the_english_page_that_it_follows(cause: str) -> None:
    stamp = hashlib.sha256(page(cause, "en").encode()).hexdigest()[:12]
    assert f"\nen-hash: {stamp}\n" in page(cause, "zh"), f"read zh.md again, then stamp it: en-hash: {stamp}"


@each_cause
def test_the_program_is_free_of_chinese(cause: str) -> None:
    assert not HAN.search((FOLDER / cause / "case.py").read_text(encoding="utf-8"))


@each_cause
def test_every_experiment_of_the_program_is_cited_once_and_every_cited_one_exists(cause: str) -> None:
    cited = re.findall(r"^\{\{experiment (\w+)\}\}$", page(cause, "en"), re.MULTILINE)
    assert sorted(cited) == sorted(experiments(cause))


@each_cause
def test_every_region_of_the_program_is_shown(cause: str) -> None:
    source = (FOLDER / cause / "case.py").read_text(encoding="utf-8")
    shown = set(re.findall(r"\w+", " ".join(re.findall(r"^\{\{(?:code|diff) (.+)\}\}$", page(cause, "en"), re.M))))
    assert set(re.findall(r"^\s*# \[(\w+)\]$", source, re.M)) - {"end"} == shown


@pytest.mark.parametrize(("cause", "name"), [(cause, name) for cause in CAUSES for name in experiments(cause)])
def test_the_experiment_holds(cause: str, name: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        experiments(cause)[name]()
    torch.set_grad_enabled(True)


# How a wrong program fails: the first word of its FAILS, and what that means. Where it "raises", the message follows.


def backward_raises(cause: str, message: str) -> None:
    """Either nothing is connected to the loss, or backward raises on a loss that does require grad."""
    loss = program(cause, "make")[1]()
    torch.set_grad_enabled(True)
    assert message
    assert loss.requires_grad == (message != NO_GRAD_FN)
    with pytest.raises(RuntimeError, match=re.escape(message)):
        loss.backward()


def step_raises(cause: str, message: str) -> None:
    _, step, _ = program(cause, "make")
    assert message
    with pytest.raises(RuntimeError, match=re.escape(message)):
        step()


def partial(cause: str, _: str) -> None:
    """Another part of the model goes on training."""
    wanted = trained(cause)
    assert 0 < len(starved(wanted)) < len(wanted)


def silent(cause: str, _: str) -> None:
    """Backward runs, and no parameter that should train has a gradient."""
    wanted = trained(cause)
    assert starved(wanted) == list(wanted)


def unmoved_ones(cause: str, _: str) -> None:
    """The gradient arrives, and the optimizer steps past it."""
    _, step, wanted = program(cause, "make")
    step().backward()
    assert starved(wanted) == []
    assert unmoved(step, wanted)


def not_finite(cause: str, _: str) -> None:
    _, step, wanted = program(cause, "make")
    loss = step()
    loss.backward()
    assert loss.isfinite()
    assert any(value.grad.isnan().any() for value in wanted.values())


def hardly_moved(cause: str, _: str) -> None:
    """The step runs its own backward and steps its own optimizer, by far too little."""
    assert moved(*program(cause, "make")[1:]) < moved(*program(cause, "make_fixed")[1:]) / 100


def rebuilt(cause: str, _: str) -> None:
    """Every parameter has a gradient, and so have others, which belong to no model and are new in each step."""
    model, step, wanted = program(cause, "make")
    loss, again, mine = step(), step(), {id(parameter) for parameter in model.parameters()}
    assert leaves(loss) & leaves(again) == mine < leaves(loss)
    loss.backward()
    assert starved(wanted) == []


FAILURES: dict[str, Callable[[str, str], None]] = {
    "raises": backward_raises, "step raises": step_raises, "partial": partial, "silent": silent, "nan": not_finite,
    "unmoved": unmoved_ones, "hardly moved": hardly_moved, "rebuilt": rebuilt,
}  # fmt: skip


@each_cause
def test_the_wrong_program_fails_as_its_guide_says(cause: str) -> None:
    kind, _, message = load_case(cause).FAILS.partition(": ")
    FAILURES[kind](cause, message)


@each_language
def test_every_way_to_fail_is_told_to_contributors(language: str) -> None:
    name = "CONTRIBUTING.md" if language == "en" else "CONTRIBUTING.zh.md"
    page = (Path(__file__).parents[2] / name).read_text(encoding="utf-8")
    assert list(FAILURES) == re.findall(r'^\| `"([\w ]+)[":]', page, re.MULTILINE)


@each_cause
def test_the_cured_program_gives_every_trainable_parameter_a_gradient(cause: str) -> None:
    _, step, wanted = program(cause, "make_fixed")
    loss = step()
    if load_case(cause).FAILS != "hardly moved":
        loss.backward()
    assert wanted.keys() >= set(getattr(load_case(cause), "SHOULD_TRAIN", ()))
    assert wanted
    assert starved(wanted) == []


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if "step.optimizer = " in case_source(cause)])
def test_the_optimizer_of_the_cured_program_moves_every_trainable_parameter(cause: str) -> None:
    _, step, wanted = program(cause, "make_fixed")
    step().backward()
    assert unmoved(step, wanted) == []


@each_cause
def test_the_wrong_part_holds_the_line_to_change(cause: str) -> None:
    lines = case_source(cause).splitlines()
    part = "layers" if any(line.strip() == "# [layers]" for line in lines) else "wrong"
    for number in cut_lines(cause):
        assert lines[number - 1].removesuffix("# CUT").strip() in region(cause, part)
    assert cut_lines(cause)


def variants(cause: str) -> list[str]:
    """The variants that a guide has a program of, each made by ``make_<variant>``."""
    made = (name.removeprefix("make_") for name in vars(load_case(cause)) if name.startswith("make_"))
    return [name for name in made if name != "fixed"]


TAUGHT = {
    "create_graph_missing": {"filled", "handed", "hook", "caller", "default"},
    "trainable_unused": {"bypass", "stopped"},
    "adapter_inactive": {"midway"},
    "adapter_inference_mode": {"config", "saved", "switched"},
    "unused_input": {"again", "plain", "lost", "late", "frozen"},
    "optimizer_mismatch": {"asked_copy", "held_copies", "used_up"},
    "constant_loss": {"without"},
    "custom_function": {"hidden", "recomputed", "none", "zeros", "intermediate"},
    "double_backward": {"carried"},
    "hook_misuse": {"hidden"},
    "frozen_all": {"copied", "unspared", "midway"},
    "params_replaced": {"unknown"},
    "zero_gradient": {"beyond", "extinct"},
}


@each_cause
def test_a_guide_teaches_the_variants_that_it_is_known_for(cause: str) -> None:
    assert set(variants(cause)) == TAUGHT.get(cause, set())
    assert set(variants(cause)) <= set(causes.cause(cause).variants)


@pytest.mark.parametrize(("cause", "variant"), [(cause, one) for cause in CAUSES for one in variants(cause)])
def test_the_engine_names_the_variant_of_its_program(cause: str, variant: str) -> None:
    with listening():
        found = diagnosed(cause, f"make_{variant}").findings[0]
    assert (found.cause, found.variant) == (cause, variant)
    assert found.location is not None
    assert Path(found.location.file) == FOLDER / cause / "case.py"


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause != "unknown"])
def test_the_engine_names_cause_and_line_of_the_wrong_program(cause: str) -> None:
    report = diagnosed(cause, "make")
    found = [(finding.cause, finding.location and finding.location.line) for finding in report.findings]
    assert not report.healthy
    assert found[0][0] == cause, found
    assert found[0][1] in cut_lines(cause), found
    assert Path(report.findings[0].location.file) == FOLDER / cause / "case.py"


def test_the_engine_says_what_it_saw_of_the_program_that_it_does_not_know() -> None:
    (finding,) = diagnosed("unknown", "make").findings
    assert (finding.cause, finding.location) == ("unknown", None)
    assert load_case("unknown").FAILS.partition(": ")[2] in finding.facts["error"]


@each_cause
def test_the_engine_gives_the_cured_program_a_clean_bill(cause: str) -> None:
    report = diagnosed(cause, "make_fixed")
    assert report.findings == ()
    assert report.healthy


def test_a_line_that_builds_a_layer_is_not_said_to_be_called_by_the_step() -> None:
    model, step, _ = program("ddp_unused", "make")
    found = gradkit.diagnose(step, model=model).findings[0]
    assert found.location.function.endswith("__init__")
    assert [note for note in found.notes if note.kind == "called_by"] == []
