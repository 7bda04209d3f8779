"""Clipping where a library scales the gradients. Each function says whether a step has the length of the bound."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import batches, lightning_trainer

BOUND, SCALE = 0.5, 1024.0


def data():
    return [(torch.randn(8), 9 + torch.rand(1)) for _ in range(4)]


def as_long_as_the_bound(parameters, run):
    """SGD with a rate of 1, and gradients that are longer than the bound: the step is as long as that."""
    before = [p.detach().clone() for p in parameters]
    run()
    length = sum((p.detach() - old).square().sum() for p, old in zip(parameters, before)).sqrt()
    return abs(length.item() - BOUND) < 0.01


def fitted(clip, **options):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.bees = nn.Linear(8, 1)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

        def training_step(self, batch, _):
            return (self.bees(batch[0]).float() - batch[1]).square().mean()

    if clip:
        Lit.on_after_backward = clip
    from lightning.pytorch.plugins import MixedPrecision

    half = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=SCALE))
    module, trainer = Lit(), lightning_trainer(plugins=[half], **options)
    return as_long_as_the_bound(list(module.parameters()), lambda: trainer.fit(module, batches(data())))


def wrong_lightning():
    def on_after_backward(self):
        nn.utils.clip_grad_norm_(self.parameters(), BOUND)

    return fitted(on_after_backward)


def right_lightning():
    # [lightning]
    options = {"gradient_clip_val": 0.5}  # lightning.Trainer(..., gradient_clip_val=0.5)
    # [end]
    return fitted(None, **options)


def accelerated(clip):
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), nn.Linear(8, 1)
    # What Accelerator(mixed_precision="fp16") sets on a GPU; for a CPU it refuses.
    accelerator.state._mixed_precision, accelerator.native_amp = "fp16", True
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))

    def run():
        for hum, bees in batches(data()):
            accelerator.backward((model(hum).float() - bees).square().mean())
            clip(accelerator, model)
            optimizer.step()
            optimizer.zero_grad()

    try:
        return as_long_as_the_bound(list(model.parameters()), run)
    finally:
        accelerator.state._reset_state(reset_partial_state=True)


def wrong_accelerate():
    return accelerated(lambda accelerator, model: nn.utils.clip_grad_norm_(model.parameters(), BOUND))


def right_accelerate():
    def clip(accelerator, model):
        # [accelerate]
        accelerator.clip_grad_norm_(model.parameters(), 0.5)  # undoes the scale first
        # [end]

    return accelerated(clip)
