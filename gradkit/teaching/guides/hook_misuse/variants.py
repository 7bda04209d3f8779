"""Gradients that are to be limited, where a library steps. Each function says whether the part before the hook learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import batches, lightning_fit, moved, trainer_train


class Net(nn.Module):
    """Its gradients are small, and a hook that multiplies by a comparison makes zeros of them."""

    def __init__(self):
        super().__init__()
        self.ear, self.name = nn.Linear(4, 4), nn.Linear(4, 1)

    def hooked(self):
        self.ear.weight.register_hook(lambda grad: grad * (grad.abs() > 100))
        return self

    def forward(self, x, labels):
        guess = self.name(torch.tanh(self.ear(x)))
        return {"loss": (guess - labels).square().mean(), "logits": guess}


def data():
    return [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(8)]


def trained(model, **arguments):
    return moved(model.ear.weight, lambda: trainer_train(model, data(), **arguments))


def wrong_trainer():
    return trained(Net().hooked())


def right_trainer():
    # [trainer]
    arguments = {"max_grad_norm": 1.0}  # TrainingArguments(..., max_grad_norm=1.0); that is the default
    # [end]
    return trained(Net(), **arguments)


def fitted(net, **options):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

    return moved(net.ear.weight, lambda: lightning_fit(Lit(), data(), **options))


def wrong_lightning():
    return fitted(Net().hooked())


def right_lightning():
    # [lightning]
    options = {"gradient_clip_val": 1.0}  # lightning.Trainer(..., gradient_clip_val=1.0)
    # [end]
    return fitted(Net(), **options)


def accelerated(net, clip):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), batches(data()))

    def run():
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                clip(accelerator, model)
                optimizer.step()
                optimizer.zero_grad()

    return moved(net.ear.weight, run)


def wrong_accelerate():
    return accelerated(Net().hooked(), lambda accelerator, model: None)


def right_accelerate():
    def clip(accelerator, model):
        # [accelerate]
        if accelerator.sync_gradients:  # the last batch of an accumulation
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        # [end]

    return accelerated(Net(), clip)
