import torch
import torch.nn as nn
from torch.distributions import Categorical

TITLE = "A3C worker: log-probs and values are rebuilt with torch.tensor from the episode memory; nothing is learnt"
SOURCE = "Quantum-Cheese/DeepReinforcementLearning_Pytorch#1"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "rewrap_tensor"


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, state):
        return Categorical(logits=self.actor(state)), self.critic(state).squeeze(-1)


class Worker:
    def __init__(self, net):
        self.net = net

    def play(self, length=5):
        self.memory, state = [], torch.zeros(4)
        for _ in range(length):
            pi, value = self.net(state)
            action = pi.sample()
            self.memory.append((1.0 - 0.3 * action.item(), pi.log_prob(action), value))
            state = torch.randn(4)

    def unpack(self):
        log_probs = torch.tensor([m[1] for m in self.memory], dtype=torch.float)  # CUT
        values = torch.tensor([m[2] for m in self.memory], dtype=torch.float)  # CUT
        return log_probs, values

    def loss(self):
        self.play()
        log_probs, values = self.unpack()
        rewards = [m[0] for m in self.memory]
        returns = torch.tensor([sum(rewards[i:]) for i in range(len(rewards))])
        advantage = returns - values
        return -(log_probs * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean()


class FixedWorker(Worker):
    def unpack(self):
        return torch.stack([m[1] for m in self.memory]), torch.stack([m[2] for m in self.memory])


def _program(cls):
    torch.manual_seed(0)
    net = ActorCritic()
    return net, cls(net).loss


def make():
    return _program(Worker)


def make_fixed():
    return _program(FixedWorker)
