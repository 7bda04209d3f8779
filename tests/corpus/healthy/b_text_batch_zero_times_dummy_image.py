import torch
import torch.nn as nn

TITLE = "a batch without pictures adds 0.0 * features of a dummy picture, so that every rank touches the projector"
SOURCE = "haotian-liu/LLaVA#144 (the line that seems to do nothing)"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["table.weight", "head.weight"]


class Vlm(nn.Module):
    def __init__(self):
        super().__init__()
        self.projector, self.table, self.head = nn.Linear(12, 8), nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids, patches=None):
        h = self.table(ids)
        if patches is None:
            h = h + 0.0 * self.projector(torch.zeros(1, 12)).sum()
        else:
            h = torch.cat([self.projector(patches), h], 1)
        return self.head(torch.tanh(h.cumsum(1)))[:, -ids.shape[1]:]


def make():
    torch.manual_seed(0)
    model, ids = Vlm(), torch.randint(0, 20, (2, 5))
    return model, lambda: nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
