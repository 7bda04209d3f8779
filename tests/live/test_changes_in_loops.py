"""Of a program that raised in its own loop, a change to that loop is tried before it is offered, and cures."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gradkit.source.changes import applied
from gradkit.types import Finding
from tests.live import failing

GAN = """\
import torch
from torch import nn
torch.manual_seed(0)
G, D = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
og, od = torch.optim.SGD(G.parameters(), 1e-2), torch.optim.SGD(D.parameters(), 1e-2)
bce = nn.BCEWithLogitsLoss()


"""
STEM = """\
import torch
from torch import nn
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, f):
        return self.head(torch.relu(f))


"""

PROGRAMS = {
    "the discriminator comes second": GAN
    + """\
for i in range(3):
    real = torch.randn(6, 8); fake = G(torch.randn(6, 4))
    g_loss = bce(D(fake), torch.ones(6, 1))
    og.zero_grad(); g_loss.backward(); og.step()
    d_loss = bce(D(real), torch.ones(6, 1)) + bce(D(fake), torch.zeros(6, 1))
    od.zero_grad(); d_loss.backward(); od.step()
""",
    "the discriminator comes first, in a function": GAN
    + """\
def train(steps):
    for i in range(steps):
        fake = G(torch.randn(6, 4))
        od.zero_grad()
        d_loss = bce(D(torch.randn(6, 8)), torch.ones(6, 1)) + bce(D(fake), torch.zeros(6, 1))
        d_loss.backward()
        od.step()
        og.zero_grad()
        g_loss = bce(D(fake), torch.ones(6, 1))
        g_loss.backward()
        og.step()


train(3)
""",
    "features are computed once": STEM
    + """\
def main():
    model = Net()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.randn(6, 8), torch.randint(0, 3, (6,))
    features = model.stem(x)
    for _ in range(5):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(features), y)
        loss.backward()
        opt.step()


main()
""",
    "features are computed once, with a frozen stem's optimizer": STEM
    + """\
model = Net()
opt = torch.optim.SGD(model.head.parameters(), 0.1)
x, y = torch.randn(6, 8), torch.randint(0, 3, (6,))
features = model.stem(x)
for _ in range(5):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(features), y)
    loss.backward()
    opt.step()
""",
}
CHANGED = {
    "the discriminator comes second": ("later", "bce(D(fake.detach()), torch.zeros(6, 1))"),
    "the discriminator comes first, in a function": ("earlier", "bce(D(fake.detach()), torch.zeros(6, 1))"),
    "features are computed once": ("anew", "features = model.stem(x)"),
    "features are computed once, with a frozen stem's optimizer": ("later", "model(features.detach())"),
}


@pytest.fixture(params=PROGRAMS)
def found(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Finding]:
    report = failing.run(PROGRAMS[request.param], tmp_path).explained().report
    assert report is not None
    return request.param, report.findings[0]


def test_the_change_is_offered_and_the_program_with_it_runs(found: tuple[str, Finding], tmp_path: Path) -> None:
    name, finding = found
    assert finding.tried is not None
    assert (finding.cause, finding.tried.outcome, finding.tried.kind) == ("double_backward", "cures", CHANGED[name][0])
    text = applied(PROGRAMS[name], finding.tried.changes)
    assert CHANGED[name][1] in text
    failing.program(text, tmp_path, "mended.py")


def test_the_other_cure_is_told_with_what_it_would_cost(found: tuple[str, Finding]) -> None:
    _, finding = found
    assert finding.tried is not None
    assert finding.tried.other is not None
    assert finding.tried.other.why in ("term", "loses", "reaches")


def test_what_is_computed_of_other_data_in_the_loop_is_not_offered_anew(tmp_path: Path) -> None:
    text = STEM + textwrap.dedent("""\
        model = Net()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        x, y = torch.randn(6, 8), torch.randint(0, 3, (6,))
        features = model.stem(x)
        for _ in range(5):
            x = torch.randn(6, 8)
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(features) + model(model.stem(x)), y)
            loss.backward()
            opt.step()
    """)
    report = failing.run(text, tmp_path).explained().report
    assert report is not None
    tried = report.findings[0].tried
    assert tried is None or not tried.changes
