"""A term that is computed and never added to the loss is named where the loss is put together, where that is plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradkit
from gradkit.types import Finding

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.side = nn.Linear(6, 5)
        self.log: list[Any] = []

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(self.body(x))
        return self.head(h), self.side(h)

    def losses(self) -> dict[str, torch.Tensor]:
        out, side = self(X)
        return {"ce": F.cross_entropy(out, Y), "size": out.square().mean(), "side": F.mse_loss(side, torch.ones(8, 5))}


def chosen_by_keys(net: Net) -> Any:
    losses, keys = net.losses(), ("ce", "size")
    return sum(losses[key] for key in keys)  # CUT


def chosen_by_one_key(net: Net) -> Any:
    losses, keys = net.losses(), ("ce",)
    return sum(losses[key] for key in keys)  # CUT


def added_one_by_one(net: Net) -> Any:
    losses = net.losses()
    net.log.append({name: one.item() for name, one in losses.items()})
    total = losses["ce"]
    total = total + 0.1 * losses["size"]  # CUT
    return total / 2


def weighed_and_forgotten(net: Net) -> Any:
    losses = net.losses()
    ce, size = losses["ce"], 0.1 * losses["size"]
    weighted = 0.3 * losses["side"]
    net.log.append(weighted.detach())
    return ce + size  # CUT


def a_distance_written_out(net: Net) -> Any:
    out, side = net(X)
    ce, size = F.cross_entropy(out, Y), out.square().mean()
    apart = (side - 1).pow(2).sum(1).mean()
    net.log.append(float(apart))
    return ce + 0.1 * size  # CUT


def gone_backward_from_by_the_step(net: Net) -> None:
    out, side = net(X)
    side_loss = side.logsumexp(1).mean()
    net.log.append(side_loss.detach().numpy())
    loss = F.cross_entropy(out, Y) + 0.1 * out.square().mean()  # CUT
    loss.backward()


def picked_by_its_key(net: Net) -> Any:
    losses = net.losses()
    net.log.append({name: one.item() for name, one in losses.items()})
    return losses["ce"]  # CUT


def picked_from_what_was_filled_by_and_by(net: Net) -> Any:
    out, side = net(X)
    parts = {}
    parts["labels"] = F.cross_entropy(out, Y)
    parts["around_one"] = F.mse_loss(side, torch.ones(8, 5))
    net.log.append(parts["labels"].item() + parts["around_one"].item())
    return 0.5 * parts["labels"]  # CUT


def gone_backward_from_by_its_key(net: Net) -> None:
    out, side = net(X)
    terms = {"first": F.cross_entropy(out, Y), "second": F.mse_loss(side, torch.ones(8, 5))}
    terms["first"].backward()  # type: ignore[no-untyped-call]  # CUT


LEFT_OUT = [
    chosen_by_keys, chosen_by_one_key, added_one_by_one, weighed_and_forgotten, a_distance_written_out,
    gone_backward_from_by_the_step, picked_by_its_key, picked_from_what_was_filled_by_and_by,
    gone_backward_from_by_its_key,
]  # fmt: skip


def nothing_is_made_of_it(net: Net) -> Any:
    out, _ = net(X)
    return F.cross_entropy(out, Y) + 0.1 * out.square().mean()


def a_statistic_is_made_of_it(net: Net) -> Any:
    out, side = net(X)
    net.log.append(side.sigmoid().mean().item())
    return F.cross_entropy(out, Y) + 0.1 * out.square().mean()


def its_hits_are_counted(net: Net) -> Any:
    out, side = net(X)
    net.log.append((side.argmax(1) == Y).float().mean().item())
    return F.cross_entropy(out, Y) + 0.1 * out.square().mean()


def a_statistic_has_a_key(net: Net) -> Any:
    out, side = net(X)
    told = {"main": F.cross_entropy(out, Y), "spread": side.sigmoid().mean()}
    net.log.append(told["spread"].item())
    return told["main"]


def it_is_picked_at_two_lines(net: Net) -> Any:
    out, side = net(X)
    both = {"one": F.cross_entropy(out, Y), "other": F.mse_loss(side, torch.ones(8, 5))}
    first = both["one"]
    net.log.append(first.item())
    return both["one"]


def the_loss_adds_up_rows(net: Net) -> Any:
    out, side = net(X)
    net.log.append(F.mse_loss(side, torch.ones(8, 5)).item())
    return F.relu(out[:, 0] - out[:, 1] + 1).mean()


def two_losses_are_gone_backward_from(net: Net) -> None:
    losses = net.losses()
    (losses["ce"] + 1e-3 * net.head.bias.square().sum()).backward(retain_graph=True)  # type: ignore[no-untyped-call]
    (losses["size"] + 1e-3 * net.head.weight.square().sum()).backward()  # type: ignore[no-untyped-call]


UNUSED = [
    nothing_is_made_of_it, a_statistic_is_made_of_it, its_hits_are_counted, a_statistic_has_a_key,
    it_is_picked_at_two_lines, the_loss_adds_up_rows, two_losses_are_gone_backward_from,
]  # fmt: skip


def found(step: Callable[[Net], Any]) -> tuple[Finding, ...]:
    torch.manual_seed(0)
    net = Net()
    return gradkit.diagnose(lambda: step(net), model=net).findings


@pytest.mark.parametrize("step", LEFT_OUT)
def test_the_line_that_puts_the_loss_together_is_named(step: Callable[[Net], Any]) -> None:
    (one,) = found(step)
    assert (one.cause, one.variant, set(one.parameters)) == (
        "trainable_unused", "left_out", {"side.weight", "side.bias"},
    )  # fmt: skip
    assert one.location is not None
    assert one.location.text.rstrip().endswith("# CUT")


@pytest.mark.parametrize("step", UNUSED)
def test_where_no_term_is_plainly_left_out_the_layer_is_named(step: Callable[[Net], Any]) -> None:
    (one,) = found(step)
    assert (one.cause, one.variant) == ("trainable_unused", "dropped")
    assert one.location is not None
    assert "self.side" in one.location.text


def test_the_line_that_computes_the_term_and_the_one_that_defines_the_layer_have_notes() -> None:
    (one,) = found(chosen_by_keys)
    notes = {note.kind: note for note in one.notes}
    assert notes["left_out_term"].facts["name"] == "side"
    assert notes["left_out_term"].location is not None
    assert "F.mse_loss(side" in notes["left_out_term"].location.text
    assert notes["defined"].location is not None


def test_a_loss_with_all_of_its_terms_is_sound() -> None:
    assert not found(lambda net: sum(net.losses().values()))
