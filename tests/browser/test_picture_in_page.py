"""The picture of a saved page: frames that fold, what would flow without a cut, and a cut that stays in sight."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect
from torch import nn

import gradkit
from gradkit.core import i18n
from tests.browser.axe import faults

FOLDED = re.compile("Sequential.×8")
WIDTHS, SCHEMES = (1440, 768), ("light", "dark")


class Encoder(nn.Module):
    """Layers of which the first half is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)) for _ in range(8))
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for at, layer in enumerate(self.layers):
            x = layer(x)
            if at == 3:
                x = x.detach()
        return self.norm(x)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    model = nn.ModuleDict({"encoder": Encoder(), "head": nn.Linear(16, 1)})
    step = lambda: model["head"](model["encoder"](torch.ones(4, 16))).sum()  # noqa: E731
    return gradkit.diagnose(step, model=model).save(tmp_path_factory.mktemp("saved") / "report.html", "en").as_uri()


@pytest.fixture
def opened(page: Page, saved: str) -> Page:
    page.goto(saved)
    page.locator(".gk-paper svg").wait_for()
    page.wait_for_timeout(300)
    return page


def box(page: Page, which: str) -> dict[str, float]:
    found: Any = page.locator(which).first.bounding_box()
    assert found is not None
    return dict(found)


def is_inside(page: Page, which: str) -> bool:
    a, b = box(page, which), box(page, ".gk-stage")
    return bool(
        a["x"] >= b["x"] - 1
        and a["y"] >= b["y"] - 1
        and a["x"] + a["width"] <= b["x"] + b["width"] + 1
        and a["y"] + a["height"] <= b["y"] + b["height"] + 1
    )


def off_the_middle(page: Page, which: str) -> float:
    a, b = box(page, which), box(page, ".gk-stage")
    across = abs(a["x"] + a["width"] / 2 - b["x"] - b["width"] / 2)
    return max(across, abs(a["y"] + a["height"] / 2 - b["y"] - b["height"] / 2))


def in_sight(page: Page) -> int:
    return int(
        page.evaluate(
            """() => {
              const stage = document.querySelector(".gk-stage").getBoundingClientRect();
              return [...document.querySelectorAll("g.node")].filter((node) => {
                const at = node.getBoundingClientRect();
                return at.right > stage.left && at.left < stage.right && at.bottom > stage.top && at.top < stage.bottom;
              }).length;
            }"""
        )
    )


# -- frames ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_minus_folds_a_frame_and_plus_unfolds_it_again(opened: Page, language: str) -> None:
    opened.locator(f"#gkr-{language}").check(force=True)
    opened.wait_for_timeout(400)
    before = opened.locator("g.node").count()
    fold = i18n.words("viewer.fold_one", language, name="encoder")
    opened.get_by_label(fold, exact=True).dispatch_event("click")
    expect(opened.locator("g.node")).not_to_have_count(before)
    assert opened.locator("g.node").count() < before
    unfold = i18n.words("viewer.unfold_one", language, name="encoder")
    opened.locator(f'.gk-on[aria-label^="{unfold}"]').first.dispatch_event("click")
    expect(opened.locator("g.node")).to_have_count(before)


def test_the_keys_f_and_u_do_the_same(opened: Page) -> None:
    before = opened.locator("g.node").count()
    opened.locator("g.node", has_text="layers.0").first.click()
    opened.keyboard.press("f")
    expect(opened.locator("g.node")).not_to_have_count(before)
    opened.locator("g.node", has_text=FOLDED).first.click()
    opened.keyboard.press("u")
    expect(opened.locator("g.node")).to_have_count(before)


def test_a_card_folds_the_frame_around_its_box(opened: Page) -> None:
    before = opened.locator("g.node").count()
    opened.locator("g.node", has_text="layers.0").first.click()
    opened.locator("aside .gk-fold").click()
    expect(opened.locator("g.node")).not_to_have_count(before)
    opened.locator('[data-name="fold"]').click()
    expect(opened.locator("g.node")).to_have_count(before)


def test_what_a_frame_says_stays_in_sight_where_its_label_is_out_of_it(opened: Page) -> None:
    opened.locator('[data-name="cut"]').click()
    for _ in range(3):
        opened.locator('[data-name="zoom_in"]').click()
    opened.wait_for_timeout(300)
    assert opened.locator(".gk-said").inner_text().startswith("encoder")
    opened.locator('[data-name="fit"]').click()
    opened.wait_for_timeout(300)
    assert opened.locator(".gk-said").inner_text().strip() == ""


# -- what would flow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_undoing_a_cut_on_its_plate_moves_no_box_and_is_taken_back(opened: Page, scheme: str) -> None:
    opened.locator(f"#gkr-{scheme}").check(force=True)
    places = "[...document.querySelectorAll('g.node')].map((one) => JSON.stringify(one.getBBox())).join()"
    wording = "document.querySelector('.gk-paper svg').textContent"
    drawing = "document.querySelector('.gk-paper svg').outerHTML"
    at, said, drawn = (opened.evaluate(one) for one in (places, wording, drawing))
    assert "would get a gradient" not in said
    opened.locator(".gk-on-plate").click()
    assert opened.evaluate(places) == at
    assert "would get a gradient" in opened.evaluate(wording)
    assert "backward() runs: every parameter that should train gets a gradient" in opened.evaluate(wording).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    assert opened.locator("g.gk-flows.cut").count() == 2
    assert "Your code has not been changed" in opened.locator(".gk-foot").inner_text()
    assert opened.locator(".gk-on-plate").get_attribute("aria-pressed") == "true"
    assert faults(opened, ".gk-view") == []
    opened.locator(".gk-on-plate").click()
    assert opened.evaluate(wording) == said
    assert opened.evaluate(drawing).replace(' class=""', "") == drawn.replace(' class=""', "")


def test_a_card_undoes_its_cut_too_and_a_fold_keeps_it_undone(opened: Page) -> None:
    opened.locator(".gkr-look:visible").click()
    opened.locator("aside .gk-undo").click()
    assert opened.locator(".gk-what-if").count() == 1
    opened.locator('.gk-on[aria-label="Fold layers"]').dispatch_event("click")
    expect(opened.locator("g.node", has_text=FOLDED)).to_have_count(1)
    drawn = opened.locator(".gk-paper svg").text_content() or ""
    assert "would get a gradient" in drawn.replace("\N{NO-BREAK SPACE}", " ")


# -- in sight ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_map_is_never_blank_and_the_cut_is_whole_and_in_the_middle(opened: Page, width: int, scheme: str) -> None:
    opened.locator(f"#gkr-{scheme}").check(force=True)
    opened.set_viewport_size({"width": width, "height": 900})
    opened.wait_for_timeout(300)
    assert is_inside(opened, "g.node.cut")
    opened.locator(".gkr-look:visible").click()
    opened.wait_for_timeout(300)
    assert is_inside(opened, "g.node.cut")
    assert off_the_middle(opened, "g.node.cut") < 8
    opened.locator(".gk-close").click()
    stage = box(opened, ".gk-stage")
    x, y = stage["x"] + 20, stage["y"] + 20
    for dx, dy in ((3000, 0), (-6000, 0), (0, 3000), (0, -6000), (4000, 4000)):
        opened.mouse.move(x, y)
        opened.mouse.down()
        opened.mouse.move(x + dx, y + dy, steps=4)
        opened.mouse.up()
        assert in_sight(opened) > 0
    opened.evaluate("document.querySelector('.gk-stage').scrollTo(0, 5000)")
    opened.wait_for_timeout(200)
    assert in_sight(opened) > 0


def test_the_cut_stays_in_the_middle_when_the_window_changes(opened: Page) -> None:
    opened.locator(".gkr-look:visible").click()
    for width in (1000, 700, 1400):
        opened.set_viewport_size({"width": width, "height": 900})
        opened.wait_for_timeout(400)
        assert is_inside(opened, "g.node.cut")
        assert off_the_middle(opened, "g.node.cut") < 8


def test_what_was_in_the_middle_stays_there_after_the_drawing_was_moved_by_hand(opened: Page) -> None:
    stage = box(opened, ".gk-stage")
    opened.mouse.move(stage["x"] + 20, stage["y"] + 20)
    opened.mouse.down()
    opened.mouse.move(stage["x"] + 60, stage["y"] + 50, steps=4)
    opened.mouse.up()
    before = box(opened, "g.node.cut")
    opened.set_viewport_size({"width": 1000, "height": 900})
    opened.wait_for_timeout(400)
    old, new = stage["x"] + stage["width"] / 2, box(opened, ".gk-stage")
    middle = new["x"] + new["width"] / 2
    assert abs((box(opened, "g.node.cut")["x"] - middle) - (before["x"] - old)) < 4


def test_the_drawing_is_turned_to_run_from_left_to_right(opened: Page) -> None:
    def runs_across() -> bool:
        cut, loss = box(opened, "g.node.cut"), box(opened, "g.node.loss")
        return loss["x"] - cut["x"] > abs(loss["y"] - cut["y"])

    assert not runs_across()
    opened.locator('[data-name="sideways"]').click()
    opened.wait_for_timeout(300)
    assert runs_across()
    assert is_inside(opened, "g.node.cut")
    opened.locator('[data-name="sideways"]').click()
    assert not runs_across()


def test_in_a_low_wide_window_the_drawing_runs_from_left_to_right_by_itself(opened: Page) -> None:
    opened.set_viewport_size({"width": 1440, "height": 500})
    opened.wait_for_timeout(400)
    cut, loss = box(opened, "g.node.cut"), box(opened, "g.node.loss")
    assert loss["x"] - cut["x"] > abs(loss["y"] - cut["y"])
    assert is_inside(opened, "g.node.cut")
    assert box(opened, ".gk-view")["height"] <= 500
    opened.set_viewport_size({"width": 1440, "height": 900})
    opened.wait_for_timeout(400)
    cut, loss = box(opened, "g.node.cut"), box(opened, "g.node.loss")
    assert loss["y"] - cut["y"] > abs(loss["x"] - cut["x"])


# -- several cuts ------------------------------------------------------------------------------------------------------


class Towers(nn.Module):
    """Two branches, each with a cut of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = self.left(x).detach()
        with torch.no_grad():
            right = self.right(x)
        return self.head(left + right)


class Relay(nn.Module):
    """Two cuts, one behind the other, with many layers between them."""

    def __init__(self) -> None:
        super().__init__()
        self.eye, self.head = nn.Linear(8, 8), nn.Linear(8, 1)
        self.between = [f"stage_{at}" for at in range(14)]
        for name in self.between:
            self.add_module(name, nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.eye(x).detach()
        for name in self.between:
            x = self.get_submodule(name)(x)
        x = torch.tensor(x.detach().numpy())
        return self.head(x)


def opened_at(page: Page, model: nn.Module, path: Any, width: int) -> None:
    report = gradkit.diagnose(lambda: model(torch.ones(2, 8)).sum(), model=model)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(report.save(path, "en").as_uri())
    page.locator(".gk-paper svg").wait_for()
    page.wait_for_timeout(300)


def are_inside(page: Page) -> list[bool]:
    seen = """node => {
      const [at, stage] = [node, document.querySelector(".gk-stage")].map((one) => one.getBoundingClientRect());
      const across = at.left > stage.left - 1 && at.right < stage.right + 1;
      return across && at.top > stage.top - 1 && at.bottom < stage.bottom + 1;
    }"""
    return [bool(one.evaluate(seen)) for one in page.locator("g.node.cut").all()]


@pytest.mark.parametrize("width", [1440, 1024, 768])
def test_the_first_view_has_every_cut_in_sight_where_there_is_room(page: Page, tmp_path: Any, width: int) -> None:
    opened_at(page, Towers(), tmp_path / "report.html", width)
    assert are_inside(page) == [True, True]
    assert page.locator(".gk-away").is_hidden()


def test_where_there_is_none_the_first_is_whole_and_a_button_leads_to_the_other(page: Page, tmp_path: Any) -> None:
    opened_at(page, Relay(), tmp_path / "report.html", 768)
    before = are_inside(page)
    assert sorted(before) == [False, True]
    away = page.locator(".gk-away")
    assert re.fullmatch("1 problem out of sight [←→↑↓]", away.inner_text())
    assert faults(page, ".gk-view") == []
    page.locator("#gkr-zh").check(force=True)
    expect(away).to_contain_text("有 1 处问题不在视野内")
    away.click()
    page.wait_for_timeout(300)
    assert are_inside(page) == [not one for one in before]
    page.locator('[data-name="cut"]').click()
    page.wait_for_timeout(300)
    assert are_inside(page) == before
    page.locator('[data-name="cut"]').click()
    page.wait_for_timeout(300)
    assert are_inside(page) == [not one for one in before]
    page.locator('[data-name="fit"]').click()
    expect(away).to_be_hidden()


def test_no_sign_of_a_frame_lies_over_a_plate(page: Page, tmp_path: Any) -> None:
    opened_at(page, Relay(), tmp_path / "report.html", 768)
    over = """() => {
      const rect = (one) => one.getBoundingClientRect();
      const meet = (a, b) => a.left < b.right && a.right > b.left && a.top < b.bottom && a.bottom > b.top;
      const plates = [...document.querySelectorAll("g.node.cut")].map(rect);
      const signs = [...document.querySelectorAll(".gk-said span")].map(rect);
      return signs.filter((sign) => plates.some((plate) => meet(plate, sign))).length;
    }"""
    stage = box(page, ".gk-stage")
    page.mouse.move(stage["x"] + 20, stage["y"] + 200)
    page.mouse.down()
    for step in range(12):
        page.mouse.move(stage["x"] + 20, stage["y"] + 200 - 40 * step)
        assert page.evaluate(over) == 0
    page.mouse.up()
