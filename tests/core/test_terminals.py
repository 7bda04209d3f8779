"""What strangers named and wrote acts on no terminal, page or CI; and every console can print what is said."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradkit import GradkitError, causes, diagnose, guide, scan, verify
from gradkit.cli import main
from gradkit.core import i18n
from gradkit.core.printable import escaped, fitted, inert, line, shortened
from gradkit.report.report import Report
from gradkit.teaching.guide import markdown

ACTING = {
    "colours": "\x1b[31mred\x1b[0m",
    "a title": "\x1b]0;title\x07",
    "C1": "\x9b31m",
    "a bell, a null": "a\x00b\x07c\x7f",
    "carriage return": "a\rb",
    "right to left": "ab\u202ecd\u2066ef\u2069",
    "marks of direction": "a\u200eb\u200fc\u061c",
    "zero width": "a\u200bb\ufeffc\u2060d",
    "a joiner without emoji": "a\u200db",
    "line separators": "a\u2028b\u2029c\x85d",
    "lone surrogates": "x\udcff\ud800y",
    "tags": "a\U000e0041b",
}
STAYING = [
    "梯度在这里断开",
    "café naïve",
    "e\u0301",
    "a\tb\nc",
    "👩\u200d👩\u200d👧",
    "❤️\u200d🔥",
    "Ω ≈ ∇",
    "العربية",
    "ひらがな",
    "한국어",
]
CONSOLES = ["gbk", "cp936", "cp932", "cp1252", "cp437", "ascii", "latin-1", "utf-16", "utf-8"]
PROGRAM = """\
import torch
n = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
x = torch.randn(4, 3)
def step():
    名 = n[0](x); return n[1](名.detach()).sum()
"""


def acting(text: str) -> set[str]:
    return {
        char for char in text if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }


def cut_in(name: str) -> Report:
    net = nn.Module()
    net.add_module(name.replace(".", "_"), nn.Linear(3, 3))
    net.head = nn.Linear(3, 1)
    first = net.get_submodule(name.replace(".", "_"))
    return diagnose(lambda: net.head(first(torch.ones(2, 3)).detach()).sum(), model=net)


@contextlib.contextmanager
def console(encoding: str) -> Iterator[io.BytesIO]:
    """A console of this encoding in place of stdout, and what was written to it."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    with contextlib.redirect_stdout(stream):
        yield written
    stream.detach()


@pytest.fixture(autouse=True)
def _in_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADKIT_LANGUAGE", "en")
    before = i18n.language("en")
    yield
    i18n.language(before)


# -- characters that act --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ACTING.values(), ids=ACTING)
def test_a_character_that_acts_is_shown_escaped(text: str) -> None:
    assert acting(escaped(text)) == set()
    assert escaped(escaped(text)) == escaped(text)


@pytest.mark.parametrize("text", STAYING)
def test_letters_accents_and_emoji_stay_as_they_are(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize("text", ACTING.values(), ids=ACTING)
def test_a_module_whose_name_acts_is_shown_escaped_everywhere(text: str, tmp_path: Path) -> None:
    report = cut_in(text)
    assert acting(report.text() + report.html() + report.breakdown() + report.graph().source + report.svg()) == set()
    for ending in ("txt", "html", "json", "dot"):
        saved = report.save(tmp_path / f"report.{ending}").read_text(encoding="utf-8")
        assert acting(saved) == set()


def test_json_hands_a_name_on_exactly(tmp_path: Path) -> None:
    name = "".join(text for text in ACTING.values()).replace(".", "_")
    found = json.loads(cut_in(name).save(tmp_path / "r.json").read_text(encoding="utf-8"))
    assert f"{name}.weight" in [row["name"] for row in found["parameters"]]


@pytest.mark.parametrize("text", ACTING.values(), ids=ACTING)
def test_an_error_of_ours_shows_what_it_names_escaped(text: str) -> None:
    def step() -> torch.Tensor:
        raise ValueError(text)

    with pytest.raises(GradkitError) as caught:
        diagnose(step, model=nn.Linear(1, 1))
    assert acting(str(caught.value)) == set()


def test_a_name_with_a_line_break_stays_on_its_line() -> None:
    assert "a\\n::error::x" in cut_in("a\n::error::x").text()


def test_a_name_of_100000_letters_is_shortened_and_it_is_told_by_how_much() -> None:
    text = cut_in("L" * 100_000).text()
    assert len(text) < 4000
    assert "(+99,8" in text


def test_a_message_of_100000_letters_is_shortened() -> None:
    assert len(str(GradkitError("no_such_file", path="p" * 100_000))) < 1200
    assert shortened("p" * 100_000).count("…") == 2


def test_carets_stand_under_the_expression_when_the_line_before_it_is_escaped_or_cut() -> None:
    for before in ("a = '\x1b' + ", "a = '" + "x" * 10_000 + "' + ", "\ta = '中\u202e' + "):
        source = f"{before}x.detach() + 1"
        shown, start, end = line(source, len(before) + 1, len(before) + 11)
        assert shown[start - 1 : end - 1] == "x.detach()"


# -- commands to a CI -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["::error::x", "  \t::stop-commands::x", "a\n::set-output name=a::b", "\u3000::x"])
def test_no_line_begins_as_a_workflow_command(text: str) -> None:
    assert not any(one.strip().startswith("::") for one in inert(text).splitlines())


@pytest.mark.parametrize("text", ["##[error]x", "see ##[group]x", "##vso[task.setvariable]x", "###[x]"])
def test_no_line_holds_a_command_of_azures(text: str) -> None:
    assert "##[" not in inert(text)
    assert "##vso[" not in inert(text)


def test_colons_and_hashes_elsewhere_stay() -> None:
    text = "std::vector a ## [x]\n# [1]\nC:\\x\n: :"
    assert inert(text) == text


@pytest.mark.parametrize("form", [[], ["--json"], ["--sarif"]])
def test_a_scan_carries_no_command_of_a_strangers(
    form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a\n::error::x.py").write_text("y = x.detach()\n")
    (tmp_path / "s.py").write_text(
        'def f(x):\n    y = """\n::error::by a string"""; z = x.detach() # ##[error] \u202e\n'
        '    return g(r"""\n##[error]x\n::stop-commands::t""", x.detach())\n', encoding="utf-8"
    )  # fmt: skip
    main(["scan", str(tmp_path), *form])
    told = capsys.readouterr().out
    assert not any(one.strip().startswith("::") for one in told.splitlines())
    assert "##[" not in told
    assert acting(told) == set()
    if form:
        assert json.loads(told)


def test_a_scan_for_github_tells_its_own_commands_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a\n::error::x.py").write_text("def f(x):\n    return x.detach()\n")
    main(["scan", str(tmp_path), "--github"])
    assert [one.split()[0] for one in capsys.readouterr().out.splitlines()] == ["::notice"]


# -- consoles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", i18n.LANGUAGES)
@pytest.mark.parametrize("ours", [diagnose, verify, scan])
def test_print_takes_what_we_return_on_every_console(ours: Any, language: str, tmp_path: Path) -> None:
    (file := tmp_path / "程序.py").write_text(PROGRAM, encoding="utf-8")
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))

    def step() -> torch.Tensor:
        return net[1](net[0](torch.ones(2, 3)).detach()).sum()

    i18n.language(language)
    found = scan(file, step, model=net) if ours is scan else ours(step, model=net)
    for encoding in CONSOLES:
        with console(encoding) as written:
            print(found)
            print(found.text())
            print(repr(found))
        assert written.getvalue()


def test_signs_have_a_plain_likeness() -> None:
    with console("cp1252"):
        assert fitted("✓ ✗ → × … – “a” 中") == "v x -> × … – “a” \\u4e2d"
    with console("ascii"):
        assert fitted("✓ × … – “a” │ ─ \uff1a \uff08 é") == 'v x ... - "a" | - : ( \\xe9'
    with console("gbk"):
        assert fitted("✓ ✗ → × 中") == "v x → × 中"


def test_columns_stand_below_one_another_on_a_poor_console(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    with console("ascii") as written:
        main(["diagnose", "train.py:step", "--breakdown", "2"])
    told = written.getvalue().decode("ascii").splitlines()
    at = next(number for number, one in enumerate(told) if "^^^" in one)
    assert told[at].index("^") == told[at - 1].index(".detach()")
    rows = told[told.index("By module, in values (elements of the parameters):") + 2 :]
    assert len({one.index("train") for one in rows}) == 1


def test_a_saved_report_has_every_sign_whatever_the_console(tmp_path: Path) -> None:
    report = cut_in("层")
    with console("ascii"):
        assert "层" not in report.text("zh")
        assert "层" in report.save(tmp_path / "r.txt", "zh").read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_json_on_a_poor_console_is_still_exact(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    with console(encoding) as written:
        main(["diagnose", "train.py:step", "--json"])
    found = json.loads(written.getvalue().decode(encoding))
    assert "名.detach()" in found["findings"][0]["location"]["text"]


@pytest.mark.parametrize("language", i18n.LANGUAGES)
@pytest.mark.parametrize(
    "words", [["guides"], ["claims"], ["notebooks"], ["guide", "numpy_roundtrip"], ["diagnose", "no.py:step"]]
)
def test_every_command_prints_on_every_console(words: list[str], language: str) -> None:
    for encoding in CONSOLES:
        with console(encoding):
            assert main([*words, "--language", language]) == (2 if words[0] == "diagnose" else 0)


@pytest.mark.parametrize("words", [[], ["lab"], ["diagnose"], ["verify"], ["scan"], ["guide"], ["notebooks"]])
def test_help_prints_on_every_console_in_chinese(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADKIT_LANGUAGE", "zh")
    for encoding in CONSOLES:
        with console(encoding) as written, pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        assert written.getvalue()


def test_an_error_of_ours_can_be_printed_on_every_console() -> None:
    i18n.language("zh")
    for encoding in CONSOLES:
        with console(encoding) as written:
            print(GradkitError("no_such_file", path="训练.py"))
        assert written.getvalue()


def test_a_stream_is_left_as_it_was() -> None:
    with console("cp1252"):
        main(["guides"])
        assert sys.stdout.errors == "strict"


def test_every_sign_of_our_english_has_a_likeness() -> None:
    guides = "".join(markdown(guide(cause, "en")) for cause in causes())
    said = guides + "".join(i18n.catalogue("en").values())
    with console("ascii"):
        assert {char for char in said if "\\" in fitted(char) and not char.isalpha()} <= {"\\"}


def test_a_stream_with_an_encoding_of_its_own_making_is_printed_to_as_it_is() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        assert fitted("✓") == "✓"
