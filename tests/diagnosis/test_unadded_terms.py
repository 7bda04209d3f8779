"""An entry of a dictionary of losses that nobody adds is told of, though the other terms reach every parameter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
SETTINGS = {"terms": ["fit", "size"]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.log: list[Any] = []
        self.late = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x)))

    def parts(self) -> dict[str, torch.Tensor]:
        out = self(X)
        return {"fit_loss": F.cross_entropy(out, Y), "size_loss": out.square().mean(), "even_loss": out.abs().mean()}


def picked_alone(net: Net) -> Any:
    losses = {}
    losses["fit"] = F.cross_entropy(net(X), Y)
    losses["kl"] = (net.head(net.body(X)) - 1).abs().mean()
    return losses["fit"]  # CUT


def left_out_of_a_sum(net: Net) -> Any:
    out = net(X)
    fit, size = F.cross_entropy(out, Y), out.square().mean()
    spread = F.l1_loss(out, torch.ones(8, 3))
    losses = {"fit": fit, "size": size, "spread": spread}
    return losses["fit"] + 0.1 * losses["size"]  # CUT


def misspelt(net: Net) -> Any:
    parts, total = net.parts(), torch.zeros(())
    for key in ("fit_loss", "size_loss", "evn_loss"):
        if key in parts:
            total = total + parts[key]  # CUT
    return total


def handed_out_by_a_model(net: Net) -> Any:
    parts = net.parts()
    return parts["fit_loss"] + parts.get("size_loss")  # CUT


FORGOTTEN = (picked_alone, left_out_of_a_sum, misspelt, handed_out_by_a_model)


def all_added(net: Net) -> Any:
    parts = net.parts()
    return sum(parts.values())


def a_total_beside_its_parts(net: Net) -> Any:
    parts = net.parts()
    parts["loss"] = parts["fit_loss"] + sum(one for name, one in parts.items() if name != "fit_loss")
    return parts["loss"]


def logged_without_history(net: Net) -> Any:
    out = net(X)
    losses = {"fit": F.cross_entropy(out, Y), "error": F.l1_loss(out, torch.ones(8, 3)).detach()}
    return losses["fit"]


def a_statistic_in_a_log(net: Net) -> Any:
    out = net(X)
    log = {"fit": F.cross_entropy(out, Y), "peak": out.max()}
    net.log.append({key: float(one) for key, one in log.items()})
    return log["fit"]


def of_two_losses(net: Net) -> Any:
    out = net(X)
    losses = {"one": F.cross_entropy(out, Y), "two": out.square().mean()}
    losses["one"].backward(retain_graph=True)
    losses["two"].backward()
    return losses["one"].detach()


SILENT = (all_added, a_total_beside_its_parts, logged_without_history, a_statistic_in_a_log, of_two_losses)


def logged(net: Net) -> Any:
    out = net(X)
    losses = {"fit": F.cross_entropy(out, Y), "distance": F.l1_loss(out, torch.ones(8, 3))}
    net.log.append(losses["distance"].item())
    return losses["fit"]


def printed(net: Net) -> Any:
    losses = {"fit": F.cross_entropy(net(X), Y), "distance": F.l1_loss(net(X), torch.ones(8, 3))}
    str(losses["distance"])
    return losses["fit"]


def returned_as_well(net: Net) -> Any:
    out = net(X)
    return {"loss": F.cross_entropy(out, Y), "distance_loss": F.l1_loss(out, torch.ones(8, 3))}


def kept_by_the_model(net: Net) -> Any:
    out = net(X)
    losses = {"fit": F.cross_entropy(out, Y), "distance": F.l1_loss(out, torch.ones(8, 3))}
    net.last = losses
    return losses["fit"]


def its_turn_comes_later(net: Net) -> Any:
    out = net(X)
    losses = {"fit": F.cross_entropy(out, Y), "distance": F.l1_loss(out, torch.ones(8, 3))}
    return losses["fit"] + losses["distance"] if net.late else losses["fit"]


def chosen_by_settings(net: Net) -> Any:
    out = net(X)
    losses = {"first": F.cross_entropy(out, Y), "second": F.l1_loss(out, torch.ones(8, 3))}
    return sum(losses[key] for key in net.chosen)


MAYBE = (logged, printed, returned_as_well, kept_by_the_model, its_turn_comes_later, chosen_by_settings)


def _report(step: Callable[[Net], Any], net: Net | None = None) -> gradkit.types.Report:
    net = net or Net()
    net.chosen = ["".join(("fi", "rst"))]
    return gradkit.diagnose(lambda: step(net), model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1))


def _marked(step: Callable[[Net], Any]) -> int:
    code = step.__code__
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n in range(code.co_firstlineno, len(lines) + 1) if "# CUT" in lines[n - 1])


@pytest.mark.parametrize("step", FORGOTTEN)
def test_an_entry_that_is_computed_for_nothing_is_named_where_the_loss_is_put_together(
    step: Callable[[Net], Any],
) -> None:
    report = _report(step)
    assert [(f.cause, f.variant, f.location.line) for f in report.findings if f.location] == [
        ("trainable_unused", "unadded", _marked(step))
    ]
    assert report.findings[0].parameters
    assert all(row.reached for row in report.parameters)


@pytest.mark.parametrize("step", SILENT)
def test_nothing_is_said_where_every_loss_is_taken(step: Callable[[Net], Any]) -> None:
    report = _report(step)
    assert report.findings == ()
    assert report.meant.unadded == ()


@pytest.mark.parametrize("step", MAYBE)
def test_an_entry_that_may_be_meant_so_is_no_fault_but_is_mentioned(step: Callable[[Net], Any]) -> None:
    report = _report(step)
    assert report.findings == ()
    assert len(report.meant.unadded) == 1
    assert report.meant.unadded[0].name in report.text("en")
    assert report.meant.unadded[0].name in report.text("zh")


def test_the_loss_of_another_optimizer_has_its_own_turn() -> None:
    net = Net()
    apart = torch.optim.SGD(net.body.parameters(), 0.1), torch.optim.SGD(net.head.parameters(), 0.1)
    report = gradkit.diagnose(lambda: picked_alone(net), model=net, optimizer=apart[0])
    assert not any(one.variant == "unadded" for one in report.findings)
    assert report.meant.unadded == ()


def test_the_report_says_so_in_both_languages() -> None:
    report = _report(left_out_of_a_sum)
    assert "spread is computed beside the terms of the loss" in report.text("en")
    assert "spread 与损失的各项一同算出" in report.text("zh")
    assert "is part of the loss" not in report.text("en")
