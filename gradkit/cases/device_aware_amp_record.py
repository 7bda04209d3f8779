"""Measures what the programs of device_aware_amp.py do on a device, and keeps the numbers.

python gradkit/cases/device_aware_amp.py --device cuda --record gradkit/cases/records/device_aware_amp_cuda.json
"""

import datetime as dt
import importlib
import json
import platform
import warnings
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector

amp = importlib.import_module(f"{__package__}.device_aware_amp" if __package__ else "device_aware_amp")

UPDATES = {
    "right_order": "fixed",
    "cuda_only": "cuda_only",
    "branches": "branches",
    "backward_not_scaled": "logged",
    "step_past_the_scaler": "past_the_scaler",
}


def first_update(program, config):
    """One update without clipping: the gradient that the optimizer is given, and how far the weights move.

    A scaler that finds inf skips the step and halves its scale: then the same batch is tried again.
    """
    loop = amp.build(program, replace(config, gradient_accumulation=1, max_grad_norm=float("inf")))
    before, given = parameters_to_vector(loop.model.parameters()).detach().clone(), []
    loop.optimizer.register_step_pre_hook(
        lambda *_: given.append(torch.cat([p.grad.flatten() for p in loop.model.parameters()]))
    )
    skipped = -1
    try:
        while not given:
            skipped += 1
            loop.backward(loop.loss(loop.train_batches[0]))
            loop.update()
    except AssertionError as error:
        return {"raised": f"AssertionError: {error}"}, None
    moved = parameters_to_vector(loop.model.parameters()).detach() - before
    row = {"gradient_norm": given[0].norm().item(), "weights_moved": moved.norm().item(), "skipped": skipped}
    return row, given[0]


def first_updates(config):
    """The first update of every program, beside the same one in full precision."""
    plain, true_gradient = first_update("fixed", replace(config, mixed_precision=False))
    rows = {"full_precision": plain}
    for name, program in UPDATES.items():
        rows[name], gradient = first_update(program, config)
        if gradient is not None:
            rows[name]["times_full_precision"] = (gradient.norm() / true_gradient.norm()).item()
            rows[name]["cosine"] = F.cosine_similarity(gradient, true_gradient, dim=0).item()
    return rows


def lstm_backward(device, training):
    """``"ran"``, or what backward says about an LSTM in train() or eval()."""
    lstm = nn.LSTM(amp.FEATURES, amp.HIDDEN, batch_first=True).to(device).train(training)
    try:
        lstm(torch.randn(2, amp.WINDOW, amp.FEATURES, device=device))[0].sum().backward()
    except RuntimeError as error:
        return f"RuntimeError: {str(error).splitlines()[0]}"
    return "ran"


def branches_that_were_told_no(config):
    """The dtype of the logits when the device branches are configured without mixed precision."""
    loop = amp.build("branches", replace(config, mixed_precision=False))
    with loop.autocast():
        return str(loop.model(loop.train_batches[0][0].to(loop.device)).dtype)


def reached_after_a_pass_without_grad(config):
    """How many parameters get a gradient if a no_grad pass ran before, in the same autocast block."""
    loop = amp.build("fixed", config)
    bars, answers = (part.to(loop.device) for part in loop.train_batches[0])
    with loop.autocast():
        with torch.no_grad():
            loop.model(bars)
        loss = F.cross_entropy(loop.model(bars), answers)
    loss.backward()
    return [sum(p.grad is not None for p in loop.model.parameters()), len(list(loop.model.parameters()))]


def losses(program, config):
    return amp.build(program, config).fit()


def measure(config):
    """Everything that the text about these programs says of a device, as a dict for JSON."""
    full = replace(config, mixed_precision=False)
    loop = amp.build("fixed", config)
    mixed_losses = loop.fit()
    return {
        "device": torch.cuda.get_device_name() if loop.device.type == "cuda" else platform.machine(),
        "device_type": loop.device.type,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "half": str(loop.half),
        "scaler_enabled": loop.scaler.is_enabled(),
        "scale_after_training": loop.scaler.get_scale(),
        "cpu_scaler_enabled": torch.amp.GradScaler("cpu").is_enabled(),
        "cpu_scaler_scale": torch.amp.GradScaler("cpu").get_scale(),
        "losses": {
            "full_precision": losses("fixed", full),
            "mixed_precision": mixed_losses,
            "backward_not_scaled": losses("logged", config),
            "backward_not_scaled_adam": losses("logged", replace(config, optimizer="Adam", learning_rate=0.01)),
        },
        "first_updates": first_updates(config),
        "branches_that_were_told_no": branches_that_were_told_no(config),
        "reached_after_a_pass_without_grad": reached_after_a_pass_without_grad(config),
        "lstm_backward": {mode: lstm_backward(config.device, mode == "train") for mode in ("train", "eval")},
    }


def write(path, config):
    """Measure, and write the numbers to a JSON file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old names warn that they are old
        record = measure(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"Wrote {path}: {record['device']}, torch {record['torch']}")
