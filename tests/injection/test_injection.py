"""A slice of the injections; ``pytest tests/injection --injections 1000 --injection-seed 7`` is the nightly size."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import gradkit
from tests.injection import architectures, harness
from tests.injection.__main__ import plan, told


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    count, seed = metafunc.config.getoption("--injections"), metafunc.config.getoption("--injection-seed")
    planned = plan(count, seed)
    if "injection" in metafunc.fixturenames:
        metafunc.parametrize("injection", planned, ids=[f"{name}-{number}" for name, number in planned])
    if "architecture" in metafunc.fixturenames:
        metafunc.parametrize("architecture", sorted({name for name, _ in planned}))


def test_a_sound_model_gets_a_clean_bill(architecture: str) -> None:
    it = harness.subject(architecture)
    with architectures.quiet():
        report = gradkit.diagnose(it.step, model=it.model)
    assert report.healthy, str(report)


def test_the_line_and_the_cause_of_what_was_injected_are_named(injection: tuple[str, int]) -> None:
    outcome = harness.inject(*injection)
    assert outcome.right, told(outcome)


def test_there_are_models_of_every_family() -> None:
    families = [one.family for one in architectures.ALL.values()]
    assert families.count("plain") >= 12
    assert len(families) - families.count("plain") >= 60
    assert {"encoder", "decoder", "seq2seq", "vision", "audio", "multimodal", "experts", "recurrent"} <= set(families)


def test_an_injection_repeats_itself() -> None:
    first, second = harness.inject("vae", 3), harness.inject("vae", 3)
    assert (first.edits, first.starved, first.expected) == (second.edits, second.starved, second.expected)


class Blind:
    findings = ()


def test_a_diagnosis_that_finds_nothing_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradkit, "diagnose", lambda *_, **__: Blind())
    verdicts = {harness.inject("vae", seed).verdict for seed in range(12)}
    assert "missed" in verdicts
    assert "named" not in verdicts


def test_an_injection_leaves_the_model_as_it_was() -> None:
    it = harness.subject("tiny_gpt")

    def state() -> list[Any]:
        codes = [function.__code__ for source in it.sources.values() for function in source.functions.values()]
        modules: list[nn.Module] = list(it.model.modules())
        return [*codes, *(type(m) for m in modules), *(set(vars(m)) for m in modules)]

    before = state()
    for seed in range(6):
        harness.inject("tiny_gpt", seed)
    assert state() == before
    assert harness.reached(it.model, it.step) == (it.reached, it.flat)
