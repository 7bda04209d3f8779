"""A straight-through value taken by the term that was to pull its other part: the line of that term is named."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import gradkit
from gradkit.types import Report

HEAD = """\
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
"""
PLAIN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.codes, self.dec = nn.Linear(6, 4), nn.Embedding(8, 4), nn.Linear(4, 6)

    def forward(self, x):
        z = self.enc(x)
        code = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        q = z + (code - z).detach()
        pulled = {before}
        return self.dec(q), F.mse_loss(pulled, z.detach()) + 0.25 * F.mse_loss(z, code.detach())  # HERE


net, x = Net(), torch.randn(5, 6)


def step():
    out, codebook = net(x)
    return F.mse_loss(out, x) + codebook
"""
BY_DATA = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.codes, self.dec = nn.Linear(6, 4), nn.Parameter(torch.randn(8, 4)), nn.Linear(4, 6)

    def forward(self, x):
        z = self.enc(x)
        code = F.one_hot(torch.cdist(z, self.codes).argmin(1), 8).float() @ self.codes
        q = code.data - z.data + z
        self.extra = (({before} - z.data) ** 2).mean()  # HERE
        return self.dec(q)


net, x = Net(), torch.randn(5, 6)


def step():
    return F.mse_loss(net(x), x) + net.extra
"""
IMAGES = """
class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(8, 4)

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, 4)
        code = self.codes(torch.cdist(flat, self.codes.weight).argmin(1)).view(2, 3, 3, 4).permute(0, 3, 1, 2)
        return z + (code - z).detach(), code


def losses(out, code, z):
    pull = F.mse_loss({before}, z.detach().contiguous())  # HERE
    return pull + 0.25 * F.mse_loss(z, code.detach())


enc, quantizer, dec = nn.Conv2d(3, 4, 1), Quantizer(), nn.Conv2d(4, 3, 1)
net, x = nn.ModuleList([enc, quantizer, dec]), torch.randn(2, 3, 3, 3)


def step():
    z = enc(x)
    q, code = quantizer(z)
    return F.mse_loss(dec(q), x) + losses(q, code, z)
"""
SHAPES = {
    "a codebook": (PLAIN, "q", "code"), "by data": (BY_DATA, "q", "code"), "of images": (IMAGES, "out", "code"),
}  # fmt: skip


def _report(folder: Path, shape: str, *, wrong: bool) -> tuple[Report, int]:
    text, out, before = SHAPES[shape]
    text = HEAD + textwrap.dedent(text).format(before=out if wrong else before)
    path = folder / "net.py"
    path.write_text(text)
    space: dict[str, Any] = {"__name__": "net"}
    exec(compile(text, str(path), "exec", dont_inherit=True), space)
    line = next(at for at, one in enumerate(text.splitlines(), 1) if one.endswith("# HERE"))
    return gradkit.diagnose(space["step"], model=space["net"]), line


@pytest.mark.parametrize("shape", SHAPES)
def test_the_line_that_takes_the_straight_through_value_is_named(shape: str, tmp_path: Path) -> None:
    report, line = _report(tmp_path, shape, wrong=True)
    (finding,) = report.findings
    assert (finding.variant, finding.location and finding.location.line) == ("straight_through", line)
    assert [name.rpartition("codes")[1] for name in finding.parameters] == ["codes"]
    assert finding.tried is None
    assert "straight-through" in report.text("en")
    assert "直通" in report.text("zh")


@pytest.mark.parametrize("shape", SHAPES)
def test_with_the_value_from_before_it_the_program_is_sound(shape: str, tmp_path: Path) -> None:
    assert _report(tmp_path, shape, wrong=False)[0].healthy


def test_a_codebook_that_no_term_pulls_is_told_at_the_straight_through_line(tmp_path: Path) -> None:
    text = HEAD + textwrap.dedent(PLAIN).format(before="code")
    text = text.replace("F.mse_loss(pulled, z.detach()) + ", "")
    path = tmp_path / "net.py"
    path.write_text(text)
    space: dict[str, Any] = {"__name__": "net"}
    exec(compile(text, str(path), "exec", dont_inherit=True), space)
    report = gradkit.diagnose(space["step"], model=space["net"])
    assert [one.variant for one in report.findings].count("straight_through") == 0
    assert report.findings[0].tried is not None
    assert (report.findings[0].tried.changes, report.findings[0].tried.outcome) == ((), "withheld")
    assert "leave this line as it is" in report.text("en")
