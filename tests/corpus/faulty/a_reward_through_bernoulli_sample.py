import torch
import torch.nn as nn

TITLE = "video summariser: the loss is the reward of sampled frame picks; removing a detach does not help, bernoulli's gradient is zero"
SOURCE = "KaiyangZhou/pytorch-vsumm-reinforce#5"
ERROR = ""
CAUSE = "zero_gradient"


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = nn.GRU(6, 5, batch_first=True), nn.Linear(5, 1)

    def forward(self, seq):
        return torch.sigmoid(self.fc(self.rnn(seq)[0])).squeeze(-1)


def diversity(seq, picks):
    f = nn.functional.normalize(seq, dim=-1)
    pair = picks[:, :, None] * picks[:, None, :]
    return (pair * (1 - f @ f.transpose(1, 2))).sum() / (pair.sum() + 1e-6)


def objective(model, seq):
    picks = torch.bernoulli(model(seq))  # CUT
    return -diversity(seq, picks)


def objective_fixed(model, seq):
    dist = torch.distributions.Bernoulli(model(seq))
    picks = dist.sample()
    return -(dist.log_prob(picks).sum() * diversity(seq, picks).detach())


def _program(loss):
    torch.manual_seed(0)
    model, seq = Picker(), torch.randn(1, 9, 6)
    return model, lambda: loss(model, seq)


def make():
    return _program(objective)


def make_fixed():
    return _program(objective_fixed)
