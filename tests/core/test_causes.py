"""The registry of causes: every cause has its guide, its words, its rule; nothing else in the package names one."""

from __future__ import annotations

import ast
import functools
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import gradkit
import gradkit.types
from gradkit.api import verify
from gradkit.core import causes as core_causes
from gradkit.core import i18n
from gradkit.core.causes import cause, causes
from gradkit.core.errors import GradkitError
from gradkit.source import changes
from gradkit.teaching import guide

PACKAGE = Path(gradkit.__file__).parent
RULES = sorted((PACKAGE / "diagnosis" / "rules").glob("*.py"))
REGISTRY = PACKAGE / "core" / "causes.py"
PROGRAMS = (
    "teaching/books",
    "cases",
    "teaching/claims",
    "teaching/guides",
)  # written the way that users write, or about a cause that they name
PARTS = ("title", "label", "help")
# Words that are more than a cause. torch's: the operation and the switch; a kind of site in source code; and of a
# drawing, a size that is not known.
ALSO = {"detach", "inference_mode", "integer_cast", "unknown"}
# An exercise may share its name with the cause that it is about.
MAY_NAME = {"exercises": {"numpy_roundtrip"}, "predictions": {"numpy_roundtrip"}}

each_cause = pytest.mark.parametrize("name", causes())
each_language = pytest.mark.parametrize("language", i18n.LANGUAGES)


def modules() -> list[Path]:
    """The modules of the package, without the programs that it shows."""
    programs = tuple(f"{PACKAGE / folder}{os.sep}" for folder in PROGRAMS)
    return [path for path in PACKAGE.rglob("*.py") if not str(path).startswith(programs)]


@functools.cache
def strings(path: Path) -> frozenset[str]:
    """The words of every string that a module computes with: docstrings are left out."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docs)
    return frozenset(word for node in texts if isinstance(node.value, str) for word in node.value.split())


def worded(name: str, language: str) -> set[str]:
    """What the catalogue has for a cause: ``title``, ``label_ignored``, with plurals as one."""
    prefix = f"cause.{name}."
    keys = (key.removeprefix(prefix) for key in i18n.catalogue(language) if key.startswith(prefix))
    return {key.partition(".")[0] for key in keys}


def variants(name: str, language: str) -> set[str]:
    """The variants that the catalogue has words for."""
    found = (key.partition("_") for key in worded(name, language))
    return {variant for part, _, variant in found if part in PARTS and variant}


@each_cause
def test_a_cause_has_a_folder_with_its_guide(name: str) -> None:
    assert {path.name for path in guide.guides_folder(name).iterdir()} >= {"case.py", "en.md", "zh.md"}


@each_language
@each_cause
def test_a_cause_has_a_title_a_label_and_help(name: str, language: str) -> None:
    assert worded(name, language) >= set(PARTS)


@each_language
@each_cause
def test_every_variant_has_words_of_its_own_and_every_such_word_a_variant(name: str, language: str) -> None:
    assert variants(name, language) == set(cause(name).variants)


@each_cause
def test_some_rule_makes_the_cause(name: str) -> None:
    assert [rule for rule in RULES if name in strings(rule)]


@each_cause
def test_what_sets_a_variant_stands_in_the_package(name: str) -> None:
    spoken = {word for path in modules() if path != REGISTRY for word in strings(path)}
    assert set(cause(name).variants) <= spoken


def test_no_cause_is_named_but_by_the_registry_and_the_rules() -> None:
    plain = set(causes()) - ALSO
    named = {
        path.stem: found
        for path in modules()
        if path not in (REGISTRY, *RULES)
        if (found := plain.intersection(strings(path)))
    }
    assert named == MAY_NAME


def test_a_cause_that_no_one_knows_is_named_with_those_that_there_are() -> None:
    with pytest.raises(GradkitError) as caught:
        cause("detached")
    assert caught.value.key == "no_such_guide"
    assert "detached" in str(caught.value)
    assert "no_grad_block" in str(caught.value)


def test_every_cause_is_in_one_family_and_every_family_has_some() -> None:
    grouped = core_causes.families()
    assert tuple(grouped) == core_causes.FAMILIES
    assert all(grouped.values())
    assert sorted(name for names in grouped.values() for name in names) == list(causes())


@each_language
def test_a_family_has_a_title(language: str) -> None:
    titles = {key for key in i18n.catalogue(language) if key.startswith("guide.family.")}
    assert titles == {f"guide.family.{family}" for family in core_causes.FAMILIES}


def test_every_way_to_derive_a_cure_is_one_that_there_is() -> None:
    ways = {cause(name).change for name in causes()} - {""}
    anew = {changes.STACKED, changes.IN_TORCH, changes.OUT_OF_PLACE}
    assert ways == {"word", "kept", "block", *anew, *changes.RULES}
    assert all(bool(cause(name).word) == (cause(name).change == "word") for name in causes())


def test_a_check_that_a_cause_fails_is_a_point_of_the_verification() -> None:
    points = {key for keys in verify.GROUPS.values() for key in keys}
    assert {cause(name).check for name in causes()} - {""} <= points
    assert core_causes.failing("nonzero") == ("zero_gradient",)
    assert core_causes.failing("no such point") == ()


def test_the_package_hands_out_the_causes_and_their_guides() -> None:
    assert gradkit.causes() == causes()
    assert gradkit.guide("detach", "zh").cause == "detach"


class Aside(nn.Module):
    """Computes with a layer, and leaves the result where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.side = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.side(x)
        return self.head(x)


@pytest.fixture
def report() -> gradkit.types.Report:
    model = Aside()
    return gradkit.diagnose(lambda: model(torch.ones(2, 3)).sum(), model=model)


def test_a_finding_knows_in_which_way_its_cause_shows(report: gradkit.types.Report) -> None:
    (finding,) = report.findings
    assert (finding.cause, finding.variant) == ("trainable_unused", "unassigned")
    assert "is thrown away" in report.text("en")


def test_plain_data_tells_the_variant_among_the_facts(report: gradkit.types.Report) -> None:
    (row,) = report.data()["findings"]
    assert row["facts"]["variant"] == "unassigned"
    assert row.keys() == {
        "cause", "location", "notes", "proof", "parameters", "numel", "module", "call", "revived", "alone", "reruns",
        "facts", "tried",
    }  # fmt: skip
