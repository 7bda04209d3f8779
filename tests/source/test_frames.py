"""Which line is the user's, and which expression on it."""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core.records import Location
from gradkit.report.report import Report
from gradkit.source import frames, locations

PROGRAM = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)
        self.idle = nn.Linear(4, 1)

    def forward(self, x):
        with torch.no_grad():
            code = self.inner(x)
        return self.outer(code).sum()

model, x = Model(), torch.ones(2, 4)
"""


@pytest.fixture
def written() -> Iterator[Any]:
    """Puts source under a file name that does not exist, as notebooks and shells do; gone again after the test."""
    names: list[str] = []

    def write(filename: str, source: str, *, known: bool = True) -> dict[str, Any]:
        names.append(filename)
        if known:
            linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, filename, "exec"), namespace)
        return namespace

    yield write
    for name in names:
        linecache.cache.pop(name, None)


def lines(report: Report) -> dict[str, int | None]:
    return {finding.cause: finding.location and finding.location.line for finding in report.findings}


# -- whose file -------------------------------------------------------------------------------------------------------

USERS = (
    "/home/ann/train.py",
    "/home/ann/torch/train.py",
    "/home/ann/my-site-packages/train.py",
    "C:\\Users\\ann\\train.py",
    "/tmp/ipykernel_17/3098.py",
    "<ipython-input-3-0a1b2c>",
    "<python-input-0>",
    "<stdin>",
    "<console>",
    "<doctest train.step[0]>",
    "marimo://notebook.py#cell=1",
    str(Path(gradkit.__file__).parent / "teaching" / "guides" / "detach" / "case.py"),
)
OTHERS = (
    "/home/ann/.venv/lib/python3.11/site-packages/timm/layers.py",
    "/usr/lib/python3/dist-packages/numpy/core.py",
    torch.__file__,
    ast.__file__,
    gradkit.__file__,
    frames.__file__,
    "<frozen importlib._bootstrap>",
    "<eval_with_key>.0",
    "<__array_function__ internals>",
    "<attrs generated init train.Config>",
)


@pytest.mark.parametrize("filename", USERS)
def test_a_file_of_the_users(filename: str) -> None:
    assert frames.is_user_file(filename)


@pytest.mark.parametrize("filename", OTHERS)
def test_a_file_that_is_not_the_users(filename: str) -> None:
    assert not frames.is_user_file(filename)


@pytest.mark.parametrize(
    "filename",
    ["<ipython-input-3-0a1b2c>", "/tmp/ipykernel_17/3098.py", "<python-input-0>", "/home/ann/训练 脚本.py"],
)
def test_lines_of_a_notebook_cell_or_shell_are_named_with_their_text(written: Any, filename: str) -> None:
    cell = written(filename, PROGRAM)
    report = gradkit.diagnose(lambda: cell["model"](cell["x"]), model=cell["model"])
    assert lines(report) == {"no_grad_block": 11, "trainable_unused": 8}
    assert report.findings[0].location.text.strip() == "with torch.no_grad():"
    assert report.findings[0].location.file == filename


def test_a_line_is_named_by_its_number_where_no_source_can_be_read(written: Any) -> None:
    cell = written("/home/ann/gone.py", PROGRAM, known=False)
    report = gradkit.diagnose(lambda: cell["model"](cell["x"]), model=cell["model"])
    assert lines(report)["no_grad_block"] == 11
    assert report.findings[0].location.text == ""
    assert "gone.py:11" in report.text()


def test_a_line_of_the_calling_file_stands_for_code_made_by_exec(written: Any) -> None:
    made: dict[str, Any] = {}
    exec("def cut(value):\n    return value.detach()\n", made)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), torch.ones(2, 4)
    (finding,) = gradkit.diagnose(lambda: model[1](made["cut"](model[0](x))).sum(), model=model).findings
    assert finding.cause == "detach"
    assert 'made["cut"]' in finding.location.text


# -- which expression -------------------------------------------------------------------------------------------------


def caught(source: str) -> Location:
    """Where ``here()`` was called in a program."""
    points: list[frames.Point] = []

    def here(*_: Any) -> Any:
        frame = sys._getframe(1)
        points.append((frame.f_code, frame.f_lasti))
        return Thing()

    class Thing:
        def detach(self) -> Thing:
            frame = sys._getframe(1)
            points[:] = [(frame.f_code, frame.f_lasti)]
            return self

        def __call__(self, *_: Any) -> Thing:
            return self

        def __add__(self, other: Any) -> Thing:
            frame = sys._getframe(1)
            points[:] = [(frame.f_code, frame.f_lasti)]
            return self

    source = textwrap.dedent(source)
    filename = f"/home/ann/{abs(hash(source))}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), {"here": here, "x": Thing(), "__name__": "__main__"})
    return locations.locate(points[-1])


def pointed_at(spot: Location) -> str:
    return spot.text[spot.column - 1 : spot.end_column - 1]


def test_a_call_is_pointed_at_by_its_whole_text() -> None:
    assert pointed_at(caught("y = 1 + len([here(3)])")) == "here(3)"


def test_a_method_is_pointed_at_without_what_it_is_called_on() -> None:
    assert pointed_at(caught("y = x(1).detach()")) == ".detach()"


def test_of_two_equal_calls_on_a_line_the_one_that_ran_is_pointed_at() -> None:
    spot = caught("y = (x.detach, x(2).detach())")
    assert (pointed_at(spot), spot.column) == (".detach()", 20)


def test_columns_count_characters_also_behind_wide_ones() -> None:
    spot = caught('y = ["编码器", x.detach()]')
    assert pointed_at(spot) == ".detach()"
    assert spot.column == 14


def test_an_operator_is_pointed_at_with_both_of_its_sides() -> None:
    assert pointed_at(caught("y = x + x")) == "x + x"


def test_a_method_on_a_line_of_its_own_is_that_line() -> None:
    spot = caught(
        """
        y = (
            x(1)
            .detach()
        )
        """
    )
    assert (spot.line, pointed_at(spot)) == (4, ".detach()")


def test_a_dot_in_a_comment_is_not_taken_for_the_methods() -> None:
    spot = caught(
        """
        y = (
            x(1)  # as in v2.1
            .detach()
        )
        """
    )
    assert (spot.line, pointed_at(spot)) == (4, ".detach()")


def test_a_call_over_several_lines_begins_at_its_first_and_knows_its_last() -> None:
    spot = caught(
        """
        y = here(
            1,
        )
        """
    )
    assert (spot.line, spot.end_line, spot.column) == (2, 4, 5)


def test_a_tab_is_one_column() -> None:
    spot = caught("if True:\n\ty = here()")
    assert (spot.line, spot.column, pointed_at(spot)) == (2, 6, "here()")


def test_a_line_that_cannot_be_parsed_is_taken_whole() -> None:
    filename = "/home/ann/broken.py"
    linecache.cache[filename] = (9, None, ["def f(:\n", "    x = 1  # one\n"], filename)
    spot = locations.whole_line(compile("", filename, "exec"), 2)
    assert (pointed_at(spot), spot.column) == ("x = 1", 5)


# -- which function ---------------------------------------------------------------------------------------------------


def code_of(function: Any) -> CodeType:
    return function.__code__


class Outer:
    class Inner:
        def method(self) -> Any:
            def local() -> None: ...

            return local


def test_a_function_is_called_by_its_classes_and_functions() -> None:
    assert locations.qualified_name(code_of(Outer.Inner.method)) == "Outer.Inner.method"
    assert locations.qualified_name(code_of(Outer.Inner().method())) == "Outer.Inner.method.local"


def test_before_python_3_11_the_name_is_found_in_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames.sys, "version_info", (3, 10, 0))
    assert locations.qualified_name(code_of(Outer.Inner.method)) == "Outer.Inner.method"


# -- the way out ------------------------------------------------------------------------------------------------------


def test_a_chain_holds_the_users_frames_innermost_first_and_ends_at_the_stop() -> None:
    def inner() -> frames.Chain:
        return frames.chain(sys._getframe(), stop.__code__)

    def middle() -> frames.Chain:
        return sorted([0], key=lambda _: None) and inner()

    def stop() -> frames.Chain:
        return middle()

    assert [code.co_name for code, _ in stop()] == ["inner", "middle"]


def test_where_no_frame_is_the_users_the_librarys_own_stands_in(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "other"
    package.mkdir(parents=True)
    (package / "layers.py").write_text("def cut(value):\n    return value.detach()\n")
    namespace: dict[str, Any] = {}
    exec(compile((package / "layers.py").read_text(), str(package / "layers.py"), "exec"), namespace)

    def stop() -> frames.Chain:
        frames_seen: list[frames.Chain] = []

        class Value:
            def detach(self) -> None:
                frames_seen.append(frames.chain(sys._getframe(1), stop.__code__))

        namespace["cut"](Value())
        return frames_seen[0]

    assert [code.co_name for code, _ in stop()] == ["cut"]
