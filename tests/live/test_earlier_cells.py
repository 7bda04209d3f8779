"""``loss.backward()`` in a cell of its own: the cells that made the loss are run again before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gradkit.live import explain
from gradkit.live.explain import Explanation
from gradkit.source import frames

SETUP = """
import torch
from torch import nn

torch.manual_seed(0)
backbone, head, criterion = nn.Linear(2, 3), nn.Linear(3, 1), nn.MSELoss()
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
x, y = torch.ones(4, 2), torch.zeros(4, 1)
"""
FEATURES = "with torch.no_grad():\n    features = backbone(x)\n"
CUT = "out = head(backbone(x)).detach()\n"
LOSS = "loss = criterion(out, y)\n"
BACKWARD = "loss.backward()\n"


class Notebook:
    """A shell whose cells are run one after the other."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def __call__(self, *cells: str) -> Explanation:
        """What is said of the last cell, which is to fail."""
        for cell in cells:
            result = self.shell.run_cell(cell, store_history=True)
        assert result.error_in_exec is not None
        found = explain.of_error(result.error_in_exec)
        assert found is not None
        return found


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A shell in which the models and the data are made."""
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    monkeypatch.setattr(frames, "notebook_shell", lambda: shell)
    shell.run_cell(SETUP, store_history=True)
    yield Notebook(shell)
    shell.restore_sys_module_state()


def line(found: Explanation) -> str:
    """The line that the first finding names."""
    assert found.report is not None, found.text("en")
    (first, *_) = found.report.findings
    assert first.location is not None
    return first.location.text.strip()


def refused(found: Explanation) -> list[str]:
    """Why units were not taken."""
    return [one.reason for one in found.tried]


def test_the_cell_that_made_the_loss_is_run_again(notebook: Notebook) -> None:
    found = notebook("loss = head(backbone(x)).detach().sum()\n", BACKWARD)
    assert line(found) == "loss = head(backbone(x)).detach().sum()"
    assert found.report is not None
    assert found.report.origin is not None
    assert found.report.origin.reproduced
    assert [one.first for one in found.report.origin.before] == [1]


def test_a_chain_of_cells_is_run_in_its_order(notebook: Notebook) -> None:
    found = notebook(CUT, LOSS, BACKWARD)
    assert line(found) == "out = head(backbone(x)).detach()"
    assert found.report is not None
    assert found.report.origin is not None
    assert [(one.first, one.last) for one in found.report.origin.before] == [(1, 1), (1, 1)]
    assert "line 1 of notebook cell [2], then line 1 of notebook cell [3], then line 1 of" in found.report.text("en")


def test_a_loss_of_its_own_cell_that_rests_on_outputs_of_an_earlier_one(notebook: Notebook) -> None:
    assert line(notebook("with torch.no_grad():\n    out = head(backbone(x))\n", LOSS + BACKWARD)) == (
        "with torch.no_grad():"
    )


def test_features_that_were_computed_without_history_are_not_to_blame_for_another_cut(notebook: Notebook) -> None:
    found = notebook(FEATURES, "out = head(features).detach()\nloss = criterion(out, y)\nloss.backward()\n")
    assert line(found) == "out = head(features).detach()"
    assert found.report is not None
    assert found.report.origin is not None
    assert found.report.origin.before == ()


HEADS = "optimizer = torch.optim.SGD(head.parameters(), lr=0.1)\n"


@pytest.mark.parametrize("optimizer", [HEADS, "del optimizer\n"], ids=["of the head", "unknown"])
def test_features_of_a_frozen_model_are_data_also_behind_several_cells(notebook: Notebook, optimizer: str) -> None:
    found = notebook(optimizer, FEATURES, "out = head(features)\n", "loss = criterion(out.detach(), y)\n", BACKWARD)
    assert line(found) == "loss = criterion(out.detach(), y)"
    assert found.report is not None
    assert len(found.report.findings) == 1


def test_features_of_a_model_that_the_optimizer_holds_are_made_again(notebook: Notebook) -> None:
    found = notebook(FEATURES, "out = head(features)\n", "loss = criterion(out.detach(), y)\n", BACKWARD)
    assert found.report is not None
    assert [one.cause for one in found.report.findings] == ["no_grad_block", "detach"]


def test_the_last_pass_of_a_loop_made_the_loss(notebook: Notebook) -> None:
    loop = "for z, goal in [(x, y), (x, y)]:\n    out = head(backbone(z)).detach()\n    loss = criterion(out, goal)\n"
    found = notebook(loop, BACKWARD)
    assert line(found) == "out = head(backbone(z)).detach()"


def test_losses_that_a_loop_appends_are_gathered_again(notebook: Notebook) -> None:
    loop = "losses = []\nfor batch in [x, x]:\n    losses.append(head(backbone(batch)).sum().item())\n"
    found = notebook(loop, "loss = torch.tensor(losses).sum()\n", BACKWARD)
    assert line(found) == "losses.append(head(backbone(batch)).sum().item())"


def test_a_second_backward_in_a_cell_of_its_own(notebook: Notebook) -> None:
    found = notebook("loss = head(backbone(x)).pow(2).sum()\n", BACKWARD, "loss.backward()  # again\n")
    assert found.report is not None
    assert found.report.findings


def test_a_cell_that_failed_before_is_not_run_again(notebook: Notebook) -> None:
    found = notebook(CUT, LOSS, BACKWARD, "optimizer.zero_grad()\nloss.backward()\n")
    assert line(found) == "out = head(backbone(x)).detach()"
    assert found.report is not None
    assert found.report.origin is not None
    assert len(found.report.origin.before) == 2


def test_a_function_that_only_goes_backward(notebook: Notebook) -> None:
    found = notebook("def update(loss):\n    loss.backward()\n    optimizer.step()\n", CUT, LOSS, "update(loss)\n")
    assert line(found) == "out = head(backbone(x)).detach()"


def test_what_was_overwritten_since_is_refused(notebook: Notebook) -> None:
    found = notebook(CUT, LOSS, "y = torch.ones(4, 1)\n", BACKWARD)
    assert "overwritten_since" in refused(found)


def test_a_cell_that_was_run_again_otherwise_counts_as_it_ran_last(notebook: Notebook) -> None:
    found = notebook("out = head(backbone(x))\n", LOSS, CUT, LOSS, BACKWARD)
    assert line(found) == "out = head(backbone(x)).detach()"


def test_a_magic_that_may_have_made_the_loss_is_not_looked_behind(notebook: Notebook) -> None:
    found = notebook(CUT, LOSS, "exec('loss = torch.zeros(())')\n", BACKWARD)
    assert "unknown_cell" in refused(found)


def test_the_notebook_is_as_before(notebook: Notebook) -> None:
    space = notebook.shell.user_ns
    for cell in (CUT, LOSS, BACKWARD):
        result = notebook.shell.run_cell(cell, store_history=True)
    before = {name: space[name] for name in ("out", "loss", "x", "y", "backbone")}
    state = space["torch"].get_rng_state()
    assert result.error_in_exec is not None
    explain.of_error(result.error_in_exec)
    assert all(space[name] is value for name, value in before.items())
    assert space["backbone"].weight.grad is None
    assert space["torch"].equal(space["torch"].get_rng_state(), state)
