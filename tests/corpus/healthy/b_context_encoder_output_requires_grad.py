import torch
import torch.nn as nn

TITLE = "fixed context encoder under no_grad whose output is marked requires_grad_: only the question side trains"
SOURCE = "facebookresearch/DPR#196"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["question.weight", "question.bias"]


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.question, self.context = nn.Linear(8, 4), nn.Linear(8, 4).requires_grad_(False)

    def forward(self, q, c):
        with torch.no_grad():
            keys = self.context(c)
        keys.requires_grad_(True)
        return self.question(q) @ keys.t()


def make():
    torch.manual_seed(0)
    model, q, c = Retriever(), torch.randn(5, 8), torch.randn(5, 8)
    return model, lambda: nn.functional.cross_entropy(model(q, c), torch.arange(5))
