import torch
import torch.nn as nn

TITLE = "GRPO/TRPO surrogate exp(logp - logp.detach()): the value is one everywhere, the gradient is not zero"
SOURCE = "SeungyounShin/minimal-r1#2; ajlangley/trpo-pytorch#3; nikhilbarhate99/PPO-PyTorch#18"
ERROR = ""
CAUSE = "healthy"


class Policy(nn.Module):
    def __init__(self, vocab=12, d=6):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(vocab, d), nn.GRU(d, d, batch_first=True), nn.Linear(d, vocab)

    def logp(self, ids):
        lp = self.out(self.rnn(self.emb(ids[:, :-1]))[0]).log_softmax(-1)
        return lp.gather(-1, ids[:, 1:, None]).squeeze(-1)


def group_advantage(reward):
    return (reward - reward.mean()) / (reward.std() + 1e-4)


def make():
    torch.manual_seed(0)
    policy, ids, reward = Policy(), torch.randint(0, 12, (4, 7)), torch.rand(4)

    def step():
        logp = policy.logp(ids)
        ratio = torch.exp(logp - logp.detach())
        return -(ratio * group_advantage(reward)[:, None]).mean()
    return policy, step
