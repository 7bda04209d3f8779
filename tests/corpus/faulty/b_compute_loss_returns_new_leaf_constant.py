import torch
import torch.nn as nn

TITLE = "compute_loss builds its answer with torch.tensor(value, requires_grad=True): it runs, nothing is learnt"
SOURCE = "huggingface/transformers#36051"
ERROR = ""
CAUSE = "constant_loss"
SHOULD_TRAIN = ["lm.weight", "emb.weight"]


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lm = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids):
        return self.lm(self.emb(ids))

    @torch.no_grad()
    def generate(self, ids, n=3):
        for _ in range(n):
            ids = torch.cat([ids, self(ids)[:, -1:].argmax(-1)], 1)
        return ids


def compute_loss(model, ids, reward):
    out = model.generate(ids)
    return torch.tensor(-reward(out), requires_grad=True)  # CUT


def compute_loss_fixed(model, ids, reward):
    out = model.generate(ids)
    logp = torch.log_softmax(model(out[:, :-1]), -1).gather(-1, out[:, 1:, None])
    return -reward(out) * logp[:, ids.shape[1] - 1:].mean()


def _program(compute_loss):
    torch.manual_seed(0)
    model, ids = Lm(), torch.randint(0, 20, (2, 4))
    return model, lambda: compute_loss(model, ids, lambda out: float((out % 2).float().mean() + 0.5))


def make():
    return _program(compute_loss)


def make_fixed():
    return _program(compute_loss_fixed)
