"""Which lines take labels out of a loss, and which give the length that they are cut to: told from source alone."""

from __future__ import annotations

import linecache
import textwrap

import pytest

from gradkit.source import ignored_labels


def written(name: str, text: str) -> str:
    text = textwrap.dedent(text).lstrip("\n")
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    return name


def lines_of(file: str, index: int = -100, widths: tuple[int, ...] = ()) -> list[int]:
    return [spot.line for spot in ignored_labels.ignored_label_lines([file], index, widths)]


def test_a_write_that_ends_before_the_rows_do_is_not_the_one_that_leaves_nothing() -> None:
    file = written(
        "labels_by_place.py",
        """
        def encode(labels, whole):
            if whole:
                labels[:, :64] = -100
            else:
                labels[:, :2] = -100
        """,
    )
    assert lines_of(file, widths=(6,)) == [3]
    assert lines_of(file) == [3, 5]


CUT = """
    class Collator:
        def __init__(self, max_length):
            self.max_length = max_length

        def labels(self, row):
            return ([-100] * len(row.prompt) + row.answer)[:self.max_length]


    short = Collator(max_length=6)
    long = Collator(12)
"""
NAMED = """
    LIMIT = 5


    def labels(row):
        made = [-100] * len(row.prompt) + row.answer
        return made[:LIMIT]
"""
SETTINGS = """
    ARGS = Namespace(block_size=4)


    def labels(row, size=ARGS.block_size):
        made = [-100] * len(row.prompt) + row.answer
        return made[:size]
"""
ALL_MASKED = """
    def labels(row):
        return ([-100] * len(row.prompt + row.answer))[:6]
"""


@pytest.mark.parametrize(("text", "width", "line"), [(CUT, 6, 9), (CUT, 12, 10), (NAMED, 5, 1), (SETTINGS, 4, 1)])
def test_where_answers_are_cut_off_the_length_is_named_that_the_rows_have(text: str, width: int, line: int) -> None:
    file = written(f"cut_to_{width}.py", text)
    (masked,) = ignored_labels.ignored_label_lines([file], -100)
    found = ignored_labels.cut_short(masked, (width,), [file])
    assert found is not None
    assert found.line == line


@pytest.mark.parametrize(("text", "width"), [(CUT, 7), (ALL_MASKED, 6)])
def test_no_length_is_named_where_rows_have_another_or_nothing_is_cut_off(text: str, width: int) -> None:
    file = written(f"uncut_{width}.py", text)
    (masked,) = ignored_labels.ignored_label_lines([file], -100)
    assert ignored_labels.cut_short(masked, (width,), [file]) is None


def test_an_index_that_the_criterion_was_made_with_is_read_there() -> None:
    file = written("criterion.py", "VOID = 255\nloss = CrossEntropyLoss(ignore_index=VOID)\n")
    assert ignored_labels.ignored_index_of(None, [file]) == 255
    assert ignored_labels.ignored_index_of(None) == -100
