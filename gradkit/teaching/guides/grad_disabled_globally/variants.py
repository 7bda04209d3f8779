"""A helper that switches recording off, where Lightning switches it on. Each function says whether the river learns."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved


def fitted(training_step):
    """Recording was left off before fit, too."""
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.gauges = nn.Linear(4, 1)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    Lit.training_step, module = training_step, Lit()
    torch.set_grad_enabled(False)
    try:
        return moved(module.gauges.weight, lambda: lightning_fit(module, torch.randn(8, 4)))
    finally:
        torch.set_grad_enabled(True)


def wrong_lightning():
    def training_step(self, history, _):
        torch.set_grad_enabled(False)
        usual = history.mean(dim=0)
        return self.gauges(history - usual).square().mean()

    return fitted(training_step)


def right_lightning():
    # [lightning]
    def training_step(self, history, _):  # recording is on here, whatever was switched off before fit
        with torch.no_grad():
            usual = history.mean(dim=0)
        return self.gauges(history - usual).square().mean()

    # [end]
    return fitted(training_step)
