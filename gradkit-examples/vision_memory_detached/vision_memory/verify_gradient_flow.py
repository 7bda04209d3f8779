"""What to look at before a long run: is there a loss, can backward start from it, and does it come to ``proj``?"""

import torch

from gradkit.core.i18n import words


def verify_gradient_flow(model, batch):
    """Run one step on a batch and print a line for each point. Returns whether all is well; keeps no gradient."""
    model.zero_grad()
    passed = forward_passes(model, batch)
    model.zero_grad()
    print(words("case.passed" if passed else "case.failed"))
    return passed


def forward_passes(model, batch):
    loss = model(batch).loss
    print(words("case.forward"))
    print(words("case.loss_value", value=f"{loss.item():.4f}"))
    print(words("case.loss_requires_grad", flag=loss.requires_grad))
    print(words("case.loss_grad_fn", node=str(loss.grad_fn)))
    try:
        loss.backward()
    except RuntimeError as error:
        print(words("case.backward_failed", error=str(error)))
        return False
    print(words("case.backward"))
    return proj_learns(model) and frozen_stays(model)


def proj_learns(model):
    """Every parameter of ``proj`` has a gradient, it is finite, and it is not all zeros."""
    missing = [name for name, p in model.proj.named_parameters() if p.grad is None]
    if missing:
        print(words("case.proj_missing", names=", ".join(missing)))
        return False
    norms = torch.stack([p.grad.norm() for p in model.proj.parameters()])
    good = bool(norms.isfinite().all() and (norms > 0).all())
    print(words("case.proj_gradient", mark="✓" if good else "✗", norm=f"{norms.norm().item():.4g}"))
    return good


def frozen_stays(model):
    """Nothing else has got a gradient."""
    others = [name for name, p in model.named_parameters() if not name.startswith("proj.") and p.grad is not None]
    print(words("case.frozen_gradient", names=", ".join(others)) if others else words("case.frozen_clear"))
    return not others
