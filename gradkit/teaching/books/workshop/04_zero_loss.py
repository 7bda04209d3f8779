# %% [markdown] lang="en"
# # 4. A zero loss
#
# A net tells three crops apart on photographs of fields. Only some of the fields carry a label; the others have `-100` in its place and do not count. Now and then a whole batch has no label at all. Then there is nothing to learn, and the program returns a loss of zero.
#
# The loop around it belongs to a library: it calls `backward()` on every loss, and no batch can be skipped.
#
# **Your goal:** on a batch with labels the loss stays as it is. On a batch without any label it is zero, `backward()` runs, and every gradient is zero.

# %% [markdown] lang="zh" of="545321e3"
# # 4. 等于零的损失
#
# 一个网络从农田照片识别三种作物。只有部分农田有标签，其余的用 `-100` 占位，不计入损失。偶尔整个批次一个标签也没有：这时没有可学的内容，程序返回零损失。
#
# 外面的训练循环属于一个库：它对每个损失都调用 `backward()`，不能跳过任何批次。
#
# **目标**：有标签的批次，损失和原来一样；完全没有标签的批次，损失是零，`backward()` 能运行，所有梯度都是零。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
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

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
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
    known = label != -100
    if not known.any():
        return torch.tensor(0.0)
    scores = model(photo)
    return F.cross_entropy(scores[known], label[known])

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("zero_loss")

# %% [markdown] lang="en"
# ## See it fail

# %% [markdown] lang="zh" of="4a9b3643"
# ## 看它怎样失败

# %% tags=["raises-exception"]
model = build()
loss_of(model, make_batch()).backward()
loss_of(model, make_unlabelled_batch()).backward()

# %% [markdown] lang="en"
# Both losses are numbers; compare where they come from:

# %% [markdown] lang="zh" of="11c3fe10"
# 两个损失都是数，比较一下它们的计算历史：

# %%
loss_of(model, make_batch()), loss_of(model, make_unlabelled_batch())

# %% [markdown] lang="en"
# PyTorch's cross-entropy has its own way with labels that do not count: `ignore_index=-100` is its default. Look at what it makes of a batch without labels, first as a mean, then as a sum:

# %% [markdown] lang="zh" of="969d28fd"
# 对不计入损失的标签，PyTorch 的交叉熵自有处理办法：`ignore_index` 默认就是 `-100`。看看它怎样处理没有标签的批次，先取均值，再求和：

# %%
photo, label = make_unlabelled_batch()
scores = model(photo)
F.cross_entropy(scores, label), F.cross_entropy(scores, label, reduction="sum")

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("zero_loss", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Your turn
#
# Change your program and run its cell. Then run the cells of *See it fail* again. If you get stuck, open the hints, one at a time.
#
# <details><summary>Hint 1: where to look</summary>
#
# A zero that you write down is a constant: it depends on no weight. A zero that is *computed* from the scores is the same number, and has a history.
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# The mean over no labels is zero divided by zero: a loss of `nan`, not of zero. And a constant with `requires_grad=True` stays a constant: `backward()` runs, and reaches nothing.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# A mean is a sum divided by a count. Take the sum that you saw above; it is zero where nothing counts, and has a history. Then make sure that the count you divide by is never less than one (`clamp`). With that, the question `if not known.any()` is not needed any more.
#
# </details>

# %% [markdown] lang="zh" of="40606756"
# ## 轮到你了
#
# 修改你的程序，运行那个单元格，再把“看它怎样失败”里的单元格重新运行一遍。卡住了就展开提示，一次只看一条。
#
# <details><summary>提示一：往哪里看</summary>
#
# 直接写出来的零是常量，与任何权重无关。由模型的输出*计算*出来的零，数值一样，却有历史。
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 一个标签也没有时，均值是零除以零，损失就成了 `nan`，而不是零。另外，常量加上 `requires_grad=True` 还是常量：`backward()` 能运行，却到不了任何地方。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# 均值就是总和除以个数。用上面看到的那个总和：没有标签计入时它是零，而且有历史。再保证除数不小于一（`clamp`），`if not known.any()` 这个判断就不再需要了。
#
# </details>

# %% [markdown] lang="en"
# ## Check
#
# The check runs your functions on both kinds of batches.

# %% [markdown] lang="zh" of="2349e5df"
# ## 检查
#
# 检查会在两种批次上运行你的函数。

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("zero_loss", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Ask gradkit
#
# Of the program as it was, the report says: return a loss that is computed from the model's output, or skip the step. To skip is not open here: the loop cannot. A zero that is computed from the scores passes the check, but relies on finite photos: zero times infinity is `nan`, so that one infinite pixel makes gradients `nan`. The same is true of the sum in hint 3. A zero computed from the parameters alone does not look at the photos at all.

# %% [markdown] lang="zh" of="18e5419a"
# ## 问问 gradkit
#
# 对原来的程序，报告会说：返回由模型输出算出的损失，或者跳过这一步。跳过在这里行不通：循环不能跳过。由分数算出的零能通过检查，但要求照片里的数都是有限的：零乘以无穷大是 `nan`，只要有一个像素是无穷大，梯度就会变成 `nan`。提示三里的求和也一样。只由参数算出的零则完全不看照片。

# %%
model, batch = build(), make_unlabelled_batch()
gradkit.diagnose(lambda: loss_of(model, batch), model=model)
