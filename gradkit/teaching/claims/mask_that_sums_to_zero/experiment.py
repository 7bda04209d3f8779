import torch
from torch.nn.functional import cross_entropy

BELIEVED = {
    f"{part}_of_{name}": "nan"
    for name in ("masked_mean", "selected_mean", "ignored_labels", "clamped_mean")
    for part in ("loss", "gradient")
}


def kind(value):
    return "nan" if value.isnan().any() else "zero" if not value.any() else "finite"


def observe():
    mask = torch.zeros(4)
    formulas = {
        "masked_mean": lambda x: (x.sum(1) * mask).sum() / mask.sum(),
        "selected_mean": lambda x: x.sum(1)[mask.bool()].mean(),
        "ignored_labels": lambda x: cross_entropy(x, torch.full((4,), -100)),
        "clamped_mean": lambda x: (x.sum(1) * mask).sum() / mask.sum().clamp(min=1),
    }
    seen = {}
    for name, formula in formulas.items():
        x = torch.ones(4, 3, requires_grad=True)
        loss = formula(x)
        loss.backward()
        seen[f"loss_of_{name}"], seen[f"gradient_of_{name}"] = kind(loss), kind(x.grad)
    return seen
