# %% [markdown] lang="en"
# # Solution 3: the NumPy round trip
#
# The same two operations in torch. Nothing leaves it any more, so nothing has to come back.

# %% [markdown] lang="zh" of="b0d0495c"
# # 练习 3 的解答：绕道 NumPy
#
# 同样的两步运算，改用 torch 来做。既然没有值离开 torch，也就用不着再接回来。

# %% tags=["given"]
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    bird = torch.randint(0, 4, (32,))
    song = torch.randn(32, 40)
    song[:, :10] = song[:, :10] * (1 + bird[:, None])
    return song, bird

# %% tags=["program"]
class BirdNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Linear(40, 12, bias=False)
        self.head = nn.Linear(12, 4)

    def forward(self, song):
        energy = self.filters(song).square()
        return self.head(self.levels(energy))

    def levels(self, energy):
        level = torch.log1p(energy)
        return level - level.mean(dim=1, keepdim=True)


def build():
    return BirdNet()


def loss_of(model, batch):
    song, bird = batch
    return F.cross_entropy(model(song), bird)

# %%
gradkit.testing.judged("numpy_roundtrip", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# Why other ways do not work:
#
# - `torch.from_numpy(level).requires_grad_()` makes a new leaf. It looks as if there were a gradient again, and it ends there.
# - With the logarithm in torch and the mean still in NumPy, the filters do get a gradient, but a wrong one: it knows nothing of the mean.

# %% [markdown] lang="zh" of="62924156"
# 为什么别的办法不行：
#
# - `torch.from_numpy(level).requires_grad_()` 造出的是新的叶子张量。看起来又有梯度了，其实到它为止。
# - 对数改用 torch、均值还留在 NumPy，滤波器能拿到梯度，却是错的：这个梯度没有算上均值。

# %%
class HalfNet(BirdNet):
    def levels(self, energy):
        level = torch.log1p(energy)
        mean = level.detach().numpy().mean(axis=1, keepdims=True)
        return level - torch.from_numpy(mean)


gradkit.testing.judged("numpy_roundtrip", build=HalfNet, loss_of=loss_of)
