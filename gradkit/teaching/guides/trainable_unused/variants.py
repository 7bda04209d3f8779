"""A branch whose data the Trainer takes away. Each function says whether the branch learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import moved, trainer_train


class BusDelay(nn.Module):
    def __init__(self):
        super().__init__()
        self.route, self.rain, self.delay = nn.Linear(4, 8), nn.Linear(2, 8), nn.Linear(8, 1)

    def loss_of(self, route, labels, rain=None):
        seen = self.route(route) if rain is None else self.route(route) + self.rain(rain)
        guess = self.delay(torch.tanh(seen)).squeeze(-1)
        return {"loss": (guess - labels).square().mean(), "logits": guess}


def trained(forward):
    model = type("Own", (BusDelay,), {"forward": forward})()
    data = [{"route": torch.randn(4), "rain": torch.randn(2), "labels": torch.rand(())} for _ in range(8)]
    return moved(model.rain.weight, lambda: trainer_train(model, data))


def wrong_trainer():
    def forward(self, route, labels, **weather):
        return self.loss_of(route, labels, weather.get("rain"))

    return trained(forward)


def right_trainer():
    # [trainer]
    def forward(self, route, labels, rain=None):  # by its name; with **weather the Trainer would take the rain away
        return self.loss_of(route, labels, rain)

    # [end]
    return trained(forward)
