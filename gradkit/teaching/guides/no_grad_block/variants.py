"""A slope that validation needs, where a library validates without recording. Each function says whether it is there."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import batches, lightning_trainer, trainer_train


class Spring(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def force(self, place):
        place = place.clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.energy(place).sum(), place, create_graph=torch.is_grad_enabled())
        return -slope


def goes_through(run):
    try:
        run()
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        return False
    return True


def fitted(validation_step, **options):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.spring = Spring()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def training_step(self, place, _):
            return self.spring.force(place).square().mean()

    Lit.validation_step = validation_step
    data, module, trainer = batches(torch.randn(8, 1)), Lit(), lightning_trainer(**options)
    return goes_through(lambda: (trainer.fit(module, data, data), trainer.validate(module, data, verbose=False)))


def wrong_lightning():
    def validation_step(self, place, _):
        self.log("force", self.spring.force(place).square().mean())

    return fitted(validation_step)


def right_lightning():
    # [lightning]
    def validation_step(self, place, _):
        with torch.enable_grad():  # enough in fit; validate() and test() need lightning.Trainer(inference_mode=False)
            force = self.spring.force(place)
        self.log("force", force.square().mean())

    # [end]
    return fitted(validation_step, inference_mode=False)


def trained(forward):
    model = type("Own", (Spring,), {"forward": forward})()
    data = [{"place": torch.randn(1), "labels": torch.randn(1)} for _ in range(8)]
    return goes_through(
        lambda: trainer_train(model, data, more={"eval_dataset": data}, eval_strategy="epoch")
    )


def wrong_trainer():
    def forward(self, place, labels):
        force = self.force(place)
        return {"loss": (force - labels).square().mean(), "logits": force}

    return trained(forward)


def right_trainer():
    # [trainer]
    def forward(self, place, labels):
        with torch.enable_grad():  # evaluate() calls the model under no_grad
            force = self.force(place)
        return {"loss": (force - labels).square().mean(), "logits": force}

    # [end]
    return trained(forward)
