# %% [markdown] lang="en"
# # 3. The NumPy round trip
#
# A net tells four kinds of birds apart by their song. Twelve filters measure the energy in a recording; the program takes the logarithm of the energies and centres it, and a classifier decides.
#
# **Your goal:** filters and classifier both learn, and the log energies are exactly the same numbers as before.

# %% [markdown] lang="zh" of="84799f09"
# # 3. 绕道 NumPy
#
# 一个网络根据鸣声分辨四种鸟。十二个滤波器测量录音的能量，取对数得到对数能量，再减去均值，最后由分类器判断。
#
# **目标**：滤波器和分类器都在学习，并且对数能量的数值和原来完全一样。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
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

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
class BirdNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Linear(40, 12, bias=False)
        self.head = nn.Linear(12, 4)

    def forward(self, song):
        energy = self.filters(song).square()
        return self.head(self.levels(energy))

    def levels(self, energy):
        level = np.log1p(energy.detach().numpy())
        level = level - level.mean(axis=1, keepdims=True)
        return torch.from_numpy(level)


def build():
    return BirdNet()


def loss_of(model, batch):
    song, bird = batch
    return F.cross_entropy(model(song), bird)

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("numpy_roundtrip")

# %% [markdown] lang="en"
# ## See it fail
#
# The result is poor, and nobody knows why. Train for fifty steps and measure how far each weight moves:

# %% [markdown] lang="zh" of="ef9954bd"
# ## 看它怎样失败
#
# 结果很差，谁也说不出为什么。训练五十步，量一量每个权重移动了多远：

# %%
def moved(build, loss_of, steps=50):
    torch.manual_seed(0)
    model = build()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, make_batch()).backward()
        optimizer.step()
    return {name: round((p - start[name]).norm().item(), 3) for name, p in model.named_parameters()}


moved(build, loss_of)

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("numpy_roundtrip", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Your turn
#
# Change your program and run its cell. Then run the cells of *See it fail* again. If you get stuck, open the hints, one at a time.
#
# Almost every function that NumPy has, torch has too, often under the same name. For a sum or a mean along an axis, write `dim=` instead of `axis=`, and `keepdim=` instead of `keepdims=`.
#
# <details><summary>Hint 1: where to look</summary>
#
# A NumPy array holds numbers and no history. `from_numpy` makes a tensor of it that comes from nowhere. Which values of this program live in NumPy for a while?
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# If you only take `detach()` away, `numpy()` raises, and rightly so. Nor is it enough to bring only the logarithm over to torch: the mean lies on the way as well, and the gradient goes through both.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# All three lines of `levels` can be written with methods and functions of torch; the last of them is then not needed at all. Compare the numbers of the old and the new `levels` on the same energy with `torch.allclose`.
#
# </details>

# %% [markdown] lang="zh" of="7707fb44"
# ## 轮到你了
#
# 修改你的程序，运行那个单元格，再把“看它怎样失败”里的单元格重新运行一遍。卡住了就展开提示，一次只看一条。
#
# NumPy 有的函数，torch 几乎都有，名字也往往相同。沿某个轴求和或求均值时，`axis=` 换成 `dim=`，`keepdims=` 换成 `keepdim=`。
#
# <details><summary>提示一：往哪里看</summary>
#
# NumPy 数组只有数值，没有计算历史。`from_numpy` 由它做出的张量也没有计算历史。这个程序里，哪些值曾经在 NumPy 里待过？
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 只去掉 `detach()`，`numpy()` 就会报错，而且报得有理。只把对数搬到 torch 也不够：均值也在这段路上，梯度两处都要经过。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# `levels` 的三行都可以改用 torch 的方法和函数，这样最后一行就用不着了。用 `torch.allclose` 在同一组能量上比较新旧两个 `levels` 的数值。
#
# </details>

# %% [markdown] lang="en"
# ## Check

# %% [markdown] lang="zh" of="dd464e41"
# ## 检查

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("numpy_roundtrip", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Ask gradkit
#
# The loss has a history: the classifier is in it. So PyTorch has nothing to complain about. Ask gradkit, and look in the picture at where the history ends:

# %% [markdown] lang="zh" of="2f1e0775"
# ## 问问 gradkit
#
# 损失有计算历史，因为分类器在里面，所以 PyTorch 不会报错。问问 gradkit，在图里看看历史断在哪里：

# %%
model, batch = build(), make_batch()
gradkit.diagnose(lambda: loss_of(model, batch), model=model)
