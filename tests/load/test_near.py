"""A path that leads nowhere is answered with what the person may have meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradkit.core.errors import GradkitError
from gradkit.load import reading
from gradkit.load.batches import load_batch
from gradkit.load.step import from_spec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "train.py",
        "data/batch.pt",
        "src/model.py",
        "checkpoints/adapter/adapter_config.json",
        ".git/train2.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("trian.py", ("train.py",)),
        ("dat/batch.pt", ("data/batch.pt",)),
        ("model.py", ("src/model.py",)),
        ("data/bacth.pt", ("data/batch.pt",)),
        ("checkpoint/adapters", ("checkpoints/adapter",)),
        ("batch.pt", ("data/batch.pt",)),
        ("quite_another.py", ()),
        ("", ()),
        ("\0", ()),
    ],
)
def test_what_a_person_may_have_meant_is_found(folder: Path, typed: str, meant: tuple[str, ...]) -> None:
    assert reading.near(typed) == meant


@pytest.mark.parametrize(
    ("loaded", "says"),
    [
        (lambda: from_spec("trian.py:step"), "Did you mean train.py?"),
        (lambda: from_spec("trian:step"), "Did you mean train.py?"),
        (lambda: load_batch("data/bach.pt"), "Did you mean data/batch.pt?"),
        (lambda: from_spec(model="train.py:x", adapter="checkpoints/adaptor"), "not a torch.nn.Module"),
        (
            lambda: from_spec(model="torch.nn:Flatten", adapter="checkpoints/adaptor"),
            "Did you mean checkpoints/adapter?",
        ),
    ],
)
def test_the_error_says_so_in_both_languages(folder: Path, loaded: object, says: str) -> None:
    with pytest.raises(GradkitError) as raised:
        loaded()  # type: ignore[operator]
    assert says in raised.value.text("en")
    assert ("是不是" in raised.value.text("zh")) is ("Did you mean" in says)


def test_an_absolute_path_is_answered_too(folder: Path) -> None:
    assert reading.near(str(folder / "trian.py")) == ("train.py",)


def test_a_folder_that_is_called_as_what_lies_in_it_is_looked_into(folder: Path) -> None:
    (folder / "models" / "model").mkdir(parents=True)
    assert reading.near("model/model") == ("models/model",)
