"""The command line, as a person or a script meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradkit.cli import COULD_NOT_RUN, FINDINGS, HEALTHY, main
from gradkit.core import causes as core_causes
from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.notebook.lab import build_guides, lab_command, lab_environment, start_notebook
from gradkit.teaching import book
from gradkit.teaching.guide import guide, markdown

TRAIN = """\
import torch
from torch import nn

print("hello from train.py")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 3)
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.proj(x).detach())


net = Net()


def step():
    return net(torch.ones(2, 4)).sum()


def sound():
    return net.head(net.proj(torch.ones(2, 4))).sum()


def made():
    own = Net()
    return own, lambda: own(torch.ones(2, 4)).sum()


def build_model():
    return Net()


def make_batch():
    return torch.ones(2, 4)


def loss(output, batch):
    return output.sum()


class Quitter(Net):
    def forward(self, x):
        raise SystemExit(0)
"""


@pytest.fixture(autouse=True)
def _terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a train.py in it, and an English terminal."""
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


def test_a_program_that_loses_the_gradient_gives_a_report_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "train.py:step"]) == FINDINGS
    report = capsys.readouterr().out
    assert report.startswith("error[detach]")
    assert "train.py:14" in report


def test_a_sound_program_gives_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "train.py:sound"]) == HEALTHY


def test_a_function_that_returns_model_and_step_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "train.py:made"]) == FINDINGS


def test_a_model_a_batch_and_a_loss_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diagnose", "--model", "train.py:build_model", "--batch", "train.py:make_batch", "--loss", "train.py:loss"]
    assert main(words) == FINDINGS
    assert "train.py:14" in capsys.readouterr().out


def test_only_the_parameters_that_should_train_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "train.py:step", "--should-train", "head.*"]) == HEALTHY


def test_without_replay_nothing_is_proven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "train.py:step", "--no-replay", "--json"]) == FINDINGS
    assert json.loads(capsys.readouterr().out)["findings"][0]["proof"] == "likely"


def test_json_on_stdout_is_not_mixed_with_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", "train.py:step", "--json"])
    captured = capsys.readouterr()
    assert json.loads(captured.out)["findings"][0]["cause"] == "detach"
    assert "hello from train.py" in captured.err


def test_the_report_is_written_to_the_file_that_save_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "train.py:step", "--save", "out.txt"]) == FINDINGS
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").strip() == capsys.readouterr().out.strip()


def test_the_report_comes_in_chinese_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", "train.py:step", "--language", "zh"])
    assert "梯度" in capsys.readouterr().out


def test_a_chinese_terminal_is_spoken_to_in_chinese(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    main(["guide", "detach"])
    assert capsys.readouterr().out == markdown(guide("detach", "zh"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["diagnose", "train.py:stepp"], "stepp"),
        (["diagnose", "missing.py:step"], "missing.py"),
        (["diagnose"], "train.py:step"),
        (["diagnose", "train.py:step", "--save", "out.gif"], "out.gif"),
        (["diagnose", "train.py:step", "--save", "no/such/out.txt"], "no/such/out.txt"),
        (["diagnose", "train.py:step", "--should-train", "nothing.*"], "nothing.*"),
        (["diagnose", "--model", "train.py:Quitter", "--batch", "train.py:make_batch"], "ended itself"),
        (["guide", "no_such_cause"], "no_such_cause"),
        (["guides", "--language", "tlh"], "tlh"),
        (["lab", "--dir", "no/such/folder"], "no/such/folder"),
    ],
)
def test_what_cannot_run_is_named_without_a_traceback(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == COULD_NOT_RUN
    said = capsys.readouterr().err
    assert named in said
    assert "Traceback" not in said


COMMANDS = ("", "lab", "run", "diagnose", "verify", "scan", "guide", "guides", "claims", "notebooks", "class")
ENGLISH_OF_ARGPARSE = ("usage:", "positional arguments", "options:", "show this help message", "error:", "[options]")


def helped(capsys: pytest.CaptureFixture[str], *words: str, language: str = "zh") -> str:
    with pytest.raises(SystemExit):
        main([*filter(None, words), "--language", language])
    said = capsys.readouterr()
    return said.out + said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_is_chinese_down_to_its_headings(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = helped(capsys, command, "--help")
    assert [heading for heading in ENGLISH_OF_ARGPARSE if heading in said] == []
    assert said.startswith("用法")
    assert "\n选项" in said
    assert "显示这份帮助并退出" in said


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("guide",), "缺少参数"),
        (("verify", "--depth", "x"), "'x' 不是有效的 int 值"),
        (("verify", "--frozen"), "至少要给出一个值"),
        (("notebooks", "--as", "md"), "没有 'md' 这个选择"),
        (("nothing",), "没有 'nothing' 这个选择"),
        (("scan", ".", "--json", "--github"), "不能与 --json 一起使用"),
        (("scan", ".", "--json=1"), "却给出了 '1'"),
    ],
)
def test_what_is_wrong_with_the_words_of_a_command_is_said_in_chinese(
    given: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = helped(capsys, *given)
    assert named in said
    assert "gradkit" in said
    assert [heading for heading in ENGLISH_OF_ARGPARSE if heading in said] == []


def test_in_english_a_help_has_the_headings_of_argparse(capsys: pytest.CaptureFixture[str]) -> None:
    said = helped(capsys, "guide", "--help", language="en")
    assert said.startswith("usage: gradkit guide [-h]")
    assert "\n\npositional arguments:\n" in said
    assert "\n\noptions:\n" in said


@pytest.mark.parametrize("language", i18n.LANGUAGES)
def test_the_mark_of_a_cell_stands_in_the_help_as_it_stands_in_a_script(
    language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "# %%" in helped(capsys, "notebooks", "--help", language=language)


def test_an_unknown_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["diagnose", "train.py:step", "--frobnicate"])
    assert "--frobnicate" in capsys.readouterr().err


def test_a_fault_of_our_own_is_not_taken_for_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core_causes, "families", lambda: 1 / 0)
    assert main(["guides"]) == COULD_NOT_RUN
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_every_cause_is_listed_with_its_title_below_its_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guides"]) == HEALTHY
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split(maxsplit=1) for line in lines if line.startswith("  ")]
    assert sorted(listed) == [[cause, guide(cause, "en").title] for cause in core_causes.causes()]
    families = core_causes.families()
    assert [line for line in lines if not line.startswith("  ")] == [
        i18n.words(f"guide.family.{family}", "en") for family in families
    ]
    assert [cause for cause, _ in listed] == [cause for causes in families.values() for cause in causes]


def test_python_m_gradkit_is_the_same_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradkit", "diagnose", "train.py:step"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert (ran.returncode, ran.stdout.splitlines()[0][:13]) == (FINDINGS, "error[detach]")


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    first_line_only = f"{sys.executable} -m gradkit guide detach | head -n 1"
    ran = subprocess.run(first_line_only, shell=True, capture_output=True, text=True, check=False)
    assert (ran.stdout.count("\n"), ran.stderr) == (1, "")


def test_jupyterlab_runs_in_this_python_at_the_start_notebook() -> None:
    command = lab_command(
        Path("/work"), Path("my start.ipynb"), browser=False, port=8890, ip="0.0.0.0", options=("--x",)
    )
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert {"--ServerApp.root_dir=/work", "--LabApp.default_url=/lab/tree/my%20start.ipynb"} <= set(command)
    assert {"--no-browser", "--port=8890", "--ip=0.0.0.0", "--x"} <= set(command)


def test_jupyterlab_is_left_to_choose_what_is_not_said() -> None:
    command = lab_command(Path("/work"), Path("start.ipynb"), browser=True, port=None, ip=None, options=())
    assert not [word for word in command if word.startswith(("--no-browser", "--port", "--ip"))]


def test_our_settings_for_jupyterlab_stand_before_those_that_were_there() -> None:
    ours, theirs = lab_environment({"JUPYTER_CONFIG_PATH": "/etc/theirs"})["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    settings = json.loads(Path(ours, "labconfig", "default_setting_overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert theirs == "/etc/theirs"


def test_a_start_notebook_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "gradkit-start.ipynb").write_text("mine")
    assert start_notebook(tmp_path, "en") == Path("gradkit-start.ipynb")
    assert (tmp_path / "gradkit-start.ipynb").read_text() == "mine"


@pytest.mark.parametrize(("language", "name"), [("en", "gradkit-start.ipynb"), ("zh", "gradkit-start.zh.ipynb")])
def test_the_start_notebook_is_written_in_the_language_of_its_reader(tmp_path: Path, language: str, name: str) -> None:
    assert start_notebook(tmp_path, language) == Path(name)
    assert (tmp_path / name).read_text(encoding="utf-8") == book.write_books("start", language)


@pytest.mark.parametrize("language", i18n.LANGUAGES)
def test_in_a_clone_the_start_notebook_is_that_of_the_language(language: str) -> None:
    assert start_notebook(Path(__file__).parents[1], language) == Path("notebooks", language, "start.ipynb")


def test_in_a_clone_the_notebooks_of_the_guides_are_built_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "gradkit" / "teaching" / "guides").mkdir(parents=True)
    mine = tmp_path / "notebooks" / "en" / "guides" / "detach.ipynb"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    build_guides(tmp_path)
    assert {path.stem for path in mine.parent.iterdir()} == set(core_causes.causes())
    assert mine.read_text() == "mine"
    assert not (tmp_path / "notebooks" / "zh").exists()


def test_where_no_clone_is_no_notebook_of_a_guide_is_written(tmp_path: Path) -> None:
    (tmp_path / "notebooks" / "en").mkdir(parents=True)
    build_guides(tmp_path)
    assert list(tmp_path.rglob("*.ipynb")) == []


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(GradkitError, match=tmp_path.name):
        start_notebook(tmp_path, "en")


def test_the_parameters_can_be_counted_by_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "train.py:step", "--breakdown"]) == FINDINGS
    shown = capsys.readouterr().out
    assert "error[detach]" in shown
    assert "proj 15 15 15 0 train ✗" in " ".join(shown.split())
    assert "proj.weight" not in shown.split("By module")[1]
    main(["diagnose", "train.py:step", "--breakdown", "2"])
    assert "    weight" in capsys.readouterr().out.split("By module")[1]


def test_json_holds_no_table_for_people() -> None:
    with pytest.raises(SystemExit):
        main(["diagnose", "train.py:step", "--breakdown", "--json"])
