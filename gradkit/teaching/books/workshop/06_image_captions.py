# %% [markdown] lang="en"
# # 6. Captions for images
#
# A net that completes captions gets an image and a few features of the text so far:
#
# ```text
# image --> eye (frozen) --> projector --+
#                                        +--> joined --> decoder --> next word
# text ----------------------------------+
# ```
#
# The eye is a large trained model and stays frozen. The projector should learn to turn what the eye sees into something that the decoder can use.
#
# **Your goal:** the program computes what the drawing says, projector and decoder learn, and the eye stays frozen.

# %% [markdown] lang="zh" of="5710d6dd"
# # 6. 给图片写说明
#
# 一个补全图片说明的网络，输入是一张图片和已有文字的几项特征：
#
# ```text
# image --> eye（冻结） --> projector --+
#                                       +--> 拼接 --> decoder --> 下一个词
# text ---------------------------------+
# ```
#
# eye 是训练好的大模型，保持冻结。projector 要学会把 eye 看到的内容变成 decoder 用得上的东西。
#
# **目标**：程序按这张图来计算，projector 和 decoder 都在学习，eye 保持冻结。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
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

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
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
        joined = torch.cat([self.see(image), text], dim=1)
        return self.decoder(joined)


def build():
    return Captioner()


def loss_of(model, batch):
    image, text, word = batch
    return F.cross_entropy(model(image, text), word)

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("image_captions")

# %% [markdown] lang="en"
# ## See it fail
#
# Each parameter: whether it may learn (`requires_grad`), and whether it got a gradient.

# %% [markdown] lang="zh" of="fc287421"
# ## 看它怎样失败
#
# 对每个参数：是否允许学习（`requires_grad`），以及是否拿到了梯度。

# %%
model, batch = build(), make_batch()
loss_of(model, batch).backward()
{name: (p.requires_grad, p.grad is not None) for name, p in model.named_parameters()}

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("image_captions", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Your turn
#
# Change your program and run its cell. Then run the cells of *See it fail* again. If you get stuck, open the hints, one at a time.
#
# <details><summary>Hint 1: where to look</summary>
#
# A layer made in `__init__` is there, its parameters count, and it is saved. Whether it takes part is decided in `forward`. Follow the way of the image through `forward` with a finger, and compare with the drawing.
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# The `no_grad` block does no harm: nothing that should learn lies before it or in it. And it is no use to call the projector off to the side, or to add its result times zero: the gradient would be missing, or zero.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# Eye and projector have the same width, so nothing complains when one of the two is left out. The program already has a method that does what the drawing says for the image; look for who calls it.
#
# </details>

# %% [markdown] lang="zh" of="1834a497"
# ## 轮到你了
#
# 修改你的程序，运行那个单元格，再把“看它怎样失败”里的单元格重新运行一遍。卡住了就展开提示，一次只看一条。
#
# <details><summary>提示一：往哪里看</summary>
#
# 写在 `__init__` 里的层确实存在，算在参数里，也会保存下来。它是否参与计算，由 `forward` 决定。用手指顺着图片在 `forward` 里走的路走一遍，和上面的图对照。
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 这个 `no_grad` 块没有害处：它里面和它之前都没有应当学习的东西。把 projector 另外调用一下、结果不用，或者把它的结果乘以零再加上去，都没有用：梯度要么没有，要么是零。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# eye 和 projector 的输出宽度相同，漏掉其中一个，也不会报错。对图片该做的事，程序里已经有一个方法和图上画的一样，找找看谁在调用它。
#
# </details>

# %% [markdown] lang="en"
# ## Check

# %% [markdown] lang="zh" of="dd464e41"
# ## 检查

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("image_captions", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Ask gradkit
#
# Say first what you think of the `no_grad` block in `see`. Then ask:

# %% [markdown] lang="zh" of="ec5e1705"
# ## 问问 gradkit
#
# 先说说你怎么看 `see` 里的 `no_grad` 块，然后再问：

# %%
model, batch = build(), make_batch()
gradkit.diagnose(lambda: loss_of(model, batch), model=model)
