# %% [markdown] lang="en"
# # Solution 6: captions for images
#
# `forward` takes the image through `memory`, which calls the projector. The `no_grad` block stays: the eye is frozen, and nothing before it should learn.

# %% [markdown] lang="zh" of="e2fdc983"
# # 练习 6 的解答：给图片写说明
#
# `forward` 让图片经过 `memory`，由它调用 projector。`no_grad` 块保留：eye 是冻结的，它之前没有要学习的东西。

# %% tags=["given"]
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    word = torch.randint(0, 6, (32,))
    image = torch.randn(32, 20)
    image[:, :6] += F.one_hot(word, 6)
    return image, torch.randn(32, 16), word

# %% tags=["program"]
class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Linear(20, 16).requires_grad_(False)
        self.projector = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
        self.decoder = nn.Linear(32, 6)

    def see(self, image):
        with torch.no_grad():
            return torch.relu(self.eye(image))

    def memory(self, image):
        return self.projector(self.see(image))

    def forward(self, image, text):
        joined = torch.cat([self.memory(image), text], dim=1)
        return self.decoder(joined)


def build():
    return Captioner()


def loss_of(model, batch):
    image, text, word = batch
    return F.cross_entropy(model(image, text), word)

# %%
gradkit.testing.judged("image_captions", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# Why other ways do not work:
#
# - Calling the projector and dropping its result changes nothing.
# - Adding its result times zero to the loss connects it, but its gradient is exactly zero: some checks for unused parameters fall silent, and it learns no more than before.
# - Freezing or deleting the projector makes the complaint go away, and with it the purpose.

# %% [markdown] lang="zh" of="599daba6"
# 为什么别的办法不行：
#
# - 调用 projector 却把结果丢掉，什么也没变。
# - 把它的结果乘以零加进损失，连是连上了，梯度却恰好是零：有些检查未使用参数的工具从此不再提醒，而它还是什么也没学到。
# - 冻结或删除 projector，提醒没了，它的用处也没了。

# %%
def times_zero(model, batch):
    image, text, word = batch
    idle = model.projector(model.see(image)).sum()
    scores = model.decoder(torch.cat([model.see(image), text], dim=1))
    return F.cross_entropy(scores, word) + 0.0 * idle


gradkit.testing.judged("image_captions", build=build, loss_of=times_zero)
