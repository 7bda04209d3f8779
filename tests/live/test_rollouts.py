"""A step may fill buffers first and empty them last: reinforcement learning in the ways in which it is written."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

import gradkit
from gradkit.live.explain import Explanation
from tests.live import failing

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from collections import deque
from torch.distributions import Categorical
torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        self.log_probs, self.rewards = [], []

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return Categorical(logits=self.actor(hidden)), self.critic(hidden)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)


"""

SILENT = {
    "lists of the model that the update empties": """
        def select(state):
            dist, value = policy(state)
            action = dist.sample()
            policy.log_probs.append((dist.log_prob(action), value))
            return action

        def finish():
            losses = []
            for (log_prob, value), reward in zip(policy.log_probs, policy.rewards):
                advantage = reward - value.item()
                value = torch.tensor([value.item()])  # CUT
                losses.append(-log_prob * advantage + F.mse_loss(value, torch.tensor([reward])))
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()
            optimizer.step()
            del policy.log_probs[:]
            del policy.rewards[:]

        for episode in range(4):
            for t in range(3):
                policy.rewards.append(float(select(torch.randn(3))))
            finish()
    """,
    "a memory with a method that clears it": """
        class Memory:
            def __init__(self):
                self.log_probs, self.values = [], []

            def clear(self):
                self.log_probs.clear()
                del self.values[:]

        def update(memory):
            log_probs, values = torch.stack(memory.log_probs), torch.stack(memory.values)
            loss = -(log_probs * (1 - values.detach())).mean() + values.detach().square().mean()  # CUT
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            memory.clear()

        def main():
            memory = Memory()
            for episode in range(4):
                for t in range(3):
                    dist, value = policy(torch.randn(3))
                    memory.log_probs.append(dist.log_prob(dist.sample()))
                    memory.values.append(value.squeeze(0))
                update(memory)

        main()
    """,
    "an agent that begins new lists": """
        class Agent:
            def __init__(self):
                self.saved = []

            def act(self, state):
                dist, value = policy(state)
                action = dist.sample()
                self.saved.append((dist.log_prob(action), value.detach()))  # CUT
                return action

            def learn(self):
                loss = sum(-log_prob + (1 - value).square().sum() for log_prob, value in self.saved)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.saved = []

        agent = Agent()
        for episode in range(4):
            for t in range(3):
                agent.act(torch.randn(3))
            agent.learn()
    """,
    "a queue that the loop clears": """
        kept = deque()
        for episode in range(4):
            for t in range(3):
                dist, value = policy(torch.randn(3))
                kept.append((dist.log_prob(dist.sample()), value.data))  # CUT
            loss = torch.stack([-log_prob + value.square().sum() for log_prob, value in kept]).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.clear()
    """,
}

FAILING = {
    "the actions were taken without recording": """
        def select(state):
            with torch.no_grad():  # CUT
                dist, _ = policy(state)
            action = dist.sample()
            policy.log_probs.append(dist.log_prob(action))
            return action

        def finish():
            returns = torch.tensor(policy.rewards)
            returns = (returns - returns.mean()) / (returns.std() + 1e-5)
            loss = torch.stack([-log_prob * r for log_prob, r in zip(policy.log_probs, returns)]).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            del policy.log_probs[:]
            del policy.rewards[:]

        for episode in range(2):
            for t in range(3):
                policy.rewards.append(float(select(torch.randn(3))))
            finish()
    """,
    "the log-probabilities are kept as numbers": """
        def rollout():
            kept = []
            for t in range(3):
                dist, _ = policy(torch.randn(3))
                kept.append(dist.log_prob(dist.sample()).item())  # CUT
            return kept

        def update(kept):
            weights = torch.linspace(0, 1, 3)
            loss = -(torch.tensor(kept) * weights).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for episode in range(2):
            update(rollout())
    """,
    "the memory keeps what was detached": """
        class Memory(list):
            def push(self, log_prob):
                self.append(log_prob.detach())  # CUT

        def update(memory):
            loss = -torch.stack(list(memory)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            memory.clear()

        memory = Memory()
        for episode in range(2):
            for t in range(3):
                dist, _ = policy(torch.randn(3))
                memory.push(dist.log_prob(dist.sample()))
            update(memory)
    """,
}


@pytest.mark.parametrize("name", SILENT)
def test_what_never_learns_from_a_rollout_is_told_at_its_line(name: str, tmp_path: Path) -> None:
    told: list[Explanation] = []
    with gradkit.watch(tell=told.append):
        program = failing.program(HEAD + textwrap.dedent(SILENT[name]).lstrip(), tmp_path)
    assert [failing.named(one)[1] in program.marked for one in told] == [True]


@pytest.mark.parametrize("name", FAILING)
def test_an_update_that_fails_is_explained_by_the_rollout(name: str, tmp_path: Path) -> None:
    failed = failing.run(HEAD + textwrap.dedent(FAILING[name]).lstrip(), tmp_path)
    assert failing.named(failed.explained())[1] in failed.marked


def test_what_is_emptied_after_the_loop_alone_is_no_leftover(tmp_path: Path) -> None:
    text = SILENT["a queue that the loop clears"].replace("    kept.clear()", "kept.clear()")
    told: list[Explanation] = []
    with gradkit.watch(tell=told.append), pytest.raises(RuntimeError, match="second time"):
        failing.program(HEAD + textwrap.dedent(text).lstrip(), tmp_path)
    assert told == []


def test_buffers_are_as_they_were_after_a_step_was_run_again_without_what_they_held(tmp_path: Path) -> None:
    text = HEAD + textwrap.dedent(SILENT["lists of the model that the update empties"]).lstrip()
    plain = failing.program(text, tmp_path).weights()
    with gradkit.watch(tell=lambda _: None):
        assert all(map(torch.equal, failing.program(text, tmp_path).weights(), plain))
