"""Two optimizers that take turns, where Lightning freezes for each turn. Each function says whether both parts learn."""

import torch
from torch import nn

from gradkit.teaching.guides.loops import lightning_fit, moved


def fitted(training_step):
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.generator, self.critic)]

        def turn(self, optimizer, loss):
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    Lit.training_step, module = training_step, Lit()
    return moved(module.critic.weight, lambda: lightning_fit(module, torch.randn(8, 4)))


def wrong_lightning():
    def training_step(self, noise, _):
        first, second = self.optimizers()
        self.toggle_optimizer(first)
        self.turn(first, self.critic(self.generator(noise)).mean())
        self.toggle_optimizer(second)
        self.turn(second, -self.critic(self.generator(noise).detach()).mean())
        self.untoggle_optimizer(second)

    return fitted(training_step)


def right_lightning():
    # [lightning]
    def training_step(self, noise, _):
        first, second = self.optimizers()
        with self.toggled_optimizer(first):  # what only the other optimizer holds is frozen, and unfrozen at the end
            self.turn(first, self.critic(self.generator(noise)).mean())
        with self.toggled_optimizer(second):
            self.turn(second, -self.critic(self.generator(noise).detach()).mean())

    # [end]
    return fitted(training_step)
