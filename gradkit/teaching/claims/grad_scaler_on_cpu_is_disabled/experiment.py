import torch

BELIEVED = {"is_enabled": False, "scale_is_one": True, "step_is_the_plain_one": True}


def step_size(scaler, scale_loss):
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for scaled in (True, scale_loss):
        optimizer.zero_grad()
        before = weight.detach().clone()
        loss = weight.square().sum()
        (scaler.scale(loss) if scaled else loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return float((weight - before).norm())


def observe():
    on_cpu = torch.amp.GradScaler("cpu")
    plain = step_size(torch.amp.GradScaler("cpu", enabled=False), scale_loss=False)
    without_scale = step_size(torch.amp.GradScaler("cpu"), scale_loss=False)
    return {
        "is_enabled": on_cpu.is_enabled(),
        "scale_is_one": on_cpu.get_scale() == 1.0,
        "step_is_the_plain_one": abs(without_scale - plain) < 1e-6,
        "step_without_scale": float(f"{without_scale:.1e}"),
        "plain_step": float(f"{plain:.1e}"),
    }
