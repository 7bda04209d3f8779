"""What differs between ranks in a page and in JSON, beside the finding of one of them, whoever writes first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gradkit.core.i18n import speaking
from gradkit.live import rank_page
from gradkit.live.launch import Wishes
from gradkit.live.loss_heads import Term
from gradkit.live.outcome import Outcome
from gradkit.live.rank_records import Comparison, RankRecord, compared

WAITS = RankRecord(
    0, 4, "stuck", "train.py:40", "loss.backward()", waits=True, steps=7,
    batch=(("batch['image']", "4 x 3"), ("batch['text']", "4 x 5")), head=((Term((0.5,), ("mean",), "N"),),),
)  # fmt: skip


def _differ() -> Comparison:
    raised = replace(WAITS, rank=2, state="raised", waits=False, error="ValueError: <broken>", batch=WAITS.batch[1:])
    return compared([raised if rank == 2 else replace(WAITS, rank=rank) for rank in range(4)], 4)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_ranks_that_agree_are_one_row_and_the_one_that_differs_stands_above_them(language: str) -> None:
    with speaking(language):
        page = rank_page.fragment(_differ())
    assert page.count("<tr>") == 3
    assert page.index("✗ 2") < page.index("✓ 0-1, 3")
    assert "ValueError: &lt;broken&gt;" in page
    assert "batch[&#x27;image&#x27;] 4 x 3" in page
    assert "0.5 * mean(...)" in page


def test_data_holds_who_differs_and_a_row_for_those_that_say_the_same() -> None:
    found = json.loads(json.dumps(rank_page.data(_differ())))
    assert (found["reason"], found["world"], found["differ"]) == ("error", 4, [2])
    assert [(row["ranks"], row["differs"]) for row in found["rows"]] == [([2], True), ([0, 1, 3], False)]
    assert found["rows"][0]["batch"] == {"batch['text']": "4 x 5"}


def test_there_is_a_square_for_each_rank_and_those_that_differ_are_filled() -> None:
    drawn = rank_page.squares(_differ())
    assert drawn.count("<rect") == 4
    assert drawn.count('fill="#c62828"') == 1


def test_json_keeps_the_finding_of_one_rank_and_what_differs_whoever_writes_first(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    outcome = Outcome(Wishes(json=str(path)))
    outcome.ranks(_differ())
    outcome.nothing(7, "")  # a rank that has nothing to say ends later
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["healthy"] is False
    assert found["ranks"]["differ"] == [2]
    path.write_text(json.dumps({"healthy": False, "findings": [{"cause": "detach"}]}), encoding="utf-8")
    outcome.ranks(_differ())
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["findings"] == [{"cause": "detach"}]
    assert found["ranks"]["differ"] == [2]


def test_a_page_of_a_finding_gets_the_ranks_and_keeps_them_when_it_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    path.write_text("<html><body>the finding</body></html>", encoding="utf-8")
    outcome = Outcome(Wishes(report=str(path)))
    outcome.ranks(_differ())
    outcome.ranks(_differ())
    page = path.read_text(encoding="utf-8")
    assert page.count("<!-- ranks -->") == 1
    assert "the finding" in page
    block = rank_page.kept(path)
    path.write_text("<html><body>again</body></html>", encoding="utf-8")
    rank_page.put_back(block, path)
    assert "✗ 2" in path.read_text(encoding="utf-8")
