# %% [markdown] lang="en"
# # Solution 1: a forgotten `no_grad`
#
# The block goes, and the forward pass is recorded from the first layer on.

# %% [markdown] lang="zh" of="1a09c16b"
# # 练习 1 的解答：忘了拿掉的 `no_grad`
#
# 去掉这个块，前向传播从第一层起就都有记录了。

# %% tags=["given"]
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    kind = torch.randint(0, 3, (32,))
    leaf = torch.randn(32, 8) + kind[:, None]
    return leaf, kind

# %% tags=["program"]
class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, leaf):
        return self.head(torch.tanh(self.encoder(leaf)))


def build():
    return LeafNet()


def loss_of(model, batch):
    leaf, kind = batch
    return F.cross_entropy(model(leaf), kind)

# %%
gradkit.testing.judged("forgotten_no_grad", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# Why other ways do not work:
#
# - `loss.requires_grad_()` silences the error. The loss becomes a leaf, `backward()` ends in it, and no weight learns.
# - The block around the encoder alone lets the head learn, but not the encoder, and no error says so.
# - `torch.set_grad_enabled(True)` before the block changes nothing: the block switches recording off again.

# %% [markdown] lang="zh" of="da155e1c"
# 为什么别的办法不行：
#
# - `loss.requires_grad_()` 只是让报错消失。损失成了叶子张量，`backward()` 到它为止，没有一个权重在学习。
# - 只把块套在编码器外面，分类头能学习，编码器不能，而且不会报错。
# - 在块之前写 `torch.set_grad_enabled(True)` 没有用：一进入块，又关掉了。

# %%
def head_only(model, batch):
    leaf, kind = batch
    with torch.no_grad():
        hidden = torch.tanh(model.encoder(leaf))
    return F.cross_entropy(model.head(hidden), kind)


gradkit.testing.judged("forgotten_no_grad", build=build, loss_of=head_only)
