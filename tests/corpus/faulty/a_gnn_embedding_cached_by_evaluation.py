import torch
import torch.nn as nn

TITLE = "CompGCN fails in epoch eleven: evaluation under no_grad filled the cache of enriched embeddings"
SOURCE = "pykeen/pykeen#571"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "cached_tensor"


class CompGcn(nn.Module):
    def __init__(self, n=6, d=4):
        super().__init__()
        self.entity, self.message = nn.Parameter(torch.randn(n, d)), nn.Linear(d, d)
        self.register_buffer("edges", torch.randint(0, n, (2, 10)))
        self._cache = None

    @property
    def enriched(self):
        if self._cache is None:
            src, dst = self.edges
            agg = torch.zeros_like(self.entity).index_add(0, dst, self.message(self.entity)[src])
            self._cache = torch.tanh(agg + self.entity)  # CUT
        return self._cache

    def score(self, h, t):
        return (self.enriched[h] * self.enriched[t]).sum(-1)

    def after_update(self):
        self._cache = None


class FixedCompGcn(CompGcn):
    @property
    def enriched(self):
        if self._cache is not None and torch.is_grad_enabled() and not self._cache.requires_grad:
            self._cache = None
        return CompGcn.enriched.fget(self)


@torch.no_grad()
def evaluate(model, h, t):
    model.eval()
    hits = (model.score(h, t) > 0).float().mean().item()
    model.train()
    return hits


def _program(cls):
    torch.manual_seed(0)
    model, h, t = cls(), torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])
    model.after_update()
    evaluate(model, h, t)
    return model, lambda: nn.functional.softplus(-model.score(h, t)).mean()


def make():
    return _program(CompGcn)


def make_fixed():
    return _program(FixedCompGcn)
