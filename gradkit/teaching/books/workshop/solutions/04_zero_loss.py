# %% [markdown] lang="en"
# # Solution 4: a zero loss
#
# A sum over no labels is zero, and still has a history. Divided by a count that is at least one, it gives the same mean as before.

# %% [markdown] lang="zh" of="09f769fb"
# # 练习 4 的解答：等于零的损失
#
# 一个标签也没有时，求和得到零，而且有历史。除数至少取一，得到的均值就和原来一样。

# %% tags=["given"]
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    crop = torch.randint(0, 3, (16,))
    photo = torch.randn(16, 9) + crop[:, None]
    label = torch.where(torch.rand(16) < 0.5, crop, -100)
    label[0] = crop[0]
    return photo, label


def make_unlabelled_batch():
    photo, label = make_batch()
    return photo, torch.full_like(label, -100)

# %% tags=["program"]
class FieldNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(9, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, photo):
        return self.head(torch.relu(self.body(photo)))


def build():
    return FieldNet()


def loss_of(model, batch):
    photo, label = batch
    total = F.cross_entropy(model(photo), label, ignore_index=-100, reduction="sum")
    return total / (label != -100).sum().clamp(min=1)

# %%
gradkit.testing.judged("zero_loss", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# Another right way is `return model(photo).sum() * 0.0` where no label is known. Like the solution above, it relies on finite photos: zero times infinity is `nan`, so one infinite pixel makes gradients `nan` with either. `0.0 * sum(p.sum() for p in model.parameters())` does not look at the photos at all. Why other ways do not work:
#
# - `torch.tensor(0.0, requires_grad=True)` silences the error, and `backward()` ends in it. Where several processes train together, each waits for the gradients of all, and this one never sends any.
# - The mean of cross-entropy over no labels is `nan`.

# %% [markdown] lang="zh" of="4580c65a"
# 另一种正确写法：没有标签时返回 `model(photo).sum() * 0.0`。和上面的解法一样，它要求照片里的数都是有限的：零乘以无穷大是 `nan`，只要有一个像素是无穷大，两种写法的梯度都会变成 `nan`。`0.0 * sum(p.sum() for p in model.parameters())` 则完全不看照片。为什么别的办法不行：
#
# - `torch.tensor(0.0, requires_grad=True)` 让报错消失，`backward()` 却到它为止。多进程一起训练时，每个进程都要等齐所有梯度，而这一个永远不会送来。
# - 一个标签也没有时，交叉熵的均值是 `nan`。

# %%
def mean_loss(model, batch):
    photo, label = batch
    return F.cross_entropy(model(photo), label)


gradkit.testing.judged("zero_loss", build=build, loss_of=mean_loss)
