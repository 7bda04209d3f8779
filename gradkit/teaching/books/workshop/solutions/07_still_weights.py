# %% [markdown] lang="en"
# # Solution 7: weights that do not move
#
# The optimizer comes last, when the model is complete; and the gradients are emptied before `backward()`, not after.

# %% [markdown] lang="zh" of="3970f303"
# # 练习 7 的解答：纹丝不动的权重
#
# 优化器最后创建，这时模型已经完整；梯度在 `backward()` 之前清空，而不是之后。

# %% tags=["given"]
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    weather = torch.randint(0, 4, (32,))
    measured = torch.randn(32, 7)
    measured[:, :4] += 2 * F.one_hot(weather, 4)
    return measured, weather

# %% tags=["program"]
class WeatherNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, measured):
        return self.head(torch.tanh(self.encoder(measured)))


def build():
    model = WeatherNet()
    model.head = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer


def loss_of(model, batch):
    measured, weather = batch
    return F.cross_entropy(model(measured), weather)


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return loss.item()

# %%
gradkit.testing.judged("still_weights", build=build, loss_of=loss_of, train_step=train_step)

# %% [markdown] lang="en"
# Two ways to fix only half of it: with `zero_grad()` gone altogether, the first step is right, and the second counts the first gradient again; with the optimizer still built first, the new head does not move.

# %% [markdown] lang="zh" of="419217d1"
# 两种只改了一半的情形：干脆去掉 `zero_grad()`，第一步是对的，第二步又把第一步的梯度加了进来；优化器还是先创建，新的分类头就不会动。

# %%
def never_emptied(model, optimizer, batch):
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()


gradkit.testing.judged("still_weights", build=build, loss_of=loss_of, train_step=never_emptied)
