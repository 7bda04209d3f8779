"""A value made once that several backwards of one step use: where its history ought to be let go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradkit
from gradkit.types import Finding
from tests.marks import line_ending


class Scores:
    """The losses of a critic: it takes in what was generated as it is, or without its history."""

    def __init__(self, critic: nn.Module, detach: bool) -> None:
        self.critic, self.detach = critic, detach

    def of_generated(self, fake: torch.Tensor) -> torch.Tensor:
        if self.detach:
            fake = fake.detach()
        return self.critic(fake).mean()  # scored

    def whole(self, fake: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        return self.of_generated(fake) - self.critic(real).mean()


class Players(nn.Module):
    def __init__(self, detach: bool, times: int = 3) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.scores, self.times, self.kept = Scores(self.critic, detach), times, []
        self.of_critic = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def in_an_attribute(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        self.of_critic.zero_grad()
        self.judged = self.scores.whole(fake, real)
        self.judged.backward()
        self.of_critic.step()

    def in_a_list(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        self.of_critic.zero_grad()
        self.kept.append(self.scores.whole(fake, real))
        self.kept[-1].backward()
        self.of_critic.step()

    def in_a_variable(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        self.of_critic.zero_grad()
        loss = self.scores.whole(fake, real)
        loss.backward()
        self.of_critic.step()


def _step(model: Players, update: str) -> Callable[[], torch.Tensor]:
    noise, real = torch.randn(5, 3), torch.randn(5, 4)

    def step() -> torch.Tensor:
        fake = model.generator(noise)
        for _ in range(model.times):
            getattr(model, update)(fake, real)
        return -model.critic(fake).mean()

    return step


def _found(model: nn.Module, step: Callable[[], torch.Tensor], *wanted: str) -> list[Finding]:
    return list(gradkit.diagnose(step, model=model, should_train=wanted or None).findings)


WAYS = ["in_an_attribute", "in_a_list", "in_a_variable"]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("update", WAYS)
def test_a_critic_that_takes_in_a_history_which_its_optimizer_does_not_train_is_named(update: str, times: int) -> None:
    torch.manual_seed(0)
    model = Players(detach=False, times=times)
    found = _found(model, _step(model, update), "generator.*")
    assert [(one.cause, one.location.line) for one in found] == [("double_backward", line_ending(__file__, "scored"))]
    assert found[0].variant != "once"


@pytest.mark.parametrize("update", WAYS)
def test_a_critic_that_lets_the_history_go_is_sound(update: str) -> None:
    torch.manual_seed(0)
    model = Players(detach=True)
    assert _found(model, _step(model, update), "generator.*") == []


class Encoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head, self.loss = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 1), None

    def update(self, code: torch.Tensor) -> None:
        self.loss = self.head(code).pow(2).mean()
        self.loss.backward()


def test_an_encoding_that_the_passes_train_is_named_where_it_is_made_and_not_where_a_loss_is() -> None:
    torch.manual_seed(0)
    model, x = Encoded(), torch.randn(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        code = model.encoder(x)  # encoded
        for _ in range(3):
            model.update(code)
            optimizer.step()

    found = _found(model, step)
    assert [(one.cause, one.variant, one.location.line) for one in found] == [
        ("double_backward", "once", line_ending(__file__, "encoded"))
    ]


class Averaging(nn.Module):
    """Averages what it has made last: by reading back its own value, or beside those that are kept."""

    def __init__(self, beside: bool) -> None:
        super().__init__()
        self.made, self.out, self.beside = nn.Linear(3, 3), nn.Linear(3, 1), beside
        self.last: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.made(x)
        if self.beside:
            mean = torch.stack([*self.last[-2:], made]).mean(0)
            self.last.append(made.detach())
        else:
            self.last.append(made)  # stored
            mean = torch.stack(self.last[-3:]).mean(0)
        return self.out(mean)


def averaged(beside: bool) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model = Averaging(beside)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        for _ in range(3):
            loss = model(torch.ones(4, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    return model, step


def test_a_list_that_the_same_pass_reads_back_is_not_to_be_detached_where_it_is_stored() -> None:
    model, step = averaged(beside=False)
    (found,) = gradkit.diagnose(step, model=model).findings
    assert (found.cause, found.variant, found.proof) == ("double_backward", "and_now", "proven")
    assert found.location is not None
    assert found.location.line == line_ending(__file__, "stored")


def test_the_cure_for_a_list_that_the_same_pass_reads_back_is_sound() -> None:
    model, step = averaged(beside=True)
    report = gradkit.diagnose(step, model=model)
    assert not report.findings
    assert all(row.reached for row in report.parameters)


class Judged(Players):
    """One function scores what is real and what was generated: who hands it the latter is to let go of its history."""

    def verdict(self, x: torch.Tensor, goal: float) -> torch.Tensor:
        return (self.critic(x) - goal).square().mean()

    def apart(self, fake: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        of_real = self.verdict(real, 1.0)
        return of_real + self.verdict(fake, 0.0)  # handed over


def test_what_is_handed_to_a_function_that_others_call_as_well_is_named_where_it_is_handed_over() -> None:
    torch.manual_seed(0)
    model, real = Judged(detach=False), torch.randn(5, 4)
    generator = torch.optim.Adam(model.generator.parameters())

    def step() -> torch.Tensor:
        fake = model.generator(torch.randn(5, 3))
        of_generator, of_critic = model.verdict(fake, 1.0), model.apart(fake, real)
        of_generator.backward()
        generator.step()
        return of_critic

    (found,) = gradkit.diagnose(step, model=model).findings
    assert found.location is not None
    assert (found.cause, found.location.line) == ("double_backward", line_ending(__file__, "handed over"))


class Weighted(nn.Module):
    """Two terms that a multiplier is trained by first, and the body afterwards."""

    def __init__(self, retain: bool) -> None:
        super().__init__()
        self.body, self.retain = nn.Linear(3, 2), retain
        self.log_multiplier = nn.Parameter(torch.zeros(()))
        self.of_multiplier = torch.optim.SGD([self.log_multiplier], lr=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.log_multiplier.exp()
        terms = [weight * (one.logsumexp(0) - 1.0) for one in self.body(x)]
        self.of_multiplier.zero_grad()
        (-0.5 * sum(terms)).backward(retain_graph=self.retain)  # multiplied
        self.of_multiplier.step()
        return self.body(x).square().mean() + sum(terms)


def test_terms_that_one_loss_frees_and_a_later_one_adds_up_are_told_at_the_backward_that_frees_them() -> None:
    net = Weighted(retain=False)
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(2, 3)), model=net).findings
    assert (finding.cause, finding.variant) == ("double_backward", "frees")
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "multiplied")


def test_the_same_terms_kept_for_the_later_loss_are_sound() -> None:
    net = Weighted(retain=True)
    assert gradkit.diagnose(lambda: net(torch.ones(2, 3)), model=net, should_train=["body.*"]).healthy


class Duals(nn.Module):
    """A body, and multipliers that the model does not hold, trained by what the body computes."""

    def __init__(self, detach: bool) -> None:
        super().__init__()
        self.body, self.detach = nn.Linear(3, 2), detach
        raw = torch.zeros(2, requires_grad=True)
        self.raw = lambda: raw
        self.of_duals = torch.optim.SGD([raw], lr=0.1)

    def ascend(self, gaps: torch.Tensor) -> None:
        gaps = gaps.detach() if self.detach else gaps
        self.of_duals.zero_grad()
        (-(self.raw() * gaps)).sum().backward()  # risen
        self.of_duals.step()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.sigmoid(self.body(x))
        gaps = out.mean(0) - 0.5
        self.ascend(gaps)
        return out.square().mean() + (self.raw().detach() * gaps).sum()


def test_what_trains_multipliers_outside_of_the_model_is_told_where_it_takes_the_shared_value() -> None:
    net = Duals(detach=False)
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(4, 3)), model=net).findings
    assert finding.cause == "double_backward"
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "risen")


def test_multipliers_that_take_a_detached_value_are_sound() -> None:
    net = Duals(detach=True)
    assert gradkit.diagnose(lambda: net(torch.ones(4, 3)), model=net, should_train=["body.*"]).healthy


class Pushed(nn.Module):
    """A learned prior is stepped by a loss with a term that teaches the encoder alone, before the rest is computed."""

    def __init__(self, retain: bool) -> None:
        super().__init__()
        self.encoder, self.decoder, self.retain = nn.Linear(3, 4), nn.Linear(2, 3), retain
        self.prior = nn.Parameter(torch.zeros(2))
        self.of_prior = torch.optim.SGD([self.prior], lr=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, spread = self.encoder(x).tanh().chunk(2, 1)
        code = mean + spread.exp()
        distance = ((code - self.prior) ** 2).mean() - spread.mean()
        distance.backward(retain_graph=self.retain)  # pushed
        self.of_prior.step()
        self.of_prior.zero_grad()
        return (self.decoder(code) - x).square().mean()


def test_a_loss_with_a_term_that_teaches_others_is_told_at_its_backward() -> None:
    net = Pushed(retain=False)
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(4, 3)), model=net).findings
    assert (finding.cause, finding.variant) == ("double_backward", "frees")
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "pushed")


def test_no_change_is_offered_that_would_take_what_a_loss_teaches_from_it() -> None:
    net = Pushed(retain=False)
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(4, 3)), model=net).findings
    assert finding.tried is None or (finding.tried.outcome, finding.tried.why) == ("withheld", "term")


def test_such_a_loss_that_keeps_its_graph_is_sound() -> None:
    net = Pushed(retain=True)
    assert gradkit.diagnose(lambda: net(torch.ones(4, 3)), model=net, should_train=["encoder.*", "decoder.*"]).healthy


class Surrogates(nn.Module):
    """Each step's surrogate keeps a product with the value that the critic is trained by at once."""

    def __init__(self, detach: bool) -> None:
        super().__init__()
        self.policy, self.critic, self.detach = nn.Linear(3, 1), nn.Linear(3, 1), detach
        self.of_critic = torch.optim.SGD(self.critic.parameters(), lr=0.0)
        self.kept: list[torch.Tensor] = []

    def keep(self, ratio: torch.Tensor, advantage: torch.Tensor) -> None:
        advantage = advantage.detach() if self.detach else advantage
        self.kept.append(ratio * advantage)  # surrogate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.clear()
        for one in x:
            advantage = 1.0 - self.critic(one).squeeze().tanh()
            self.keep(self.policy(one).squeeze().exp(), advantage)
            self.of_critic.zero_grad()
            advantage.pow(2).backward()
            self.of_critic.step()
        return torch.stack(self.kept).mean()


def test_a_product_with_a_value_that_was_trained_by_is_no_term_of_both_losses() -> None:
    net = Surrogates(detach=False)
    (finding,) = gradkit.diagnose(lambda: net(torch.ones(2, 3)), model=net).findings
    assert finding.cause == "double_backward"
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "surrogate")


class Agent(nn.Module):
    """A critic is stepped by a helper between an actor's loss and its backward."""

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.actor, self.critic, self.late = (
            nn.Linear(3, 2),
            nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)),
            late,
        )
        self.of_critic = torch.optim.SGD(self.critic.parameters(), lr=0.1)

    def train_by(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def actor_loss(self, x: torch.Tensor) -> torch.Tensor:
        return -self.critic(self.actor(x)).mean()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.actor_loss(x)
        self.train_by(self.critic(x[:, :2]).square().mean(), self.of_critic)  # trained between
        return self.actor_loss(x) if self.late else loss


def test_an_optimizer_that_a_helper_is_handed_is_told_where_the_helper_is_called() -> None:
    net = Agent(late=False)
    (finding,) = gradkit.diagnose(lambda: net(torch.randn(4, 3)), model=net, should_train=["actor.*"]).findings
    assert finding.cause == "inplace_modified"
    assert finding.location is not None
    assert finding.location.line == line_ending(__file__, "trained between")


def test_a_loss_computed_after_that_is_sound() -> None:
    net = Agent(late=True)
    assert gradkit.diagnose(lambda: net(torch.randn(4, 3)), model=net, should_train=["actor.*"]).healthy
