"""``gradkit scan``: every place in source code that may stop a gradient, and what a diagnosis says of each."""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import gradkit
from gradkit.api.scanning import result
from gradkit.api.scanning.result import Scan
from gradkit.api.scanning.sites import Site
from gradkit.api.scanning.stops import EVAL, KINDS
from gradkit.api.scanning.verdicts import HARMFUL, HARMLESS, NOT_REACHED, UNACCUSED
from gradkit.cli import COULD_NOT_RUN, FINDINGS, HEALTHY, main
from gradkit.core import causes
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words
from gradkit.teaching import guide


def found(tmp_path: Path, text: str, name: str = "train.py") -> list[Site]:
    (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return [one.site for one in gradkit.scan(tmp_path / name).sites]


def kinds(tmp_path: Path, line: str) -> list[str]:
    """The kinds of the sites in the forward of a module that has this line."""
    return [
        site.kind for site in found(tmp_path, f"import torch\nimport numpy as np\n\ndef forward(x, net):\n    {line}\n")
    ]


# -- what is a site -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("with torch.no_grad(): y = net(x)", "no_grad"),
        ("with torch.inference_mode(): y = net(x)", "inference_mode"),
        ("with torch.set_grad_enabled(False): y = net(x)", "set_grad_enabled"),
        ("torch.set_grad_enabled(net.training)", "set_grad_enabled"),
        ("y = x.detach()", "detach"),
        ("y = torch.detach(x)", "detach"),
        ("x.detach_()", "detach"),
        ("y = list(map(torch.Tensor.detach, x))", "detach"),
        ("y = x.data", "data"),
        ("x.data.clamp_(0)", "data"),
        ("x.requires_grad = False", "freeze"),
        ("net.requires_grad_(False)", "freeze"),
        ("setattr(x, 'requires_grad', False)", "freeze"),
        ("y = torch.zeros(3, requires_grad=False)", "freeze"),
        ("x.requires_grad = 'lora' in net.name", "freeze"),
        ("net.eval()", "eval"),
        ("net.train(False)", "eval"),
        ("y = x.item()", "number"),
        ("y = x.tolist()", "number"),
        ("y = float(x.sum())", "number"),
        ("y = x.numpy()", "numpy"),
        ("y = np.asarray(x)", "numpy"),
        ("y = torch.tensor(x)", "rewrap"),
        ("y = torch.tensor([a for a in x])", "rewrap"),
        ("y = torch.FloatTensor(x)", "rewrap"),
        ("y = x.new_tensor(x)", "rewrap"),
        ("y = torch.as_tensor([x, x])", "rewrap"),
        ("y = x.long()", "integer_cast"),
        ("y = x.to(torch.uint8)", "integer_cast"),
        ("y = x.to(dtype=torch.int64)", "integer_cast"),
        ("y = torch.nn.Parameter(x)", "parameter"),
        ("y = torch.autograd.Variable(x)", "parameter"),
        ("x.requires_grad_()", "requires_grad"),
        ("x.requires_grad = True", "requires_grad"),
    ],
)
def test_a_line_of_a_forward_is_a_site(tmp_path: Path, line: str, kind: str) -> None:
    assert kinds(tmp_path, line) == [kind]


@pytest.mark.parametrize(
    "line",
    [
        "with torch.enable_grad(): y = net(x)",
        "with torch.set_grad_enabled(True): y = net(x)",
        "with torch.inference_mode(False): y = net(x)",
        "y = torch.tensor(1.0)",
        "y = torch.tensor([1, 2])",
        "y = torch.as_tensor(x)",
        "y = x.to('cuda')",
        "y = x.to(torch.float16)",
        "y = float('nan')",
        "y = float(len(x))",
        "y = float(args.rate)",
        "y = eval('1 + 1')",
        "net.train()",
        "x = torch.utils.data.DataLoader(x)",
        "y = self.data",
        "# x.detach()",
        "y = 'x.detach()'",
    ],
)
def test_a_line_that_stops_nothing_is_none(tmp_path: Path, line: str) -> None:
    assert kinds(tmp_path, line) == []


def test_each_of_several_on_one_line_has_its_own_columns(tmp_path: Path) -> None:
    sites = found(tmp_path, "import torch\ndef forward(x):\n    return x.detach().cpu().numpy()\n")
    text = "    return x.detach().cpu().numpy()"
    columns = [(one.location.column, one.location.end_column) for one in sites]
    assert [text[start - 1 : end - 1] for start, end in columns] == [".detach()", ".numpy()"]


def test_columns_count_characters_and_not_bytes(tmp_path: Path) -> None:
    (site,) = found(tmp_path, "def forward(x):\n    特征 = x.detach()\n")
    assert (site.location.column, site.location.end_column) == (11, 20)


@pytest.mark.parametrize(
    "text",
    [
        "import torch as t\nwith t.no_grad():\n    pass",
        "from torch import no_grad as off\nwith off():\n    pass",
        "import torch\noff = torch.no_grad\nwith off():\n    pass",
        "import torch\nquiet = torch.no_grad()\nwith quiet:\n    pass",
        "from torch import autograd\nwith autograd.no_grad():\n    pass",
        "import contextlib, torch\nwith torch.no_grad() if frozen else contextlib.nullcontext():\n    pass",
        "import torch\nwith open('x') as file, torch.no_grad():\n    pass",
    ],
)
def test_a_block_is_known_by_whatever_name_it_goes(tmp_path: Path, text: str) -> None:
    assert [(site.kind, site.form) for site in found(tmp_path, text)] == [("no_grad", "block")]


@pytest.mark.parametrize("mark", ["torch.no_grad()", "torch.no_grad", "off()", "quiet"])
def test_a_decorator_is_known_by_whatever_name_it_goes(tmp_path: Path, mark: str) -> None:
    text = f"import torch\nfrom torch import no_grad as off\nquiet = torch.no_grad()\n@{mark}\ndef embed(x): return x\n"
    assert [(site.kind, site.form, site.location.function) for site in found(tmp_path, text)] == [
        ("no_grad", "decorator", "embed")
    ]


def test_a_wrapped_function_and_an_entered_context_are_sites(tmp_path: Path) -> None:
    text = "import torch\nembed = torch.no_grad()(embed)\nstack.enter_context(torch.no_grad())\n"
    assert [(site.kind, site.location.line) for site in found(tmp_path, text)] == [("no_grad", 2), ("no_grad", 3)]


def test_a_file_that_has_nothing_to_do_with_torch_keeps_its_item_and_numpy(tmp_path: Path) -> None:
    assert found(tmp_path, "def forward(x):\n    return x.item(), x.numpy(), x.data, x.eval()\n") == []


def test_the_function_and_its_class_are_named(tmp_path: Path) -> None:
    (site,) = found(tmp_path, "class Net:\n    def forward(self, x):\n        return x.detach()\n")
    assert (site.location.function, site.location.text.strip()) == ("Net.forward", "return x.detach()")


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("forward", "forward"),
        ("training_step", "forward"),
        ("compute_loss", "forward"),
        ("train_one_epoch", "training"),
        ("evaluate", "evaluation"),
        ("predict", "evaluation"),
        ("build_model", "setup"),
        ("__init__", "setup"),
        ("helper", "other"),
    ],
)
def test_a_function_has_a_role_by_its_name(tmp_path: Path, name: str, role: str) -> None:
    assert [site.role for site in found(tmp_path, f"def {name}(x):\n    return x.detach()\n")] == [role]


def test_a_function_that_goes_backward_is_training(tmp_path: Path) -> None:
    assert [site.role for site in found(tmp_path, "def run(x):\n    x.backward()\n    x.detach()\n")] == ["training"]


def test_what_a_forward_calls_is_forward_too(tmp_path: Path) -> None:
    text = "def forward(x):\n    return pool(x)\n\n\ndef pool(x):\n    return x.detach()\n"
    assert [site.role for site in found(tmp_path, text)] == ["forward"]


def test_a_scan_never_runs_what_it_reads(tmp_path: Path) -> None:
    assert len(found(tmp_path, "raise SystemExit('run!')\nx = y.detach()\n")) == 1


# -- folders, notebooks, files that cannot be read ------------------------------------------------------------------


def test_hidden_folders_environments_and_caches_are_passed_over(tmp_path: Path) -> None:
    for folder in (".git", ".venv", "env", "__pycache__", "node_modules", "pkg"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("x = y.detach()\n")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    scan = gradkit.scan(tmp_path)
    assert [Path(one.site.location.file).parent.name for one in scan.sites] == ["pkg"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = y.detach()\n")
    scan = gradkit.scan([tmp_path, tmp_path / "a.py"])
    assert (scan.files, len(scan.sites)) == (1, 1)


def test_a_notebook_is_read_cell_by_cell_with_its_magics(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["x.detach()"]},
        {"cell_type": "code", "metadata": {}, "source": ["%matplotlib inline\n", "!pip list\n", "import torch as t"]},
        {"cell_type": "code", "metadata": {}, "source": "%%time\nwith t.no_grad():\n    y = x.detach()"},
        {"cell_type": "code", "metadata": {}, "source": "%%bash\nx.detach()"},
        {"cell_type": "code", "metadata": {}, "source": "y = (x\n     % 3).detach()"},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    scan = gradkit.scan(tmp_path)
    assert [(one.site.kind, one.site.cell, one.site.location.line) for one in scan.sites] == [
        ("no_grad", 3, 2),
        ("detach", 3, 3),
        ("detach", 5, 2),
    ]
    assert scan.skipped == ()
    assert "a.ipynb, cell 3, 2:" in scan.text()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("old.py", b"print 'detach()'\nx.detach()\n", "syntax"),
        ("null.py", b"x.detach()\n\0\n", "syntax"),
        ("latin.py", b"# caf\xe9\nx.detach()\n", "encoding"),
        ("unknown.py", b"# coding: no-such\nx.detach()\n", "encoding"),
        ("a.ipynb", b"{}", "notebook"),
        ("b.ipynb", b"not json", "notebook"),
        ("c.ipynb", b'{"cells": [1], "metadata": {}}', "notebook"),
    ],
)
def test_what_cannot_be_read_is_told_and_the_rest_goes_on(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "good.py").write_text("x = y.detach()\n")
    scan = gradkit.scan(tmp_path)
    assert [(Path(one.file).name, one.reason) for one in scan.skipped] == [(name, reason)]
    assert len(scan.sites) == 1
    assert name in scan.text()


def test_a_file_nested_too_deep_is_told(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(f"x = {'-' * 100_000}y.detach()\n")
    reasons = {one.reason for one in gradkit.scan(tmp_path).skipped}
    assert reasons <= {"too_deep", "syntax"}
    assert reasons


@pytest.mark.parametrize("coding", ["latin-1", "utf-8-sig", "gbk"])
def test_the_encoding_that_a_file_declares_is_honoured(tmp_path: Path, coding: str) -> None:
    declared = "" if coding == "utf-8-sig" else f"# -*- coding: {coding} -*-\n"
    (tmp_path / "a.py").write_bytes(
        f"{declared}é = x.detach()\n".replace("é", "值" if coding == "gbk" else "é").encode(coding)
    )
    (one,) = gradkit.scan(tmp_path).sites
    assert one.site.location.column == 6


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GradkitError, match="missing"):
        gradkit.scan(tmp_path / "missing")


def test_a_large_tree_goes_through_without_a_crash() -> None:
    peft = pytest.importorskip("peft")
    scan = gradkit.scan(Path(peft.__file__).parent / "tuners" / "lora")
    assert scan.skipped == ()
    lines = {one.site.location.line for one in scan.sites if one.site.location.file.endswith("layer.py")}
    text = (Path(peft.__file__).parent / "tuners" / "lora" / "layer.py").read_text(encoding="utf-8")
    plain = {number for number, line in enumerate(text.splitlines(), 1) if re.search(r"torch\.no_grad\(", line)}
    assert plain
    assert plain <= lines


# -- what a diagnosis says of them ----------------------------------------------------------------------------------

TRAIN = """\
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.proj, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.teacher.eval()

    def forward(self, x):
        with torch.no_grad():
            hint = self.teacher(x)
        h = self.proj(x + hint)
        if x.shape[0] > 100:
            h = h.data
        return self.head(h.detach()) if self.cut else self.head(h)


net = Net()
net.cut = True


@torch.no_grad()
def evaluate():
    return net(torch.ones(2, 4)).mean().item()


def step():
    loss = net(torch.ones(2, 4)).square().mean()
    print(f"loss {loss.item()}")
    return loss


def sound():
    net.cut = False
    return step()
"""


@pytest.fixture
def _train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)


def verdicts(scan: Scan) -> dict[str, tuple[str, str]]:
    """Verdict and reason by the text of the line."""
    return {one.site.location.text.strip(): (one.verdict, one.why) for one in scan.sites}


@pytest.mark.usefixtures("_train")
def test_each_place_of_a_broken_program_is_judged_by_its_diagnosis() -> None:
    scan = gradkit.scan("train.py", "train.py:step")
    assert verdicts(scan) == {
        "p.requires_grad = False": (HARMLESS, "accounted"),
        "self.teacher.eval()": (HARMLESS, "mode"),
        "with torch.no_grad():": (HARMLESS, "frozen"),
        "h = h.data": (NOT_REACHED, "not_reached"),
        "return self.head(h.detach()) if self.cut else self.head(h)": (HARMFUL, ""),
        "@torch.no_grad()": (NOT_REACHED, "not_reached"),
        "return net(torch.ones(2, 4)).mean().item()": (NOT_REACHED, "not_reached"),
        'print(f"loss {loss.item()}")': (HARMLESS, "left"),
    }


@pytest.mark.usefixtures("_train")
def test_a_sound_program_has_no_harmful_place() -> None:
    scan = gradkit.scan("train.py", "train.py:sound")
    assert scan.harmful == ()
    assert {verdict for verdict, _ in verdicts(scan).values()} == {HARMLESS, NOT_REACHED}


@pytest.mark.usefixtures("_train")
def test_without_a_proof_what_ran_is_neither_accused_nor_cleared() -> None:
    scan = gradkit.scan("train.py", "train.py:step", replay=False)
    assert verdicts(scan)["p.requires_grad = False"] == (UNACCUSED, "unaccused_before")
    assert len(scan.harmful) == 1


@pytest.mark.usefixtures("_train")
def test_a_step_that_exists_already_will_do() -> None:
    program: dict[str, Any] = {"__name__": "train"}
    exec(compile(TRAIN, str(Path("train.py").resolve()), "exec"), program)
    scan = gradkit.scan("train.py", program["step"], model=program["net"])
    assert [one.site.kind for one in scan.harmful] == ["detach"]


@pytest.mark.usefixtures("_train")
def test_a_finding_elsewhere_on_the_line_accuses_no_bystander(tmp_path: Path) -> None:
    (tmp_path / "argmax.py").write_text(
        "import torch\nnet = torch.nn.Linear(3, 3)\n\n\ndef step():\n"
        "    return net(torch.ones(2, 3)).argmax(-1).float().mean() * torch.ones(3).detach().max()\n"
    )
    scan = gradkit.scan("argmax.py", "argmax.py:step")
    assert scan.report is not None
    assert [finding.cause for finding in scan.report.findings][:1] == ["non_differentiable_op"]
    assert scan.harmful == ()
    assert "The diagnosis also found a problem elsewhere" in scan.text()


def test_a_block_in_which_a_value_is_written_unseen_is_harmful_and_not_cleared() -> None:
    case = guide.load_case("inplace_under_no_grad")
    model, step = case.make()
    scan = gradkit.scan(str(case.__file__), step, model=model)
    assert scan.report is not None
    assert [finding.cause for finding in scan.report.findings] == ["inplace_under_no_grad"]
    (block,) = scan.harmful
    assert (block.site.kind, block.site.form) == ("no_grad", "block")


@pytest.mark.parametrize("cause", ["detach", "data_attr", "no_grad_block", "no_grad_decorator", "numpy_roundtrip"])
def test_the_marked_line_of_a_guide_is_harmful_and_no_other(cause: str) -> None:
    case = guide.load_case(cause)
    model, step = case.make()
    scan = gradkit.scan(str(case.__file__), step, model=model)
    assert {one.site.location.line for one in scan.harmful} <= guide.cut_lines(cause)
    assert scan.harmful


@pytest.mark.parametrize("cause", ["detach", "no_grad_block"])
def test_a_cured_program_of_a_guide_has_no_harmful_line(cause: str) -> None:
    case = guide.load_case(cause)
    model, step = case.make_fixed()
    assert gradkit.scan(str(case.__file__), step, model=model).harmful == ()


@pytest.mark.usefixtures("_train")
def test_a_scan_with_a_step_leaves_the_tracing_of_lines_as_it_was() -> None:
    before = sys.gettrace()
    gradkit.scan("train.py", "train.py:step")
    assert sys.gettrace() is before


@pytest.mark.usefixtures("_train")
def test_a_step_that_raises_leaves_the_tracing_of_lines_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import torch\nnet = torch.nn.Linear(3, 1)\n\n\ndef step():\n    return net(torch.ones(2, 5).detach())\n"
    )
    before = sys.gettrace()
    with pytest.raises(GradkitError):
        gradkit.scan("bad.py", "bad.py:step")
    assert sys.gettrace() is before


def test_every_kind_of_site_may_be_accused_of_some_cause_but_the_mode_of_a_model() -> None:
    accused = {kind for cause in causes.causes() for kind in causes.cause(cause).sites}
    assert accused == set(KINDS) - {EVAL}


# -- the command and its forms --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_train")
@pytest.mark.parametrize(
    ("given", "status"),
    [
        (["train.py"], HEALTHY),
        (["train.py", "--step", "train.py:step"], FINDINGS),
        (["train.py", "--step", "train.py:sound"], HEALTHY),
        (["train.py", "--step", "train.py:step", "--should-train", "head.*"], HEALTHY),
        (["missing.py"], COULD_NOT_RUN),
        (["train.py", "--step", "train.py:missing"], COULD_NOT_RUN),
        (["broken.py"], COULD_NOT_RUN),
        (["broken.py", "train.py"], HEALTHY),
    ],
)
def test_the_exit_status(given: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("x.detach(\n")
    assert main(["scan", *given]) == status


@pytest.mark.usefixtures("_train")
def test_the_text_names_place_line_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "train.py", "--step", "train.py:step"])
    printed = capsys.readouterr().out
    assert "train.py:20:27 in Net.forward: detach" in printed
    assert "✗ harmful: detach() takes the value out of the graph" in printed
    assert "harmful 1; harmless 4; not reached 3" in printed
    assert "places: 8 (no_grad 2, detach 1, data 1, freeze 1, eval 1, number 2); files read: 1" in printed


@pytest.mark.usefixtures("_train")
def test_the_text_comes_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "train.py", "--step", "train.py:step", "--language", "zh"])
    assert "有害 1; 无害 4; 没有执行到 3" in capsys.readouterr().out


@pytest.mark.usefixtures("_train")
def test_json_tells_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "train.py", "--step", "train.py:step", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [(one["line"], one["cause"]) for one in told["sites"] if one["verdict"] == "harmful"] == [(20, "detach")]
    assert told["diagnosis"]["healthy"] is False


@pytest.mark.usefixtures("_train")
def test_github_annotates_the_harmful_line_and_leaves_the_cleared_alone(capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "train.py", "--step", "train.py:step", "--github"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "::error file=train.py,line=20,col=27,endColumn=36,title=gradkit%3A detach::harmful: detach()"
    )


def test_an_annotation_cannot_be_broken_by_what_it_says() -> None:
    assert result._escaped("50%\n::error::x", ":,") == "50%25%0A%3A%3Aerror%3A%3Ax"


@pytest.mark.usefixtures("_train")
def test_sarif_has_a_rule_a_kind_and_a_result_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    main(["scan", "train.py", "--step", "train.py:step", "--sarif"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == set(KINDS)
    (error,) = [one for one in run["results"] if one["level"] == "error"]
    place = error["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("train.py", 20)
    assert all(one["kind"] == "fail" or one["level"] == "none" for one in run["results"])


def test_every_kind_has_a_sentence_in_both_languages() -> None:
    assert all(words(f"scan.kind.{kind}", language) for kind in KINDS for language in ("en", "zh"))


def test_gradkit_s_own_examples_are_listed_by_line() -> None:
    cases = Path(gradkit.__file__).parent / "cases"
    scan = gradkit.scan(cases)
    attributes = {
        (file.name, node.lineno)
        for file in cases.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "no_grad"
    }
    listed = {(Path(o.site.location.file).name, o.site.location.line) for o in scan.sites if o.site.kind == "no_grad"}
    assert listed == attributes
    assert torch.is_grad_enabled()
