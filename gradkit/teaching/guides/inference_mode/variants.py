"""Features that Lightning predicts, and a head that learns from them. Each function says whether the head learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import batches, lightning_trainer, moved


def predicted(**options):
    import lightning

    class Encoder(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.look = nn.Linear(9, 16)

        def predict_step(self, boards, _):
            return torch.tanh(self.look(boards))

    boards, judge = torch.randn(8, 9), nn.Linear(16, 1)
    optimizer = torch.optim.SGD(judge.parameters(), lr=0.1)
    predictions = lightning_trainer(**options).predict(Encoder(), batches(boards))

    def train():
        for features in predictions:
            judge(features).square().mean().backward()
            optimizer.step()

    return moved(judge.weight, train)


def wrong_lightning():
    return predicted()


def right_lightning():
    # [lightning]
    options = {"inference_mode": False}  # lightning.Trainer(inference_mode=False): predict() then runs under no_grad
    # [end]
    return predicted(**options)
