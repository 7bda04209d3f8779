"""Sound programs that look like `detach` and are not."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.shared import LABELS, Built, _one_worker, batch, pair, small, sound

# -- detach, no_grad and frozen parts that are meant ------------------------------------------------------------------


@sound
def momentum_contrast_with_a_queue() -> Built:
    class Contrast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(4, 4)
            self.key = copy.deepcopy(self.query).requires_grad_(False)
            self.register_buffer("queue", torch.randn(4, 8))
            self.register_buffer("place", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def follow(self) -> None:
            for new, old in zip(self.query.parameters(), self.key.parameters(), strict=True):
                old.data = old.data * 0.9 + new.data * 0.1

        @torch.no_grad()
        def remember(self, keys: torch.Tensor) -> None:
            at = int(self.place)
            self.queue[:, at : at + 2] = keys.T[:, :2]
            self.place[0] = (at + 2) % 8

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query = F.normalize(self.query(x))
            with torch.no_grad():
                self.follow()
                key = F.normalize(self.key(x))
            positive = (query * key).sum(1, keepdim=True)
            logits = torch.cat([positive, query @ self.queue.clone().detach()], 1) / 0.07
            self.remember(key)
            return F.cross_entropy(logits, torch.zeros(6, dtype=torch.long))

    model, x = Contrast(), batch()
    return model, lambda: model(x)


@sound
def vector_quantisation_with_a_straight_through_estimate() -> Built:
    model, x = (
        nn.ModuleDict({"encode": nn.Linear(4, 4), "book": nn.Embedding(8, 4), "decode": nn.Linear(4, 4)}),
        batch(),
    )

    def step() -> torch.Tensor:
        code = model["encode"](x)
        nearest = model["book"](torch.cdist(code, model["book"].weight).argmin(-1))
        commitment = F.mse_loss(nearest, code.detach()) + 0.25 * F.mse_loss(nearest.detach(), code)
        return F.mse_loss(model["decode"](code + (nearest - code).detach()), x) + commitment

    return model, step


@sound
def proximal_policy_optimisation() -> Built:
    model, x, rewards = nn.ModuleDict({"policy": nn.Linear(4, 3), "value": nn.Linear(4, 1)}), batch(), torch.randn(6)
    old = torch.distributions.Categorical(logits=model["policy"](x)).log_prob(LABELS).detach()

    def step() -> torch.Tensor:
        policy, value = torch.distributions.Categorical(logits=model["policy"](x)), model["value"](x).squeeze(-1)
        advantage = (rewards - value).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (policy.log_prob(LABELS) - old).exp()
        ((ratio - 1).abs() > 0.2).float().mean().item()
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return F.mse_loss(value, rewards) - surrogate - 0.01 * policy.entropy().mean()

    return model, step


@sound
def actor_and_critic_on_sampled_actions() -> Built:
    model, x = nn.ModuleDict({"policy": nn.Linear(4, 3), "value": nn.Linear(4, 1)}), batch()

    def step() -> torch.Tensor:
        policy, value = torch.distributions.Categorical(logits=model["policy"](x)), model["value"](x).squeeze(-1)
        actions = policy.sample()
        returns = torch.tensor([float(action) for action in actions])
        actor = -(policy.log_prob(actions) * (returns - value.detach())).mean()
        return actor + F.smooth_l1_loss(value, returns)

    return model, step


@sound
def a_variational_autoencoder() -> Built:
    model, x = nn.ModuleDict({"encode": nn.Linear(4, 4), "decode": nn.Linear(2, 4)}), batch()

    def step() -> torch.Tensor:
        mean, log_std = model["encode"](x).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, log_std.exp())
        prior = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0, 1)).mean()
        return F.mse_loss(model["decode"](posterior.rsample()), x) + prior

    return model, step


# -- gradients inside of the step -------------------------------------------------------------------------------------


@sound
def the_discriminator_is_trained_before_the_generator() -> Built:
    model, x = nn.ModuleDict({"judge": small(), "make": nn.Linear(4, 4)}), batch()
    optimizer = torch.optim.SGD(model["judge"].parameters(), 0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        (model["judge"](model["make"](x).detach()).mean() - model["judge"](x).mean()).backward()
        optimizer.step()
        return -model["judge"](model["make"](x)).mean()

    return model, step


# -- what wraps a step ------------------------------------------------------------------------------------------------


@sound
def a_scripted_teacher_that_does_not_record() -> Built:
    model, x, teacher = small(), batch(), torch.jit.script(small())

    def step() -> torch.Tensor:
        with torch.no_grad():
            target = teacher(x)
        return F.mse_loss(model(x), target)

    return model, step


# -- what a step that trains hands back -------------------------------------------------------------------------------


@sound
def a_loss_returned_detached_after_its_own_backward() -> Built:
    model, x = small(), batch()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    return model, step


# -- several workers --------------------------------------------------------------------------------------------------


@sound
def features_gathered_with_history() -> Built:
    from torch.distributed.nn import functional as collectives

    model, x = pair(), batch()
    _one_worker()
    return model, lambda: model["outer"](torch.cat(collectives.all_gather(model["inner"](x)))).sum()


@sound
def features_gathered_and_the_own_ones_put_back() -> Built:
    model, x = pair(), batch()
    _one_worker()

    def step() -> torch.Tensor:
        code = model["inner"](x)
        parts = [torch.empty_like(code)]
        torch.distributed.all_gather(parts, code)
        parts[0] = code
        return model["outer"](torch.cat(parts)).sum()

    return model, step


@sound
def a_loss_averaged_over_the_workers_for_the_log() -> Built:
    model, x = small(), batch()
    _one_worker()

    def step() -> torch.Tensor:
        loss = model(x).pow(2).mean()
        shown = loss.detach().clone()
        torch.distributed.all_reduce(shown)
        return loss

    return model, step
