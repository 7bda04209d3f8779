"""Programs under ``gradkit run`` and ``gradkit diagnose train.py``, each in a process of its own, with torch itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[2]

TRAIN = """\
import sys
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(4, 3), nn.Linear(3, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)


def loss_of(x):
    hidden = body(x)
    return head(hidden).square().mean()


def main():
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
        optimizer.zero_grad()
        loss = loss_of(torch.randn(8, 4))
        loss.backward()
        optimizer.step()
        print("step", number, round(loss.item(), 3), flush=True)


if __name__ == "__main__":
    main()
"""
DETACHED = TRAIN.replace("hidden = body(x)", "hidden = body(x).detach()")
RAISES = TRAIN.replace(
    "return head(hidden).square().mean()", "with torch.no_grad():\n        return head(hidden).mean()"
)
CUT = {DETACHED: ("detach", 11), RAISES: ("no_grad_block", 12)}


@dataclass(frozen=True)
class End:
    """How a process ended."""

    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    monkeypatch.setenv("GRADKIT_LANGUAGE", "en")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def python(*words: str) -> End:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)
    return End(done.returncode, done.stdout, done.stderr)


def run(text: str, *words: str, program: tuple[str, ...] = ("train.py",)) -> End:
    Path("train.py").write_text(text)
    return python("-m", "gradkit", "run", *words, *program)


def first_finding(text: str = "out.json") -> tuple[str, int]:
    found = json.loads(Path(text).read_text())["findings"][0]
    return found["cause"], found["location"]["line"]


def test_an_error_has_its_own_traceback_and_then_the_line_that_is_to_blame() -> None:
    watched = run(RAISES, "--json", "out.json")
    plain = python("train.py")
    assert (watched.status, watched.out) == (plain.status, plain.out) == (1, "")
    assert watched.err.startswith(plain.err)
    assert watched.err[len(plain.err) :].startswith("\nerror[no_grad_block]")
    assert first_finding() == CUT[RAISES]


def test_a_sound_program_gets_one_line_at_its_end() -> None:
    watched = run(TRAIN, "--json", "out.json")
    assert (watched.status, watched.out.count("step")) == (0, 4)
    assert [line for line in watched.err.splitlines() if "4 optimizer steps" in line] == watched.err.splitlines()
    assert json.loads(Path("out.json").read_text()) == {"healthy": True, "findings": [], "steps": 4, "error": ""}


@pytest.mark.parametrize(("words", "rank"), [(["--quiet"], "0"), ([], "1")], ids=["quiet", "another rank"])
def test_nothing_is_said_of_a_sound_program_to_those_who_want_no_word(
    words: list[str], rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    done = run(TRAIN, *words)
    assert (done.status, done.err) == (0, "")


def test_a_silent_fault_is_told_while_the_program_trains_on() -> None:
    watched = run(DETACHED, "--json", "out.json", "--report", "out.html", "--language", "zh")
    assert watched.status == 0
    assert watched.out.count("step") == 4
    assert first_finding() == CUT[DETACHED]
    assert "错误[detach]" in watched.err
    assert watched.err.splitlines()[-1].startswith("gradkit\N{FULLWIDTH COLON}")
    assert "detach" in Path("out.html").read_text(encoding="utf-8")


def test_names_that_should_train_are_asked_for() -> None:
    frozen = TRAIN.replace("optimizer = ", "body.requires_grad_(False)\noptimizer = ")
    for names, cause in {("0.*", "body.*"): "frozen_all", ("nothing.*",): ""}.items():
        watched = run(frozen, "--json", "out.json", "--should-train", *names)
        assert watched.status == 0
        found = json.loads(Path("out.json").read_text())
        assert found["healthy"] is (False if cause else None)
        assert [one["cause"] for one in found["findings"]][:1] == [cause] * bool(cause)
        assert cause or "nothing.*" in watched.err.splitlines()[-1]


def test_stop_ends_the_program_at_the_first_finding() -> None:
    stopped = run(DETACHED, "--stop", program=("train.py", "100"))
    assert stopped.status == 1
    assert stopped.out.count("step") < 5
    assert "--stop" in stopped.err.splitlines()[-2]


@pytest.mark.parametrize("words", [("run", "--stop"), ("diagnose",)], ids=" ".join)
@pytest.mark.parametrize("text", [DETACHED, RAISES], ids=["silent", "raises"])
def test_a_program_that_is_ended_early_reaches_none_of_its_checkpoints(text: str, words: tuple[str, ...]) -> None:
    saves = "\n      torch.save(body.state_dict(), f'epoch-{epoch}.pt')\n    torch.save(head.state_dict(), 'last.pt')\n"
    epochs = text.replace("    for number in", "    for epoch in range(2):\n      for number in")
    epochs = epochs.replace("else 4", "else 99")
    Path("train.py").write_text(epochs.replace("flush=True)\n", f"flush=True){saves}"))
    assert python("-m", "gradkit", *words, "train.py").status == 1
    assert list(Path().glob("*.pt")) == []


def test_an_error_that_the_program_catches_is_told_at_its_end() -> None:
    caught = RAISES.replace("    main()\n", "    try:\n        main()\n    except RuntimeError:\n        sys.exit(5)\n")
    done = run(caught, "--json", "out.json")
    assert done.status == 5
    assert first_finding() == CUT[RAISES]


def test_an_error_after_which_training_goes_on_is_not_told() -> None:
    skips = """        try:
            torch.ones(()).backward()
        except RuntimeError:
            if number == 1:
                continue
"""
    done = run(TRAIN.replace("        optimizer.zero_grad()\n", skips))
    assert done.status == 0
    assert len(done.err.splitlines()) == 1


def test_an_error_that_autograd_has_no_part_in_is_left_alone() -> None:
    done = run(TRAIN.replace("print(", "1 / 0\n        print("), "--json", "out.json")
    assert done.status == 1
    assert "error[" not in done.err
    assert "no part" in done.err.splitlines()[-1]
    told = json.loads(Path("out.json").read_text())
    assert told["healthy"] is None
    assert "no part" in told["why"]


def test_of_a_program_without_an_optimizer_it_is_said_why_nothing_is_known() -> None:
    bare = "".join(line for line in TRAIN.splitlines(keepends=True) if "optimizer" not in line)
    run(bare, "--json", "out.json")
    told = json.loads(Path("out.json").read_text())
    assert (told["healthy"], told["findings"]) == (None, [])
    assert "no optimizer took a step" in told["why"]


def test_a_hook_that_the_program_sets_keeps_its_say_and_the_report_comes_at_the_end() -> None:
    hook = "sys.excepthook = lambda kind, error, trace: print('mine', kind.__name__, file=sys.stderr)\n"
    done = run(RAISES.replace("import torch\n", "import torch\n" + hook))
    assert done.status == 1
    assert done.err.startswith("mine RuntimeError\n\nerror[no_grad_block]")


def test_a_command_is_followed_to_the_programs_that_it_starts() -> None:
    command = f"{sys.executable} train.py 2 && {sys.executable} train.py 3"
    done = run(TRAIN, program=("--", "bash", "-c", command))
    assert [line.split()[1] for line in done.err.splitlines()] == ["2", "3"]


# -- gradkit diagnose train.py ---------------------------------------------------------------------------------------


def diagnose(text: str, *words: str) -> End:
    Path("train.py").write_text(text)
    return python("-m", "gradkit", "diagnose", *words)


def of_json(done: End) -> dict[str, Any]:
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_a_script_is_diagnosed_up_to_its_first_finding() -> None:
    done = diagnose(DETACHED, "train.py", "--json", "--", "100000")
    assert done.status == 1
    found = of_json(done)["findings"][0]
    assert (found["cause"], found["location"]["line"]) == CUT[DETACHED]
    assert done.err.count("step") <= 3


def test_a_sound_script_is_ended_after_three_steps() -> None:
    done = diagnose(TRAIN, "train.py", "--save", "out.html", "--", "100000")
    assert done.status == 0
    assert done.err.count("step") == 2
    assert Path("out.html").exists()


def test_a_script_that_raises_is_diagnosed() -> None:
    done = diagnose(RAISES, "train.py")
    assert done.status == 1
    assert done.out.startswith("error[no_grad_block]")
    assert "Traceback" in done.err


def test_a_function_that_trains_is_diagnosed_like_a_script() -> None:
    assert diagnose(TRAIN, "train.py:main", "--", "100000").status == 0
    done = diagnose(DETACHED, "train.py:main", "--json", "--", "100000")
    assert done.status == 1
    assert of_json(done)["findings"][0]["cause"] == "detach"
    assert done.err.count("step") <= 3


def test_a_script_that_trains_nothing_names_its_functions() -> None:
    done = diagnose(TRAIN.replace("    main()\n", "    pass\n"), "train.py")
    assert (done.status, done.out) == (2, "")
    assert "loss_of" in done.err


def test_a_script_that_fails_otherwise_could_not_be_diagnosed() -> None:
    done = diagnose("1 / 0", "train.py")
    assert (done.status, done.out) == (2, "")
    assert "ZeroDivisionError" in done.err


def test_a_script_that_swallows_its_end_is_ended_all_the_same() -> None:
    swallows = TRAIN.replace(
        "        optimizer.step()\n", "        try:\n            optimizer.step()\n        except:\n            pass\n"
    )
    assert diagnose(swallows, "train.py", "--", "100000").status == 0


def test_a_script_that_goes_from_one_caught_error_to_the_next_is_ended() -> None:
    endless = """    while True:
        try:
            main()
        except RuntimeError:
            pass
"""
    done = diagnose(RAISES.replace("    main()\n", endless), "train.py", "--json")
    assert done.status == 1
    assert of_json(done)["findings"][0]["location"]["line"] == CUT[RAISES][1]
