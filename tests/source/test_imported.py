"""A file that was edited after it was imported: what stands there is not what ran, and is not shown for it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import gradkit
from gradkit.core.errors import GradkitError
from gradkit.core.records import Finding, Location
from gradkit.report import fix
from gradkit.report.report import Report
from gradkit.source import changes, imported, locations, provenance

HEAD = "import torch\nfrom torch import nn\n\n\n"
CLASS = """class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        y = self.a(x).detach(){more}
        return self.b(y).sum()
"""
NET, TEACHER = CLASS.format(name="Net", more=""), CLASS.format(name="Teacher", more="")


class Workplace:
    """A folder on the path, whose modules are imported and edited as in a notebook."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "edited_model.py"

    def write(self, text: str, **how: Any) -> None:
        before = self.file.stat().st_mtime_ns if self.file.exists() else 0
        self.file.write_text(text, **{"encoding": "utf-8", **how})
        if before:  # as an editor does it, some time later
            os.utime(self.file, ns=(before + 5_000_000_000, before + 5_000_000_000))

    def load(self, text: str) -> ModuleType:
        self.write(text)
        importlib.invalidate_caches()
        return importlib.import_module("edited_model")

    @staticmethod
    def diagnose(model: torch.nn.Module) -> tuple[Report, Finding]:
        report = gradkit.diagnose(model, torch.ones(1, 3))
        return report, report.findings[0]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Workplace(tmp_path)
    sys.modules.pop("edited_model", None)


def says_so(report: Report) -> bool:
    told = "changed since it was imported" in report.text("en") and "在导入之后有过改动" in report.text("zh")
    return told and "changed since it was imported" in report.html("en", with_picture=False)


def test_of_a_file_that_was_not_edited_the_line_is_shown_and_its_change_offered(place: Workplace) -> None:
    report, finding = place.diagnose(place.load(HEAD + NET).Net())
    assert finding.location is not None
    assert "y = self.a(x).detach()" in report.text("en")
    assert changes.derive_change(finding)
    assert not finding.location.changed
    assert not says_so(report)


@pytest.mark.parametrize("more", ["", "  # on purpose: the teacher is frozen"])
def test_another_class_on_the_line_is_neither_shown_nor_changed(place: Workplace, more: str) -> None:
    net = place.load(HEAD + NET).Net()
    place.write(HEAD + CLASS.format(name="Teacher", more=more) + "\n\n" + NET)
    report, finding = place.diagnose(net)
    assert finding.location is not None
    assert (finding.location.line, finding.location.text, finding.location.changed) == (11, "", True)
    assert says_so(report)
    assert "^" not in report.text("en")
    assert "self.a(x)" not in report.text("en") + report.html("en")
    assert changes.derive_change(finding) == ()


def test_the_data_for_scripts_say_that_the_file_changed(place: Workplace, tmp_path: Path) -> None:
    net = place.load(HEAD + NET).Net()
    place.write(HEAD + "\n" + NET)
    report, _ = place.diagnose(net)
    data = json.loads(report.save(tmp_path / "report.json").read_text())
    assert data["findings"][0]["location"]["changed"] is True


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: "\n" + text,
        lambda text: text.replace(".detach()", ""),
        lambda text: text.replace("self.b(y).sum()", "self.b(y).sum() * 2"),
        pytest.param(
            lambda text: text.replace("self.b(y)", "self.b( y)"),
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="code of Python 3.10 knows no columns"),
        ),
        lambda text: text.replace("y = self.a(x)", "z = self.a(x)").replace("(y)", "(z)"),
        lambda text: text.replace("class Net", "class Other").replace("forward", "backward"),
        lambda text: text[: text.index("class")],
        lambda text: text.replace("return self.b(y).sum()", "return (self.b(y).sum("),
        lambda text: "",
    ],
)  # fmt: skip
def test_an_edit_of_the_code_that_ran_is_seen(place: Workplace, edit: Callable[[str], str]) -> None:
    net = place.load(HEAD + NET).Net()
    place.write(edit(HEAD + NET))
    report, finding = place.diagnose(net)
    assert says_so(report)
    assert changes.derive_change(finding) == ()


def test_a_file_that_stopped_being_text_is_seen(place: Workplace) -> None:
    net = place.load(HEAD + NET).Net()
    place.file.write_bytes(b"# \xff\xfe\n" + place.file.read_bytes())
    report, finding = place.diagnose(net)
    assert says_so(report)
    assert changes.derive_change(finding) == ()


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + "\n# a remark\n",
        lambda text: text.replace("detach()", "detach()  # why?"),
        lambda text: text + "\n\ndef later():\n    pass\n",
        lambda text: text.replace("\n", "\r\n"),
    ],
)
def test_an_edit_that_leaves_the_code_that_ran_as_it_was_hides_nothing(
    place: Workplace, edit: Callable[[str], str]
) -> None:
    net = place.load(HEAD + NET).Net()
    place.write(edit(HEAD + NET), newline="")
    report, finding = place.diagnose(net)
    assert not says_so(report)
    assert finding.location is not None
    assert "y = self.a(x).detach()" in finding.location.text


def test_what_was_read_before_the_edit_is_still_shown_and_no_change_offered(place: Workplace) -> None:
    net = place.load(HEAD + NET).Net()
    place.diagnose(net)
    place.write(HEAD + TEACHER + "\n\n" + NET.replace("y = self", "y = 2 * self"))
    report, finding = place.diagnose(net)
    assert finding.location is not None
    assert (finding.location.line, finding.location.text.strip()) == (11, "y = self.a(x).detach()")
    assert says_so(report)
    assert "^^^" in report.text("en")
    assert changes.derive_change(finding) == ()


def test_a_report_from_before_the_edit_still_shows_the_lines_around_as_they_were(place: Workplace) -> None:
    report, finding = place.diagnose(place.load(HEAD + NET).Net())
    before = report.text("en")
    place.write((HEAD + NET).replace("return self.b(y).sum()", "return torch.zeros(())"))
    assert "return self.b(y).sum()" in report.text("en")
    assert changes.derive_change(finding) == ()
    assert before.count("detach()") > report.text("en").count("detach()")  # the change is no longer offered


def test_after_a_reload_the_new_line_is_shown(place: Workplace) -> None:
    module = place.load(HEAD + NET)
    place.diagnose(module.Net())
    place.write(HEAD + TEACHER + "\n\n" + NET)
    report, finding = place.diagnose(importlib.reload(module).Net())
    assert finding.location is not None
    assert finding.location.line == 21
    assert changes.derive_change(finding)
    assert not says_so(report)


def test_after_a_reload_an_old_model_is_still_told_as_changed(place: Workplace) -> None:
    module = place.load(HEAD + NET)
    net = module.Net()
    place.write(HEAD + TEACHER + "\n\n" + NET)
    importlib.reload(module)
    report, finding = place.diagnose(net)
    assert says_so(report)
    assert changes.derive_change(finding) == ()


def test_a_change_is_not_written_into_a_file_that_was_edited_meanwhile(place: Workplace) -> None:
    _, finding = place.diagnose(place.load(HEAD + NET).Net())
    made = changes.derive_change(finding)
    assert finding.location is not None
    place.write(HEAD + TEACHER + "\n\n" + NET)
    with pytest.raises(GradkitError) as caught:
        fix.apply_edit(place.file, made, finding.location.digest)
    assert caught.value.key == "edit_changed"
    assert place.file.read_text() == HEAD + TEACHER + "\n\n" + NET


def test_what_gradkit_itself_wrote_and_nobody_imported_yet_counts_as_changed(place: Workplace) -> None:
    net = place.load(HEAD + NET).Net()
    _, finding = place.diagnose(net)
    fix.apply_edit(place.file, changes.derive_change(finding))
    report, again = place.diagnose(net)
    assert says_so(report)
    assert changes.derive_change(again) == ()


def test_a_deleted_file_is_not_called_edited(place: Workplace) -> None:
    net = place.load(HEAD + NET).Net()
    place.file.unlink()
    report, finding = place.diagnose(net)
    assert finding.location is not None
    assert (finding.location.line, finding.location.text) == (11, "")
    assert changes.derive_change(finding) == ()
    assert not says_so(report)


FROZEN = HEAD + NET.replace(".detach()", "") + "\n\ndef build():\n    net = Net()\n{line}\n    return net\n"
FREEZES = "    net.a.requires_grad_(False)"


def test_a_search_for_what_froze_names_no_line_of_an_edited_file(place: Workplace) -> None:
    net = place.load(FROZEN.format(line=FREEZES)).build()
    place.write(FROZEN.format(line="    net.b.requires_grad_(False)"))
    report = gradkit.diagnose(net, torch.ones(1, 3), should_train=["*"])
    assert [finding.cause for finding in report.findings] == ["frozen_all"]
    assert report.findings[0].location is None


def test_a_search_for_what_froze_names_the_line_where_nothing_was_edited(place: Workplace) -> None:
    net = place.load(FROZEN.format(line=FREEZES)).build()
    report = gradkit.diagnose(net, torch.ones(1, 3), should_train=["*"])
    assert report.findings[0].location is not None
    assert report.findings[0].location.text == FREEZES


def test_a_scan_judges_no_place_of_an_edited_file_by_what_ran(place: Workplace) -> None:
    net = place.load(HEAD + NET).Net()
    place.write(HEAD + TEACHER + "\n\n" + NET)
    scan = gradkit.scan(place.file, lambda: net(torch.ones(1, 3)), model=net)
    assert {(one.verdict, one.why) for one in scan.sites} == {("unjudged", "changed")}


# -- code that is not compiled in the ordinary way -------------------------------------------------------------------


def read(code: Any, file: Path, text: str) -> imported.Read:
    file.write_text(text, encoding="utf-8")
    return imported.read(str(file), code)


def functions(text: str, file: Path, **how: Any) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(text, str(file), "exec", dont_inherit=True, **how), space)
    return space


ALL_KINDS = """import functools
@functools.lru_cache
def decorated(x): return x
shifted = lambda x: (x + 1,
    x - 1)
def comprehension(xs): return [x * 2.0 for x in xs if x not in {1, 2, 3}]
def nan(x): return x * (1e999 - 1e999), -0.0, 1e400 * 0, "text", b"bytes", ..., (1, (2.0, None))
def maker(x):
    def inner(y): return x + y
    return inner
async def later(x): return await x
def typed(x: int = 3) -> "int": return x
"""  # fmt: skip


def test_every_kind_of_function_belongs_to_its_own_text() -> None:
    made = compile(ALL_KINDS, "kinds.py", "exec", dont_inherit=True)
    codes = [code for code in made.co_consts if hasattr(code, "co_code")]
    assert len(codes) >= 7
    assert all(provenance.compiles_to(ALL_KINDS, code) for code in (made, *codes))
    assert not any(provenance.compiles_to("\n" + ALL_KINDS, code) for code in (made, *codes))


@pytest.mark.parametrize(("was", "now"), [("2.0", "2"), ("{1, 2, 3}", "{1, 2, 4}"), ("x * 2", "x + 2")])
def test_another_constant_or_operator_is_another_function(was: str, now: str) -> None:
    code = functions(ALL_KINDS, Path("kinds.py"))["comprehension"].__code__
    inner = [one for one in code.co_consts if hasattr(one, "co_code")]  # before Python 3.12
    changed = ALL_KINDS.replace(was, now)
    assert not all(provenance.compiles_to(changed, one) for one in (code, *inner))


def test_code_compiled_with_a_future_that_its_file_does_not_name_belongs_to_it(tmp_path: Path) -> None:
    text = "def outer():\n    def f(x: Missing): return x\n    return f\n"
    import __future__

    space = functions(text, tmp_path / "a.py", flags=__future__.annotations.compiler_flag)
    assert not read(space["outer"].__code__, tmp_path / "a.py", text).changed


def test_asserts_that_pytest_has_rewritten_are_no_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = pytest.importorskip("_pytest.assertion.rewrite")
    import ast

    monkeypatch.setattr(provenance, "_BEGAN", 0.0)
    file, text = tmp_path / "test_a.py", "def test_f(x=1):\n    y = x + 1\n    assert y == 2, 'no'\n    return y\n"
    tree = ast.parse(text)
    rewrite.rewrite_asserts(tree, text.encode())
    space: dict[str, Any] = {}
    exec(compile(tree, str(file), "exec", dont_inherit=True), space)
    code = space["test_f"].__code__
    assert not provenance.compiles_to(text, code)
    assert not read(code, file, text).changed
    assert read(code, file, text.replace("y = x + 1", "z = y = x + 1")).changed


def test_what_an_import_hook_made_of_a_file_is_no_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ast
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    class Checked(SourceFileLoader):
        def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
            tree = ast.parse(data)
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    node.body.insert(0, ast.copy_location(ast.parse("checked = True").body[0], node.body[0]))
            return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    monkeypatch.setattr(provenance, "_BEGAN", 0.0)
    file, text = tmp_path / "hooked_module.py", "def f(x):\n    return x.detach()\n"
    file.write_text(text)
    spec = spec_from_file_location("hooked_module", file, loader=Checked("hooked_module", str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "hooked_module", module)
    spec.loader.exec_module(module)
    assert not provenance.compiles_to(text, module.f.__code__)
    assert not imported.read(str(file), module.f.__code__).changed
    assert read(module.f.__code__, file, text.replace("x.detach()", "x.clone()")).changed


def test_code_that_differs_in_a_file_untouched_since_the_start_is_no_edit(tmp_path: Path) -> None:
    """Some tools change instructions on the way; a file from before this process cannot have been edited in it."""
    file, text = tmp_path / "a.py", "def f(x):\n    return x + 1\n"
    code = functions(text.replace("+ 1", "+ 2"), file)["f"].__code__
    assert read(code, file, text).changed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "_BEGAN", file.stat().st_ctime + 1)
        assert not imported.read(str(file), code).changed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells when a process began")
def test_the_beginning_of_the_process_is_known(tmp_path: Path) -> None:
    fresh = tmp_path / "a"
    fresh.touch()
    assert 0 < provenance._BEGAN < fresh.stat().st_mtime


def test_another_encoding_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    for encoding, mark in (("latin-1", "# -*- coding: latin-1 -*-"), ("utf-8-sig", "#")):
        text = f"{mark}\ndef f(x):\n    return x, 'caf\u00e9'\n"
        file.write_bytes(text.encode(encoding))
        space: dict[str, Any] = {}
        exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), space)
        assert not imported.read(str(file), space["f"].__code__).changed


def test_a_function_left_over_by_a_reload_does_not_silence_the_search(place: Workplace) -> None:
    module = place.load("def old(): pass\n" + FROZEN.format(line=FREEZES))
    place.write(FROZEN.format(line=FREEZES))
    importlib.reload(module)
    assert hasattr(module, "old")
    assert locations.tree_of(str(place.file)) is not None


def test_an_edit_of_module_level_code_silences_the_search(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = HEAD + NET + "\nnet = Net()\n"
    place.load(text + "net.a.requires_grad_(False)\n")
    assert locations.tree_of(str(place.file)) is not None
    place.write(text + "net.b.requires_grad_(False)  # now\n")
    assert locations.tree_of(str(place.file)) is None


def test_a_line_of_another_process_is_known_after_a_change_once_it_was_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("y = x.detach()\n", encoding="utf-8")
    found = Location(str(path), 1, text="y = x.detach()", digest=imported.text_digest("y = x.detach()\n"))
    assert imported.source_of(found) is not None
    path.write_text("y = x\n", encoding="utf-8")
    source = imported.source_of(found)
    assert source is not None
    assert source.text == "y = x.detach()\n"
