import torch
from torch import nn

BELIEVED = dict.fromkeys(["finite_logits", "one_infinite_logit", "with_nan_to_num", "with_where", "sum_of_parameters"], True)


def safe(zero, poison):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    logits = model(torch.ones(4, 3)) / torch.tensor([1.0, 0.0 if poison else 1.0])
    loss = zero(model, logits)
    loss.backward()
    return bool(loss.isfinite() and all(p.grad.isfinite().all() for p in model.parameters()))


def observe():
    return {
        "finite_logits": safe(lambda model, logits: 0.0 * logits.sum(), poison=False),
        "one_infinite_logit": safe(lambda model, logits: 0.0 * logits.sum(), poison=True),
        "with_nan_to_num": safe(lambda model, logits: 0.0 * logits.nan_to_num().sum(), poison=True),
        "with_where": safe(lambda model, logits: 0.0 * torch.where(logits.isfinite(), logits, 0).sum(), poison=True),
        "sum_of_parameters": safe(lambda model, _: 0.0 * sum(p.sum() for p in model.parameters()), poison=True),
    }
