import torch

BELIEVED = {"where_after_sqrt": True, "nan_to_num_after_division": True}


def gradient_is_finite(formula):
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    value = formula(x).sum()
    assert value.isfinite()
    value.backward()
    return bool(x.grad.isfinite().all())


def observe():
    return {
        "where_after_sqrt": gradient_is_finite(lambda x: torch.where(x > 0, x.sqrt() / x.sqrt(), 0.0)),
        "nan_to_num_after_division": gradient_is_finite(lambda x: (x / x).nan_to_num()),
        "where_before": gradient_is_finite(lambda x: torch.where(x > 0, x, 1.0).sqrt()),
    }
