"""What to look at before a long run: is there a loss, can backward start from it, and does it come to ``proj``?"""

import torch


def verify_gradient_flow(model, batch):
    """Run one step on a batch and print a line for each point. Returns whether all is well; keeps no gradient."""
    model.zero_grad()
    passed = forward_passes(model, batch)
    model.zero_grad()
    print("all checks passed" if passed else "FAILED: do not start the run")
    return passed


def forward_passes(model, batch):
    loss = model(batch).loss
    print("✓ forward pass succeeded")
    print(f"   loss value: {loss.item():.4f}")
    print(f"   loss requires_grad: {loss.requires_grad}")
    print(f"   loss grad_fn: {loss.grad_fn}")
    try:
        loss.backward()
    except RuntimeError as error:
        print(f"✗ backward pass failed: {error}")
        return False
    print("✓ backward pass succeeded")
    return proj_learns(model) and frozen_stays(model)


def proj_learns(model):
    """Every parameter of ``proj`` has a gradient, it is finite, and it is not all zeros."""
    missing = [name for name, p in model.proj.named_parameters() if p.grad is None]
    if missing:
        print(f"✗ no gradient in proj: {', '.join(missing)}")
        return False
    norms = torch.stack([p.grad.norm() for p in model.proj.parameters()])
    good = bool(norms.isfinite().all() and (norms > 0).all())
    print(f"{'✓' if good else '✗'} proj has a gradient, norm {norms.norm().item():.4g}")
    return good


def frozen_stays(model):
    """Nothing else has got a gradient."""
    others = [name for name, p in model.named_parameters() if not name.startswith("proj.") and p.grad is not None]
    print(f"✗ gradient in frozen parts: {', '.join(others)}" if others else "✓ frozen parts have no gradient")
    return not others
