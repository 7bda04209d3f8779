"""gradkit.testing.assert_learns: one assertion for a person's own tests."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradkit.core import i18n
from gradkit.core.errors import GradkitError
from gradkit.live.watch import Watch
from gradkit.testing import assert_learns, gradkit_watch, watched
from tests import snapshots

X = torch.ones(4, 3)
__all__ = ["gradkit_watch"]  # pytest takes it from here, as from a conftest that names gradkit.testing


@pytest.fixture
def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def test_a_sound_program_passes_and_hands_out_its_report(net: nn.Sequential) -> None:
    assert assert_learns(net, lambda: net(X).mean(), optimizer=torch.optim.SGD(net.parameters(), lr=0.1)).healthy


def test_a_cut_raises_with_the_report(net: nn.Sequential) -> None:
    def step() -> torch.Tensor:
        return net[2](net[:2](X).detach()).mean()  # type: ignore[no-any-return]

    with pytest.raises(AssertionError, match=r"error\[detach\].*\n.*test_testing.py:\d+") as caught:
        assert_learns(net, step)
    assert "no gradient: 0.weight, 0.bias" in str(caught.value)
    assert assert_learns(net, step, should_train=["2.*"]).healthy


def test_the_message_is_in_the_language_in_use(net: nn.Sequential) -> None:
    spoken = i18n.language()
    try:
        i18n.language("zh")
        with pytest.raises(AssertionError, match="梯度"):
            assert_learns(net, lambda: net(X).detach().mean())
    finally:
        i18n.language(spoken)


def test_what_must_stay_frozen_may_not_require_grad(net: nn.Sequential) -> None:
    with pytest.raises(AssertionError, match=r"0\.weight, 0\.bias"):
        assert_learns(net, lambda: net(X).mean(), should_train=["2.*"], frozen=["0.*"])
    net[0].requires_grad_(False)
    assert assert_learns(net, lambda: net(X).mean(), should_train=["2.*"], frozen=["0.*"]).healthy


def test_a_name_with_brackets_in_it_is_named_as_it_is() -> None:
    net = nn.ModuleDict({"blocks[0]": nn.Linear(3, 1)})
    with pytest.raises(AssertionError, match=r"blocks\[0\]\.bias"):
        assert_learns(net, lambda: net["blocks[0]"](X).mean(), frozen=["blocks[0].bias"])


def test_a_pattern_that_matches_nothing_is_named(net: nn.Sequential) -> None:
    with pytest.raises(GradkitError, match=r"base\.\*"):
        assert_learns(net, lambda: net(X).mean(), frozen=["base.*"])


def test_an_optimizer_without_a_parameter_fails(net: nn.Sequential) -> None:
    with pytest.raises(AssertionError, match="optimizer_mismatch"):
        assert_learns(net, lambda: net(X).mean(), optimizer=torch.optim.SGD(net[0].parameters(), lr=0.1))


def test_an_optimizer_of_the_head_alone_fails_where_all_is_to_learn(net: nn.Sequential) -> None:
    with pytest.raises(AssertionError, match=r"leaves these parameters where they are: 0\.weight, 0\.bias"):
        assert_learns(net, lambda: net(X).mean(), optimizer=torch.optim.SGD(net[2].parameters(), lr=0.1))


def test_an_optimizer_that_moves_nothing_fails(net: nn.Sequential) -> None:
    optimizer = torch.optim.SGD([{"params": net[0].parameters(), "lr": 0.0}, {"params": net[2].parameters()}], lr=0.1)
    with pytest.raises(AssertionError, match=r"0\.weight, 0\.bias\.$"):
        assert_learns(net, lambda: net(X).mean(), optimizer=optimizer)


def test_a_step_that_trains_by_itself_passes_too(net: nn.Sequential) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = net(X).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    assert assert_learns(net, step, optimizer=optimizer).healthy


@pytest.mark.parametrize("rate", [0.1, 0.0])
def test_it_leaves_no_trace_whether_it_passes_or_fails(net: nn.Sequential, rate: float) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    net(X).mean().backward()
    optimizer.step()

    def step() -> torch.Tensor:
        return (net(X) * torch.rand(4, 1)).mean()

    state = repr(optimizer.state_dict())
    before = snapshots.take(net)
    try:
        assert_learns(net, step, optimizer=optimizer)
    except AssertionError:
        assert rate == 0.0
    assert snapshots.differences(before, snapshots.take(net)) == []
    assert repr(optimizer.state_dict()) == state


def test_a_finite_loss_is_asked_for_as_verify_asks_for_it(net: nn.Sequential) -> None:
    with pytest.raises(AssertionError, match="✗"):
        assert_learns(net, lambda: net(X).mean() + float("inf"))


def test_the_fixture_lets_a_test_pass_that_trains(gradkit_watch: Watch, net: nn.Sequential) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        net(X).mean().backward()
        optimizer.step()
    assert gradkit_watch.steps == 4
    assert gradkit_watch.report is None


def test_the_fixture_fails_a_test_that_silently_does_not(net: nn.Sequential) -> None:
    test = watched()
    next(test)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in (X, X, X):
        hidden = net[:2](x).detach()
        optimizer.zero_grad()
        net[2](hidden).mean().backward()
        optimizer.step()
    with pytest.raises(AssertionError, match=r"error\[detach\]"):
        next(test)
