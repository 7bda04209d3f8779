import torch
import torch.nn as nn

TITLE = "trainer without a criterion uses zeros as the loss; no callback adds to it, so backward raises"
SOURCE = "pytorchbearer/torchbearer#414"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "constant_loss"


class Trial:
    def __init__(self, model, criterion=None, callbacks=()):
        self.model, self.callbacks = model, callbacks
        self.criterion = criterion or (lambda y_pred, y_true: torch.zeros(1))  # CUT

    def closure(self, x, y):
        state = {"y_pred": self.model(x), "y_true": y}
        state["loss"] = self.criterion(state["y_pred"], state["y_true"])
        for callback in self.callbacks:
            callback(state)
        return state["loss"].sum()


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(9, 3), nn.Linear(3, 9)

    def forward(self, x):
        return self.dec(torch.relu(self.enc(x)))


def log_loss(state):
    state["history"] = [state["loss"].sum().item()]


def add_reconstruction(state):
    state["loss"] = state["loss"] + (state["y_pred"] - state["y_true"]).pow(2).mean()


def _program(callbacks):
    torch.manual_seed(0)
    model, x = Autoencoder(), torch.randn(4, 9)
    trial = Trial(model, callbacks=callbacks)
    return model, lambda: trial.closure(x, x)


def make():
    return _program((log_loss,))


def make_fixed():
    return _program((add_reconstruction, log_loss))
