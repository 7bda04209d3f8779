import torch
import torch.nn as nn

TITLE = "every label of the batch is -100: cross_entropy returns nan (0/0) while its gradient is exactly zero"
SOURCE = "nvidia-cosmos/cosmos-rl#155"
ERROR = ""
CAUSE = "zero_gradient"
SHOULD_TRAIN = ["lm.weight", "lm.bias"]


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lm = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids):
        return self.lm(self.emb(ids))


def collate(ids, prompt_tokens):
    labels = ids.clone()
    labels[:, :prompt_tokens] = -100  # CUT
    return labels


def collate_fixed(ids, prompt_tokens):
    labels = ids.clone()
    labels[:, :min(prompt_tokens, ids.shape[1] - 1)] = -100
    return labels


def _program(collate):
    torch.manual_seed(0)
    model, ids = Lm(), torch.randint(0, 20, (2, 6))
    labels = collate(ids, prompt_tokens=9)
    return model, lambda: nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)


def make():
    return _program(collate)


def make_fixed():
    return _program(collate_fixed)
