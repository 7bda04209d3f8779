# %% [markdown] lang="en"
# # 7. Weights that do not move
#
# A net was trained to tell two kinds of weather apart from measurements, and gets a new head for four. The loss has a history, `backward()` runs, every parameter gets a gradient. And yet, after a hundred steps, every weight is exactly where it was.
#
# **Your goal:** `train_step` makes one step of gradient descent with every parameter: each moves against its gradient, by the learning rate times the gradient of *this* batch. The optimizer stays what it is: SGD with a learning rate of 0.1.

# %% [markdown] lang="zh" of="c41d911e"
# # 7. 纹丝不动的权重
#
# 一个网络原来根据测量值区分两种天气，现在换上新的分类头来区分四种。损失有计算历史，`backward()` 能运行，每个参数都有梯度。可是一百步之后，所有权重都原地未动。
#
# **目标**：`train_step` 让每个参数走一步梯度下降：逆着梯度移动，步长是学习率乘以*这个*批次的梯度。优化器不变：SGD，学习率 0.1。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch():
    weather = torch.randint(0, 4, (32,))
    measured = torch.randn(32, 7)
    measured[:, :4] += 2 * F.one_hot(weather, 4)
    return measured, weather

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
class WeatherNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(7, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, measured):
        return self.head(torch.tanh(self.encoder(measured)))


def build():
    model = WeatherNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.head = nn.Linear(16, 4)
    return model, optimizer


def loss_of(model, batch):
    measured, weather = batch
    return F.cross_entropy(model(measured), weather)


def train_step(model, optimizer, batch):
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("still_weights")

# %% [markdown] lang="en"
# ## See it fail

# %% [markdown] lang="zh" of="4a9b3643"
# ## 看它怎样失败

# %%
def moved(build, train_step, steps):
    model, optimizer = build()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses = [train_step(model, optimizer, make_batch()) for _ in range(steps)]
    print(f"loss: {losses[0]:.3f} ... {losses[-1]:.3f}")
    return {name: round((p - start[name]).norm().item(), 4) for name, p in model.named_parameters()}


moved(build, train_step, 100)

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("still_weights", build=build, loss_of=loss_of, train_step=train_step)

# %% [markdown] lang="en"
# ## Your turn
#
# Change your program and run its cell. Then run the table of *See it fail* again, for 1 step and for 100. If you get stuck, open the hints, one at a time.
#
# <details><summary>Hint 1: where to look</summary>
#
# An optimizer holds a list of tensors, made at the moment when it was built. It does not hear of what happens to the model afterwards. And: which tensors does `optimizer.zero_grad()` empty, and what does `optimizer.step()` read?
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# There are two faults. As long as the second is there, fixing the first moves nothing. Leaving `zero_grad()` out altogether is no way out: `backward()` *adds* to what is there, so that from the second step on the old gradients count again.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# First finish the model, then build the optimizer from its parameters. And the order of a step: empty the gradients, compute the loss, go backward, then step. What stands between `backward()` and `step()` must not throw away what `backward()` has just computed.
#
# </details>

# %% [markdown] lang="zh" of="c41d1fe2"
# ## 轮到你了
#
# 修改你的程序，运行那个单元格，再重新运行“看它怎样失败”里的那张表，1 步和 100 步都试一试。卡住了就展开提示，一次只看一条。
#
# <details><summary>提示一：往哪里看</summary>
#
# 优化器保存着一份张量列表，在创建的那一刻就定下来了。之后模型有什么变化，它并不知道。另外想一想：`optimizer.zero_grad()` 清空的是哪些张量，`optimizer.step()` 读取的又是什么？
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 错误有两处。只要第二处还在，修好第一处，权重也不会动。干脆去掉 `zero_grad()` 也不是办法：`backward()` 会把梯度*累加*到原有的上面，从第二步起，旧的梯度就会重复计算。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# 先把模型改好，再用它的参数创建优化器。一步之内的顺序是：清空梯度，计算损失，反向传播，然后更新。`backward()` 和 `step()` 之间，不能把 `backward()` 刚算出来的东西扔掉。
#
# </details>

# %% [markdown] lang="en"
# ## Check

# %% [markdown] lang="zh" of="dd464e41"
# ## 检查

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("still_weights", build=build, loss_of=loss_of, train_step=train_step)

# %% [markdown] lang="en"
# ## Ask gradkit
#
# To have gradkit look at the optimizer as well, hand it over. gradkit looks at one forward and one backward pass; it does not see in which order *your* step then calls the optimizer. For that, go by the table of what has moved.

# %% [markdown] lang="zh" of="bdf3c76e"
# ## 问问 gradkit
#
# 想让 gradkit 把优化器也一起检查，就把它交给 gradkit。它看的是一次前向和一次反向；*你的*训练步接下来按什么顺序调用优化器，它看不到，这要靠上面那张移动量的表来判断。

# %%
model, optimizer = build()
batch = make_batch()
gradkit.diagnose(lambda: loss_of(model, batch), model=model, optimizer=optimizer)
