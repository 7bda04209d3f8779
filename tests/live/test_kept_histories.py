"""Of a history that is needed a second time, the line that keeps it is named, and not those that only use it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.live import failing

HEAD = """\
from collections import namedtuple
import torch
import torch.nn as nn
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(3, 4), nn.Linear(4, 1)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.out(h), h


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def trained(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


"""

CARRIED = {
    "a function that copies": """
        def carry(h):
            return h.clone()  # CUT

        h = torch.zeros(2, 4)
        for x in torch.randn(3, 2, 3):
            y, h = net(x, h)
            loss = y.pow(2).mean()
            trained(loss)
            h = carry(h)
    """,
    "a function that lets go of a part": """
        def repackaged(state):
            h, top = state
            return h.detach(), top  # CUT

        state = torch.zeros(2, 4), torch.zeros(2, 4)
        for x in torch.randn(3, 2, 3):
            y, h = net(x, state[0])
            y, top = net(h[:, :3], state[1])
            loss = y.pow(2).mean()
            trained(loss)
            state = repackaged((h, top))
    """,
    "a method of a record": """
        class State(namedtuple("State", "h count")):
            def next(self):
                return State(self.h, self.count + 1)  # CUT

        state = State(torch.zeros(2, 4), 0)
        for x in torch.randn(3, 2, 3):
            y, h = net(x, state.h)
            loss = y.pow(2).mean()
            trained(loss)
            state = state._replace(h=h)
            state = state.next()
    """,
    "a helper that is used elsewhere too": """
        def as_float(value):
            return value.to(torch.float32)

        h = torch.zeros(2, 4)
        for x in torch.randn(3, 2, 3):
            x = as_float(x)
            y, new = net(x, h)
            loss = y.pow(2).mean()
            trained(loss)
            h = as_float(new)  # CUT
    """,
    "one state let go of by a function, one kept": """
        def let_go(h):
            return tuple(let_go(x) for x in h) if isinstance(h, tuple) else h.detach()

        h, seen = torch.zeros(2, 4), torch.zeros(2, 4)
        for x in torch.randn(3, 2, 3):
            y, h = net(x, h)
            mixed = 0.5 * seen + h
            loss = (y + mixed.sum()).pow(2).mean()
            trained(loss)
            h = let_go(h)
            seen = mixed  # CUT
    """,
}

MADE_ONCE = {
    "a list in a dictionary, joined by another function": """
        def rollout():
            kept = {"x": [], "score": []}
            for x in torch.randn(3, 2, 3):
                y, _ = net(x, torch.zeros(2, 4))
                kept["x"].append(x)
                kept["score"].append(y)  # CUT
            return kept

        def joined(kept):
            return {name: torch.cat(parts) for name, parts in kept.items()}

        for _ in range(2):
            data = joined(rollout())
            for epoch in range(2):
                y, _ = net(data["x"], torch.zeros(6, 4))
                loss = (y - data["score"]).exp().mean()
                trained(loss)
    """,
    "a method that is handed it among others": """
        class Rollout:
            def __init__(self):
                self.xs, self.scores = [], []

            def add(self, x, score):
                self.xs.append(x)
                self.scores.append(score)  # CUT

        def act(x):
            y, h = net(x, torch.zeros(2, 4))
            return h.detach(), y

        def collected():
            rollout = Rollout()
            for x in torch.randn(3, 2, 3):
                h, y = act(x)
                rollout.add(x, y)
            return torch.cat(rollout.xs), torch.cat(rollout.scores)

        for _ in range(2):
            xs, scores = collected()
            for epoch in range(2):
                loss = (net(xs, torch.zeros(6, 4))[0] - scores).exp().mean()
                trained(loss)
    """,
    "a variable above an inner loop": """
        def updated(x):
            start, _ = net(x, torch.zeros(2, 4))  # CUT
            for _ in range(2):
                now, _ = net(x, torch.zeros(2, 4))
                loss = (now - start - 1).pow(2).mean()
                trained(loss)

        for x in torch.randn(3, 2, 3):
            updated(x)
    """,
}


def _named(text: str, folder: Path) -> tuple[set[int], frozenset[int]]:
    """The lines that the report names, and those that ought to be."""
    failed = failing.run(HEAD + textwrap.dedent(text).lstrip(), folder)
    report = failed.explained().report
    assert report is not None
    assert {one.cause for one in report.findings} == {"double_backward"}
    return {one.location.line for one in report.findings if one.location is not None}, failed.marked


@pytest.mark.parametrize("name", CARRIED)
def test_a_history_that_a_function_hands_on_is_named_where_it_ought_to_be_let_go(name: str, tmp_path: Path) -> None:
    found, marked = _named(CARRIED[name], tmp_path)
    assert found == marked


@pytest.mark.parametrize("name", MADE_ONCE)
def test_what_a_loop_uses_again_is_named_where_it_is_put_away(name: str, tmp_path: Path) -> None:
    found, marked = _named(MADE_ONCE[name], tmp_path)
    assert found == marked
