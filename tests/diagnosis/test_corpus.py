"""Programs made after public reports: the first finding stands on a marked line, the cure gets a clean bill.

A file of ``tests/corpus/faulty`` holds ``make()``, the program as reported, and ``make_fixed()``, the same with the
right fix; each line that a right diagnosis names ends in ``# CUT``. A file of ``tests/corpus/healthy`` is sound, and
looks suspicious. ``SHOULD_TRAIN`` names what ought to learn; ``step.optimizer``, where there is one, is in use.

A change that is offered for the program as reported is applied to a copy of it: that learns as the cure does, and is
sound. ``benchmarks/offered_changes.py`` measures the same on any folder of such files.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from packaging.version import Version

import gradkit
from gradkit.report.report import Report
from gradkit.source.changes import applied

FOLDER = Path(__file__).parents[1] / "corpus"
FAULTY = sorted(path.stem for path in (FOLDER / "faulty").glob("*.py"))
HEALTHY = sorted(path.stem for path in (FOLDER / "healthy").glob("*.py"))

# Where the engine falls short today.
SHORT_OF_LINE = {
    # which of two lines that belong together is marked: the one that filled the cache, or the one that hands it out
    "a_half_cast_cache_survives_validation": "names the line that fills the cache, one above the marked one",
}
SHORT_OF_CAUSE: dict[str, str] = {}

# What can be mended on the lines of the program itself; for the others a person has to decide.
OFFERED = [
    "a_actor_critic_memory_rebuilt_as_tensors",
    "a_attention_transfer_detached",
    "a_gathered_features_filled_without_grad",
    "a_generator_step_detached_fake",
    "a_multi_scale_losses_rebuilt_as_leaves",
    "a_trigger_search_through_denoiser",
    "b_feature_extractor_hook_detaches",
    "b_grpo_continues_frozen_adapter",
    "b_sd_lora_text_encoder_checkpoint",
    "b_sentence_encoder_encode_in_loss",
    "b_text_projection_inside_no_grad",
    "b_tinyllava_tune_vision_tower_decorator",
]

# What older releases of torch get wrong themselves: there a finding is right.
FAULTY_BEFORE = {"b_autocast_bf16_cpu_with_earlier_no_grad": "2.10"}


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def case(kind: str, name: str) -> ModuleType:
    """The module of a case, loaded anew: some of them change what they define."""
    return loaded(FOLDER / kind / f"{name}.py")


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def diagnosed(module: ModuleType, maker: str) -> Report:
    model, step = getattr(module, maker)()
    options: dict[str, Any] = {"optimizer": getattr(step, "optimizer", None)}
    if getattr(module, "SHOULD_TRAIN", None):
        options["should_train"] = list(module.SHOULD_TRAIN)
    return gradkit.diagnose(step, model=model, **options)


@functools.cache
def of_the_fault(name: str) -> Report:
    """The report on a faulty program, which several tests look at."""
    return diagnosed(case("faulty", name), "make")


def marked(name: str) -> set[int]:
    text = (FOLDER / "faulty" / f"{name}.py").read_text(encoding="utf-8")
    return {number for number, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith("# CUT")}


def names(short: dict[str, str]) -> list[Any]:
    marks = {name: [pytest.mark.xfail(strict=True, reason=why)] for name, why in short.items()}
    return [pytest.param(name, id=name, marks=marks.get(name, [])) for name in FAULTY]


@pytest.mark.parametrize("name", names(SHORT_OF_LINE))
def test_the_first_finding_stands_on_a_marked_line_of(name: str) -> None:
    report = of_the_fault(name)
    found = [(finding.cause, finding.location and finding.location.line) for finding in report.findings]
    assert found
    assert found[0][1] in marked(name), found
    assert Path(report.findings[0].location.file) == FOLDER / "faulty" / f"{name}.py"


@pytest.mark.parametrize("name", names(SHORT_OF_CAUSE))
def test_the_first_finding_names_the_cause_of(name: str) -> None:
    found = [finding.cause for finding in of_the_fault(name).findings]
    assert found[:1] == [case("faulty", name).CAUSE], found


@pytest.mark.parametrize("name", FAULTY)
def test_a_clean_bill_for_the_cure_of(name: str) -> None:
    assert diagnosed(case("faulty", name), "make_fixed").findings == ()


def changed(name: str, folder: Path) -> Path:
    """A copy of a case with all that is offered for it."""
    tried = [finding.tried for finding in of_the_fault(name).findings if finding.tried is not None]
    lines = dict.fromkeys(line for one in tried for line in one.changes)  # several may stand for one line
    text = (FOLDER / "faulty" / f"{name}.py").read_text(encoding="utf-8")
    copy = folder / f"{name}.py"
    copy.write_text(applied(text, sorted(lines, key=lambda one: (one.number, one.sign != "-"))), encoding="utf-8")
    return copy


def gradients(module: ModuleType, maker: str) -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, step = getattr(module, maker)()
        torch.manual_seed(1)
        loss = step()
        if loss.grad_fn is not None:
            loss.backward()
    return {n: p.grad.flatten().double() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", FAULTY)
def test_a_change_is_offered_where_one_is_known_to_cure(name: str) -> None:
    tried = [finding.tried for finding in of_the_fault(name).findings]
    assert any(one is not None and one.changes for one in tried) is (name in OFFERED)


@pytest.mark.parametrize("name", OFFERED)
def test_with_what_is_offered_each_parameter_learns_as_in_the_cure_of(name: str, tmp_path: Path) -> None:
    original = case("faulty", name)
    meant, made = gradients(original, "make_fixed"), gradients(loaded(changed(name, tmp_path)), "make")
    off = [n for n, g in meant.items() if g.any() and torch.cosine_similarity(made.get(n, 0 * g), g, 0) < 0.99]
    assert off == []


@pytest.mark.parametrize("name", OFFERED)
def test_with_what_is_offered_nothing_is_found_any_more_in(name: str, tmp_path: Path) -> None:
    assert diagnosed(loaded(changed(name, tmp_path)), "make").findings == ()


@pytest.mark.parametrize("name", HEALTHY)
def test_a_clean_bill_for(name: str) -> None:
    sound = Version(torch.__version__) >= Version(FAULTY_BEFORE.get(name, "0"))
    assert (diagnosed(case("healthy", name), "make").findings == ()) is sound


def test_there_are_cases_of_both_kinds_and_none_of_them_is_marked_for_nothing() -> None:
    assert len(FAULTY) >= 30
    assert len(HEALTHY) >= 20
    assert all(marked(name) for name in FAULTY)
    assert set(SHORT_OF_LINE) | set(SHORT_OF_CAUSE) <= set(FAULTY)
