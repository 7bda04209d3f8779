"""Beliefs about autograd: each has an experiment whose verdict still holds, and a text in both languages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.version import Version

import gradkit
from gradkit.cli import FINDINGS, HEALTHY, main
from gradkit.core import causes
from gradkit.core.errors import GradkitError
from gradkit.teaching import bilingual, experiment
from gradkit.teaching import claim as teaching_claim

FOLDER = teaching_claim.claims_folder()
HAN = re.compile(r"[\u4e00-\u9fff]")

each_claim = pytest.mark.parametrize("name", teaching_claim.claim_names())
each_language = pytest.mark.parametrize("language", ["en", "zh"])


def text(name: str, language: str) -> str:
    return (FOLDER / name / f"{language}.md").read_text(encoding="utf-8")


WAS_TRUE_BEFORE = {"no_grad_spoils_autocast": "2.10"}


@each_claim
def test_the_verdict_still_holds_on_this_torch(name: str) -> None:
    claim = teaching_claim.claim(name, "en")
    seen = claim.run()
    older = Version(torch.__version__) < Version(WAS_TRUE_BEFORE.get(name, "0"))
    assert seen.verdict == ("true" if older else claim.verdict), seen
    if claim.verdict == "depends":
        assert set(seen.holds) == set(claim.holds), seen


@each_language
@each_claim
def test_every_observation_has_a_name_and_there_is_no_other_name(name: str, language: str) -> None:
    claim = teaching_claim.claim(name, language)
    seen = claim.run()
    named = {row.key for row in seen.rows}
    assert named <= set(claim.labels) if seen.recorded else named == set(claim.labels)


@each_language
@each_claim
def test_the_text_is_whole(name: str, language: str) -> None:
    claim = teaching_claim.claim(name, language)
    assert claim.belief
    assert claim.answer
    assert claim.why
    assert claim.instead
    assert claim.topic in teaching_claim.TOPICS
    assert claim.verdict in ("true", "false", "depends")
    assert bool(claim.holds) == (claim.verdict == "depends")
    assert set(claim.causes) <= set(causes.causes())
    assert all(address.startswith(("https://", "http://")) for address in claim.sources)


@each_claim
def test_the_chinese_text_is_chinese_and_stamped_with_the_english_that_it_follows(name: str) -> None:
    stamp = bilingual.stamp(text(name, "en"))
    assert f"\nen-hash: {stamp}\n" in text(name, "zh"), f"read zh.md again, then stamp it: en-hash: {stamp}"
    claim = teaching_claim.claim(name, "zh")
    words = (claim.belief, claim.answer, claim.why, *claim.labels.values())
    assert [each for each in words if not HAN.search(each) and re.search(r"[a-z]{2,} [a-z]{2,}", each)] == []
    assert not HAN.search(text(name, "en").replace("velog.io/@rhss10", ""))


@each_claim
def test_an_experiment_leaves_random_state_and_grad_mode_as_they_were(name: str) -> None:
    state = torch.get_rng_state()
    teaching_claim.claim(name, "en").run()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    "name", [name for name in teaching_claim.claim_names() if teaching_claim.claim(name, "en").needs]
)
def test_one_that_needs_a_gpu_has_a_record_of_where_it_was_run(name: str) -> None:
    record = experiment.from_record((FOLDER / name / "record.json").read_text(encoding="utf-8"))
    assert record.verdict == teaching_claim.claim(name, "en").verdict
    assert record.device.startswith("NVIDIA")
    assert record.version


def test_there_are_beliefs_of_every_kind_and_many_with_a_public_source() -> None:
    known = gradkit.claims("en")
    assert {one.verdict for one in known} == {"true", "false", "depends"}
    assert {one.topic for one in known} == set(teaching_claim.TOPICS)
    assert sum(bool(one.sources) for one in known) >= 15


def test_the_verdict_is_true_if_all_is_as_believed_false_if_nothing_is_and_else_depends() -> None:
    believed = {"a": 1, "b": 2}
    assert gradkit.judge(believed, {"a": 1, "b": 2, "more": 3}).verdict == "true"
    assert gradkit.judge(believed, {"a": 2, "b": 1, "more": 3}).verdict == "false"
    seen = gradkit.judge(believed, {"a": 1, "b": 1})
    assert (seen.verdict, seen.holds) == ("depends", ("a",))


def test_what_was_believed_and_not_looked_at_is_an_error() -> None:
    with pytest.raises(KeyError, match="b"):
        gradkit.judge({"a": 1, "b": 2}, {"a": 1})


def test_an_experiment_that_is_changed_changes_the_verdict() -> None:
    code = teaching_claim.claim("clone_detaches", "en").code
    assert experiment.run_experiment(code).verdict == "false"
    assert (
        experiment.run_experiment(code.replace("weight.clone()", "weight.clone().detach().requires_grad_()")).verdict
        == "true"
    )


def test_a_run_under_no_grad_is_as_any_other_and_leaves_it_on() -> None:
    with torch.no_grad():
        assert teaching_claim.claim("clone_detaches", "en").run().verdict == "false"
        assert not torch.is_grad_enabled()


def test_a_failing_experiment_raises_its_own_error_with_its_own_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        experiment.run_experiment("BELIEVED = {}\n\ndef observe():\n    return 1 / 0\n")
    assert caught.traceback[-1].lineno == 3
    assert str(caught.traceback[-1].statement).strip() == "return 1 / 0"


def test_an_experiment_is_put_into_a_new_cell_that_judges_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(set_next_input=written.append))
    gradkit.claim("clone_detaches").edit()
    body, _, last = written[0].rpartition("\n")
    space: dict[str, Any] = {}
    exec(body, space)
    assert eval(last, space).verdict == "false"


def test_outside_a_notebook_there_is_no_cell_to_make() -> None:
    with pytest.raises(GradkitError, match="notebook"):
        gradkit.claim("clone_detaches").edit()


def test_an_unknown_belief_is_named_with_those_that_exist() -> None:
    with pytest.raises(GradkitError, match=r"clone.*clone_detaches"):
        gradkit.claim("clone")


def test_the_command_lists_the_beliefs_with_their_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--language", "en"]) == HEALTHY
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(teaching_claim.claim_names())
    assert any(re.match(r"clone_detaches +false: `\.clone\(\)` detaches", line) for line in lines)


@pytest.mark.parametrize(("language", "verdict"), [("en", "Verdict of this run: **false**"), ("zh", "**错误**")])
def test_the_command_runs_one_and_says_what_was_seen(
    language: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "clone_detaches", "--language", language]) == HEALTHY
    page = capsys.readouterr().out
    assert verdict in page
    assert "weight.clone()" in page
    assert "False" in page


def test_the_command_says_by_its_status_that_the_verdict_is_another_on_this_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.Tensor, "clone", lambda self: self.detach().requires_grad_())
    assert main(["claims", "clone_detaches", "--language", "en"]) == FINDINGS
    assert "Your torch behaves differently" in capsys.readouterr().out


def test_what_is_recorded_reads_the_same_as_what_was_run() -> None:
    seen = gradkit.judge({"a": 1}, {"a": 2, "b": None}, device="NVIDIA X", version="3.0")
    again = experiment.from_record(experiment.written(seen))
    assert (again.rows, again.device, again.version) == (seen.rows, "NVIDIA X", "3.0")
    assert again.recorded


def test_a_record_is_told_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "can", lambda need: False)
    seen = teaching_claim.claim("any_layer_trains_in_eval", "en").run()
    assert seen.recorded
    assert json.loads(Path(FOLDER, "any_layer_trains_in_eval", "record.json").read_text())["torch"] == seen.version
