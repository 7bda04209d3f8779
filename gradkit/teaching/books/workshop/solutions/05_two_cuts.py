# %% [markdown] lang="en"
# # Solution 5: two cuts, one behind the other
#
# Both have to go. `log` may stay as it is: what it detaches goes nowhere.

# %% [markdown] lang="zh" of="46df2bfe"
# # 练习 5 的解答：一前一后两处切断
#
# 两处都要去掉。`log` 可以保持原样：它 detach 的值不再流向任何地方。

# %% tags=["given"]
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    writer = torch.randint(0, 5, (32,))
    page = torch.randn(32, 12)
    page[:, :5] += 2 * F.one_hot(writer, 5)
    return page, writer

# %% tags=["program"]
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 16)
        self.mixer = nn.Linear(16, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, page):
        words = torch.relu(self.encoder(page))
        self.log(words)
        mixed = torch.tanh(self.mixer(self.centre(words)))
        return self.head(self.rescale(mixed))

    def log(self, words):
        self.last_words = words.detach()

    def centre(self, words):
        return words - words.mean(dim=1, keepdim=True)

    def rescale(self, mixed):
        return mixed / mixed.norm(dim=1, keepdim=True)


def build():
    return Reader()


def loss_of(model, batch):
    page, writer = batch
    return F.cross_entropy(model(page), writer)

# %%
gradkit.testing.judged("two_cuts", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# Three ways to fix only half of it:
#
# - with only `.data` gone, nothing gets better, because the block behind it stops the gradient first;
# - with only the block gone, the mixer learns and the encoder does not;
# - with the division outside the block and the length inside, all three learn, but from a wrong gradient.

# %% [markdown] lang="zh" of="c5e19d2a"
# 三种只改了一半的情形：
#
# - 只去掉 `.data`，没有任何好转，因为后面的块先把梯度挡住了；
# - 只去掉那个块，混合层能学习，编码器不能；
# - 除法移到块外、长度留在块内，三层都在学习，用的却是错误的梯度。

# %%
class FirstOnly(Reader):
    def rescale(self, mixed):
        with torch.no_grad():
            return mixed / mixed.norm(dim=1, keepdim=True)


gradkit.testing.judged("two_cuts", build=FirstOnly, loss_of=loss_of)

# %%
class LengthInside(Reader):
    def rescale(self, mixed):
        with torch.no_grad():
            length = mixed.norm(dim=1, keepdim=True)
        return mixed / length


gradkit.testing.judged("two_cuts", build=LengthInside, loss_of=loss_of)
