import torch
import torch.nn as nn

TITLE = "frozen vision tower under no_grad, trainable projector behind it, frozen language model behind that"
SOURCE = "haotian-liu/LLaVA#305"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["projector.weight", "projector.bias"]


class Vlm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.BatchNorm1d(4)).eval().requires_grad_(False)
        self.projector = nn.Linear(16, 8)
        self.table, self.llm = nn.Embedding(20, 8).requires_grad_(False), nn.Linear(8, 20).requires_grad_(False)

    def forward(self, patches, ids):
        with torch.no_grad():
            seen = self.tower(patches)
        h = torch.cat([self.projector(seen.detach()), self.table(ids)], 1)
        return self.llm(torch.tanh(h.cumsum(1)))[:, patches.shape[1]:]


def make():
    torch.manual_seed(0)
    model, patches, ids = Vlm(), torch.randn(2, 4, 12), torch.randint(0, 20, (2, 3))
    return model, lambda: nn.functional.cross_entropy(model(patches, ids).flatten(0, 1), ids.flatten())
