"""A library validates, and what validation keeps is used in training. Each function says whether the reader learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved, trainer_train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.reader = nn.Linear(4, 3), nn.EmbeddingBag(9, 3)
        self.register_buffer("texts", torch.randint(0, 9, (2, 5)))
        self.kept = None

    def species(self):
        if self.kept is not None:
            return self.kept
        texts = self.reader(self.texts)
        if not texts.requires_grad:
            self.kept = texts
        return texts

    def forward(self, x, labels):
        scores = self.eye(x) @ self.species().T
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def examples():
    return [{"x": torch.randn(4), "labels": number % 2} for number in range(8)]


def fitted(**methods):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

        def validation_step(self, batch, _):
            self.net(**batch)

    module = type("Own", (Lit,), methods)()
    return moved(module.net.reader.weight, lambda: lightning_fit(module, examples(), examples()))


def wrong_lightning():
    return fitted()


def right_lightning():
    # [lightning]
    def on_validation_end(self):  # comes also after the batches of validation that Lightning tries before it trains
        self.net.kept = None

    # [end]
    return fitted(on_validation_end=on_validation_end)


def trained(callbacks):
    model, more = Net(), {"eval_dataset": examples(), "callbacks": callbacks}
    return moved(
        model.reader.weight,
        lambda: trainer_train(model, examples(), more=more, eval_strategy="epoch", eval_on_start=True),
    )


def wrong_trainer():
    return trained([])


def right_trainer():
    from transformers import TrainerCallback

    # [trainer]
    class Forget(TrainerCallback):  # Trainer(..., callbacks=[Forget()])
        def on_evaluate(self, args, state, control, model=None, **kwargs):
            model.kept = None

    # [end]
    return trained([Forget()])
