import torch
import torch.nn as nn
import torch.nn.functional as F

TITLE = "contrastive loss on all-gathered features: the gather fills empty buffers, so local features get no gradient"
SOURCE = "OFA-Sys/Chinese-CLIP#54"
ERROR = ""
CAUSE = "inplace_under_no_grad"
SHOULD_TRAIN = ["image.weight", "text.weight"]


def all_gather(buffers, tensor, rank, remote):
    """CPU stand-in for torch.distributed.all_gather: copies values, records nothing."""
    with torch.no_grad():
        for r, buf in enumerate(buffers):
            buf.copy_(tensor if r == rank else remote)  # CUT


def gather(tensor, remote, rank=0):
    buffers = [torch.empty_like(tensor) for _ in range(2)]
    all_gather(buffers, tensor, rank, remote)
    return torch.cat(buffers)


def gather_fixed(tensor, remote, rank=0):
    buffers = [torch.empty_like(tensor) for _ in range(2)]
    all_gather(buffers, tensor, rank, remote)
    buffers[rank] = tensor
    return torch.cat(buffers)


class Clip(nn.Module):
    def __init__(self, gather):
        super().__init__()
        self.image, self.text, self.gather = nn.Linear(6, 4), nn.Linear(5, 4), gather
        self.logit_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, im, tx, remote_im, remote_tx):
        a = self.gather(F.normalize(self.image(im), dim=-1), remote_im)
        b = self.gather(F.normalize(self.text(tx), dim=-1), remote_tx)
        logits = self.logit_scale.exp() * a @ b.t()
        return F.cross_entropy(logits, torch.arange(len(a)))


def _program(op):
    torch.manual_seed(0)
    model = Clip(op)
    data = torch.randn(3, 6), torch.randn(3, 5), torch.randn(3, 4), torch.randn(3, 4)
    return model, lambda: model(*data)


def make():
    return _program(gather)


def make_fixed():
    return _program(gather_fixed)
