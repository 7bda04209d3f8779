# %% [markdown] lang="en"
# # 1. A forgotten `no_grad`
#
# A net tells three kinds of trees apart by eight measurements of a leaf. Last week somebody just wanted to look at its scores. Now it is to be trained further.
#
# **Your goal:** `loss_of` returns the same loss as before, and `backward()` reaches every weight, in the encoder and in the head.
#
# Run the cells from top to bottom (Shift + Enter). The second code cell is yours: make your change there, and run it again.

# %% [markdown] lang="zh" of="c74f1d4e"
# # 1. 忘了拿掉的 `no_grad`
#
# 一个网络根据叶片的八项测量值区分三种树。上周有人只是想看看它给出的分数，现在要接着训练。
#
# **目标**：`loss_of` 返回的损失和原来一样，并且 `backward()` 能到达编码器和分类头的每一个权重。
#
# 从上到下依次运行单元格（Shift + Enter）。第二个代码单元格是你的：在那里修改，然后重新运行。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    kind = torch.randint(0, 3, (32,))
    leaf = torch.randn(32, 8) + kind[:, None]
    return leaf, kind

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
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
    with torch.no_grad():
        scores = model(leaf)
    return F.cross_entropy(scores, kind)

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("forgotten_no_grad")

# %% [markdown] lang="en"
# ## See it fail

# %% [markdown] lang="zh" of="4a9b3643"
# ## 看它怎样失败

# %% tags=["raises-exception"]
model, batch = build(), make_batch()
loss = loss_of(model, batch)
loss.backward()

# %% [markdown] lang="en"
# The loss is a number like any other. If autograd has a record of how it came about, `grad_fn` is the last entry of that record:

# %% [markdown] lang="zh" of="89d9efc0"
# 损失看上去是个普通的数。如果自动求导记下了它是怎么算出来的，`grad_fn` 就是这份记录的最后一项：

# %%
loss, loss.requires_grad, loss.grad_fn

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("forgotten_no_grad", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Your turn
#
# Change your program and run its cell. Then run the cells of *See it fail* again. If you get stuck, open the hints, one at a time.
#
# <details><summary>Hint 1: where to look</summary>
#
# Inside a block `with torch.no_grad():` operations give the same numbers, and none of them is recorded. Which operations of this program run in such a block?
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# Both layers should learn. It is not enough if only a part of the forward pass is recorded: the gradient goes back from the loss step by step, and comes only as far as the record does.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# Nothing in `loss_of` has any reason to run unrecorded. Whoever only wants to look at scores can put the block around the call of `loss_of`, outside.
#
# </details>

# %% [markdown] lang="zh" of="9171d64f"
# ## 轮到你了
#
# 修改你的程序，运行那个单元格，再把“看它怎样失败”里的单元格重新运行一遍。卡住了就展开提示，一次只看一条。
#
# <details><summary>提示一：往哪里看</summary>
#
# 在 `with torch.no_grad():` 块里，运算结果的数值不变，但一步也不会记录。这个程序里有哪些运算处在这样的块中？
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 两层都要学习。只记录前向传播的一部分是不够的：梯度从损失出发一步步往回走，记录到哪里，它就只能走到哪里。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# `loss_of` 里没有哪一步有理由不留记录。只想看分数的人，可以在外面调用 `loss_of` 的地方套上这个块。
#
# </details>

# %% [markdown] lang="en"
# ## Check
#
# The check runs your functions on fresh weights and a fresh batch. It looks at what they do, not at how they are written.

# %% [markdown] lang="zh" of="ff453d57"
# ## 检查
#
# 检查会用新的权重和新的批次运行你的函数。它看的是函数做了什么，不看代码怎么写。

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("forgotten_no_grad", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Ask gradkit
#
# Say first which line you suspect. Then let gradkit look. Where it can prove that a change works, it shows that change, finished; so this comes after the hints:

# %% [markdown] lang="zh" of="7750cfc1"
# ## 问问 gradkit
#
# 先说出你怀疑哪一行，再让 gradkit 看一看。凡是能证明有效的改法，它会直接给出来，所以放在提示之后：

# %%
model, batch = build(), make_batch()
gradkit.diagnose(lambda: loss_of(model, batch), model=model)
