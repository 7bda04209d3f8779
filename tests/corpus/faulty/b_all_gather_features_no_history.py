import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn as nn

TITLE = "features gathered over the workers for a contrastive loss: the gathered side gets no gradient"
SOURCE = "huggingface/accelerate#76"
ERROR = ""
CAUSE = "non_differentiable_op"
SHOULD_TRAIN = ["query.weight", "key.weight"]


def gather(t):
    everyone = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, t)  # CUT
    return torch.cat(everyone)


def gather_fixed(t):
    return torch.cat(dist_nn.all_gather(t))


class TwoTower(nn.Module):
    def __init__(self, gather):
        super().__init__()
        self.query, self.key, self.gather = nn.Linear(8, 4), nn.Linear(8, 4), gather

    def forward(self, a, b):
        keys = self.gather(self.key(b).contiguous())
        scores = self.query(a) @ keys.t()
        return nn.functional.cross_entropy(scores, torch.arange(len(a)))


def _program(gather):
    torch.manual_seed(0)
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model, a, b = TwoTower(gather), torch.randn(6, 8), torch.randn(6, 8)
    return model, lambda: model(a, b)


def make():
    return _program(gather)


def make_fixed():
    return _program(gather_fixed)
