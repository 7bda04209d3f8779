"""The same cause and cure where a library builds the optimizer, or wraps it. Each function says whether the head moved."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved, trainer_train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x, labels):
        scores = self.head(torch.tanh(self.body(x)))
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def examples():
    return [{"x": torch.randn(4), "labels": number % 3} for number in range(8)]


def trained_by_trainer(model, optimizers):
    more = {"optimizers": optimizers}
    return moved(model.head.weight, lambda: trainer_train(model, examples(), more=more))


def wrong_trainer():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.head = nn.Linear(8, 3)
    return trained_by_trainer(model, (optimizer, None))


def right_trainer():
    model = Net()
    # [trainer]
    model.head = nn.Linear(8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    optimizers = (optimizer, None)  # Trainer(model, ..., optimizers=optimizers); or none: train() then builds one itself
    # [end]
    return trained_by_trainer(model, optimizers)


def fitted(module):
    lightning_fit(module, examples())
    return module.moved()


def lightning_module():
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.net.parameters(), lr=0.1)

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

        def put_head(self):
            self.net.head = nn.Linear(8, 3)
            self.before = self.net.head.weight.detach().clone()

        def moved(self):
            return not torch.equal(self.net.head.weight, self.before)

    return Lit


def wrong_lightning():
    class Lit(lightning_module()):
        def on_train_start(self):
            self.put_head()

    return fitted(Lit())


def right_lightning():
    class Lit(lightning_module()):
        # [lightning]
        def configure_model(self):  # comes before configure_optimizers; on_train_start comes after it
            self.put_head()

        # [end]

    return fitted(Lit())


def trained_by_accelerate(late):
    from accelerate import Accelerator

    model, accelerator = Net(), Accelerator(cpu=True)
    if late:
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
        model.head = nn.Linear(8, 3)
    else:
        # [accelerate]
        model.head = nn.Linear(8, 3)
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
        # [end]
    before = model.head.weight.detach().clone()
    for batch in torch.utils.data.DataLoader(examples(), batch_size=4):
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
    return not torch.equal(model.head.weight, before)


def wrong_accelerate():
    return trained_by_accelerate(late=True)


def right_accelerate():
    return trained_by_accelerate(late=False)
