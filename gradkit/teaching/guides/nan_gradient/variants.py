"""A gradient that is nan, where a library logs and steps. Each function says whether it is seen."""

import math

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, trainer_train


class Boats(nn.Module):
    def __init__(self):
        super().__init__()
        self.velocity = nn.Linear(4, 2)

    def forward(self, x, labels):
        length = (self.velocity(x) * labels[:, None]).pow(2).sum(dim=1).sqrt()
        return {"loss": (length - labels).pow(2).mean(), "logits": length}


def data():
    return [{"x": torch.randn(4), "labels": float(number % 4 > 0)} for number in range(16)]


def trained(**arguments):
    trainer = trainer_train(Boats(), data(), logging_steps=1, **arguments)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return any(math.isnan(loss) for loss in losses)


def wrong_trainer():
    return trained()


def right_trainer():
    # [trainer]
    arguments = {"logging_nan_inf_filter": False}  # TrainingArguments(..., logging_nan_inf_filter=False)
    # [end]
    return trained(**arguments)


def fitted(**options):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.boats = Boats()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def training_step(self, batch, _):
            return self.boats(**batch)["loss"]

    try:
        lightning_fit(Lit(), data(), **options)
    except RuntimeError as error:
        return "nan values" in str(error)
    return False


def wrong_lightning():
    return fitted()


def right_lightning():
    # [lightning]
    options = {"detect_anomaly": True}  # lightning.Trainer(..., detect_anomaly=True), until it is found
    # [end]
    return fitted(**options)
