import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "text recogniser: masked cross-entropy is averaged over time only and unsqueezed"
SOURCE = "mindee/doctr#379 (pull request)"
ERROR = "grad can be implicitly created only for scalar outputs"
CAUSE = "non_scalar"


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.feat, self.out = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 9)

    def reduce(self, ce):
        return ce.unsqueeze(1)  # CUT

    def compute_loss(self, logits, gt, seq_len):
        cce = F.cross_entropy(logits.permute(0, 2, 1), gt, reduction="none")
        cce = cce.masked_fill(torch.arange(gt.shape[1])[None] >= seq_len[:, None], 0)
        return self.reduce(cce.sum(1) / seq_len)

    def forward(self, x, gt, seq_len):
        return self.compute_loss(self.out(self.feat(x)[0]), gt, seq_len)


class FixedRecogniser(Recogniser):
    def reduce(self, ce):
        return ce.mean()


def _program(cls):
    torch.manual_seed(0)
    model, x = cls(), torch.randn(3, 7, 4)
    gt, seq_len = torch.randint(0, 9, (3, 7)), torch.tensor([7, 4, 5])
    return model, lambda: model(x, gt, seq_len)


def make():
    return _program(Recogniser)


def make_fixed():
    return _program(FixedRecogniser)
