"""On a dark page the drawing's lightness is turned round by a filter of CSS: its words stand out there as well."""

from __future__ import annotations

import re
from typing import TypeAlias

import pytest

from gradkit.core import package
from gradkit.report.picture import style

Shade: TypeAlias = tuple[float, ...]
STYLES = [
    (package.FOLDER / "report/static" / name).read_text(encoding="utf-8") for name in ("graph_view.css", "report.css")
]
TURNED = re.compile(r"--gk-drawing: ?invert\((0?\.\d+)\) hue-rotate\((\d+)deg\)")
# https://www.w3.org/TR/filter-effects-1/#feColorMatrixElement, hueRotate by 180 degrees
TURN = ((-0.574, 1.43, 0.144), (0.426, 0.43, 0.144), (0.426, 1.43, -0.856))
WHITE, BLACK = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)


def shade(colour: str) -> Shade:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def dark(colour: Shade, much: float) -> Shade:
    turned = [much + part * (1 - 2 * much) for part in colour]
    mixed = (sum(factor * part for factor, part in zip(row, turned, strict=True)) for row in TURN)
    return tuple(min(1.0, max(0.0, part)) for part in mixed)


def light(colour: Shade) -> float:
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Shade, other: Shade) -> float:
    """Source: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""
    less, more = sorted((light(one), light(other)))
    return (more + 0.05) / (less + 0.05)


def much() -> float:
    """By how much the styles invert: all of them the same, and by half a turn of hue."""
    found = {match for text in STYLES for match in TURNED.findall(text)}
    (amount,) = {float(amount) for amount, turn in found if turn == "180"}
    assert {turn for _, turn in found} == {"180"}
    return amount


FILLS = {kind: shade(box.get("fillcolor", "#FFFFFF")) for kind, box in style.BOXES.items()}
PAIRS = {f"{kind} {ink}": (ink, FILLS[kind]) for kind in FILLS for ink in style.TEXT.get(kind, (style.INK, style.SOFT))}
PAIRS |= {"plate": ("#FFFFFF", shade(style.DARK_RED)), "cut": (style.RED, WHITE), "flow": (style.GREEN, WHITE)}


@pytest.mark.parametrize("pair", PAIRS)
def test_what_stands_out_on_white_paper_stands_out_in_the_dark(pair: str) -> None:
    ink, ground = PAIRS[pair]
    least = 3.0 if pair in ("cut", "flow") else 4.5  # lines and symbols; words
    assert contrast(dark(shade(ink), much()), dark(ground, much())) >= least


@pytest.mark.parametrize(("colour", "part"), [(style.RED, 0), (style.GREEN, 1)])
def test_red_stays_red_and_green_stays_green(colour: str, part: int) -> None:
    turned = dark(shade(colour), much())
    assert max(turned) == turned[part]


def test_white_paper_becomes_nearly_black() -> None:
    assert contrast(dark(WHITE, much()), BLACK) < 1.5
