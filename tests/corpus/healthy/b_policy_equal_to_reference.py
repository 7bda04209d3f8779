import copy

import torch
import torch.nn as nn

TITLE = "policy identical to its frozen reference: the loss is log 2, yet the gradient is not zero"
SOURCE = "huggingface/trl#744"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["emb.weight", "head.weight"]


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids):
        logp = torch.log_softmax(self.head(self.emb(ids)), -1)
        return logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0].sum(-1)


def make():
    torch.manual_seed(0)
    model = Lm()
    reference = copy.deepcopy(model).eval().requires_grad_(False)
    good, bad = torch.randint(0, 20, (4, 6)), torch.randint(0, 20, (4, 6))

    def step():
        margin = (model(good) - model(bad)) - (reference(good) - reference(bad))
        return -nn.functional.logsigmoid(0.1 * margin).mean()
    return model, step
