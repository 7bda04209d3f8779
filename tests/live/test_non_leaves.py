"""Of what an optimizer refuses as no leaf, the line that computed it is named."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.live import failing

HEAD = """\
import torch
import torch.nn as nn
torch.manual_seed(0)


"""

PROGRAMS = {
    "scaled in a function": """
        def first_latent():
            z = torch.randn(3, requires_grad=True) * 0.1  # CUT
            return z

        z = first_latent()
        optimizer = torch.optim.SGD([z], lr=0.1)
    """,
    "moved after it was flagged": """
        z = torch.randn(3).requires_grad_()
        z = z.to(torch.float64)  # CUT
        optimizer = torch.optim.SGD([z], lr=0.1)
    """,
    "a list of casts": """
        prompts = []
        for _ in range(2):
            prompt = torch.randn(3, requires_grad=True)
            prompts.append(prompt.double())  # CUT
        optimizer = torch.optim.SGD(prompts, lr=0.1)
    """,
    "an attribute in a group": """
        class Decoder:
            def __init__(self):
                self.net = nn.Linear(3, 3)
                self.codes = self.made_codes()
                self.optimizer = torch.optim.SGD(
                    [{"params": self.net.parameters()}, {"params": [self.codes], "lr": 0.2}], lr=0.1
                )

            def made_codes(self):
                codes = nn.Parameter(torch.randn(4, 3))
                return codes / 2  # CUT

        Decoder()
    """,
    "what a model computes": """
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.norm = nn.Embedding(5, 3), nn.LayerNorm(3)

            def embedded(self, ids):
                return self.norm(self.table(ids))

        def attack(words):
            e = words.embedded(torch.tensor([1, 2]))  # CUT
            return torch.optim.SGD([e], lr=0.1)

        attack(Words())
    """,
    "computed where it is handed over": """
        z = torch.randn(3, requires_grad=True)
        optimizer = torch.optim.SGD([z * 0.1], lr=0.1)  # CUT
    """,
    "two of one group": """
        a = torch.randn(3, requires_grad=True) * 0.1  # CUT
        b = torch.randn(3, requires_grad=True) * 0.1  # CUT
        optimizer = torch.optim.SGD([a, b], lr=0.1)
    """,
    "two classes whose methods have one name": """
        class Pose:
            def start(self):
                angles = torch.zeros(3, requires_grad=True)
                return angles + 0.01 * torch.randn(3)  # CUT

        class Shape:
            def start(self):
                return (0.01 * torch.randn(3)).requires_grad_()

        def fit(part):
            value = part.start()
            return torch.optim.SGD([value], lr=0.1)

        fit(Shape())
        fit(Pose())
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_that_makes_it_no_leaf_is_named(name: str, tmp_path: Path) -> None:
    failed = failing.run(HEAD + textwrap.dedent(PROGRAMS[name]).lstrip(), tmp_path)
    report = failed.explained().report
    assert report is not None
    assert {found.cause for found in report.findings} == {"grad_on_non_leaf"}
    assert {found.location.line for found in report.findings if found.location is not None} == failed.marked
