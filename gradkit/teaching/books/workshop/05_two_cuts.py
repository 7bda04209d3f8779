# %% [markdown] lang="en"
# # 5. Two cuts, one behind the other
#
# A reader for handwritten notes: an encoder turns a page into features, a mixer combines them, a head names one of five writers. Somebody was not content with how it learns and has tried three times: each time one line was changed, nothing got better, and the line was put back.
#
# **Your goal:** encoder, mixer and head learn, and the loss is the same as before.

# %% [markdown] lang="zh" of="9f2cdc5b"
# # 5. 一前一后两处切断
#
# 一个识别手写笔记的程序：编码器把页面变成特征，混合层把特征组合起来，分类头判断出自五位作者中的哪一位。有人对训练结果不满意，已经试过三次：每次改一行，没有好转，又改了回去。
#
# **目标**：编码器、混合层和分类头都在学习，损失和原来一样。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
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

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
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
        words = words.data
        return words - words.mean(dim=1, keepdim=True)

    def rescale(self, mixed):
        with torch.no_grad():
            length = mixed.norm(dim=1, keepdim=True)
            return mixed / length


def build():
    return Reader()


def loss_of(model, batch):
    page, writer = batch
    return F.cross_entropy(model(page), writer)

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("two_cuts")

# %% [markdown] lang="en"
# ## See it fail
#
# A parameter that gets a gradient has a `.grad`:

# %% [markdown] lang="zh" of="b51b8d47"
# ## 看它怎样失败
#
# 拿到梯度的参数有 `.grad`：

# %%
model, batch = build(), make_batch()
loss_of(model, batch).backward()
{name: p.grad is not None for name, p in model.named_parameters()}

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("two_cuts", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Your turn
#
# Change one thing at a time, run the cell of your program, then the cell with the table above. Which of your changes are right, although the table stays the same? If you get stuck, open the hints, one at a time.
#
# <details><summary>Hint 1: where to look</summary>
#
# The gradient comes from the loss and goes back. A cut near the loss hides every cut that lies further back: as long as it is there, fixing the other one changes nothing that you could measure. That is why someone who changes one line, sees nothing and puts it back finds neither.
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# Not everything that looks like a cut is one. What is detached for a log and goes nowhere else costs no parameter its gradient; gradkit's report lists it as harmless. Of the others, fix both before you measure.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# `centre` works on the bare numbers of its argument, and `rescale` works unrecorded: both can do the same on the tensors themselves. In `rescale` the length depends on the weights as well: if only the division is taken out of the block, a gradient arrives, and it is not the right one.
#
# </details>

# %% [markdown] lang="zh" of="dbf7dbcb"
# ## 轮到你了
#
# 每次只改一处，运行程序那个单元格，再重新运行上面列出结果的单元格。哪些改动其实是对的，结果却没有变化？卡住了就展开提示，一次只看一条。
#
# <details><summary>提示一：往哪里看</summary>
#
# 梯度从损失出发往回走。靠近损失的切断处会遮住更靠前的切断处：只要它还在，修好另一处也测不出任何变化。改一行、没起色就改回去，两处都找不到，原因就在这里。
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 看着像切断处的，不一定真是。只为写日志而 detach、不再流向别处的值，不会让谁丢掉梯度，gradkit 的报告会把它列为无害。其余的两处，都修好之后再测量。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# `centre` 只取了传入张量的数值，`rescale` 的运算没有记录：两者都可以直接在张量上做同样的事。`rescale` 里的长度也取决于权重：如果只把除法移出这个块，梯度是有了，却不正确。
#
# </details>

# %% [markdown] lang="en"
# ## Check

# %% [markdown] lang="zh" of="dd464e41"
# ## 检查

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("two_cuts", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Ask gradkit

# %% [markdown] lang="zh" of="461127a8"
# ## 问问 gradkit

# %%
model, batch = build(), make_batch()
gradkit.diagnose(lambda: loss_of(model, batch), model=model)
