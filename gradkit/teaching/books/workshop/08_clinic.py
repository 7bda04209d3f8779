# %% [markdown] lang="en"
# # 8. The clinic
#
# A whole program, as it comes in: 150 lines, written by three people. From the vital signs and the notes taken at admission it tells how urgent a case is (one of three levels) and how many days it will take. It runs, it logs, and its loss falls. It has **three faults**. Each keeps a part of the model from learning, and no two are of the same kind.
#
# **Your goal:** every parameter gets the gradient that it should, and `train_step` moves every parameter. Loss, weights and settings stay as they are.
#
# This time no cell shows it fail: finding a way to see that something does not learn is part of the exercise. You have met all that you need in the exercises before.

# %% [markdown] lang="zh" of="fcbdf7a2"
# # 8. 综合诊室
#
# 这次是一个完整的程序，原样送来：150 行，出自三个人之手。它根据入院时的生命体征和病历记录判断病情有多紧急（共三级），并预计要住院几天。它能运行，会写日志，损失也在下降。程序里有**三处错误**，每一处都让模型的一部分学不到东西，而且三处各不相同。
#
# **目标**：每个参数都拿到应有的梯度，`train_step` 让每个参数都移动。损失、权重和各项设置保持不变。
#
# 这次没有现成的单元格演示它怎样失败：怎样看出有什么没在学习，也是练习的一部分。需要的方法，前面的练习里都见过。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import gradkit
import gradkit.testing


def make_batch(size=24):
    urgency = torch.randint(0, 3, (size,))
    vitals = torch.randn(size, 6, 5) + urgency[:, None, None]
    notes = torch.randint(0, 20, (size, 8)) + 10 * urgency[:, None]
    days = 1 + 3 * urgency + torch.rand(size)
    return vitals, notes, urgency, days

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
@dataclass(frozen=True)
class Settings:
    vitals: int = 5
    words: int = 40
    width: int = 16
    levels: int = 3
    rate: float = 0.02
    decay: float = 0.01
    share_of_days: float = 0.3


SETTINGS = Settings()


class VitalsEncoder(nn.Module):
    """[batch, time, vitals] to [batch, width]: an average over time, weighted by a gate."""

    def __init__(self, settings):
        super().__init__()
        self.embed = nn.Linear(settings.vitals, settings.width)
        self.gate = nn.Linear(settings.width, 1, bias=False)

    def forward(self, vitals):
        hidden = torch.tanh(self.embed(vitals))
        weight = torch.softmax(self.gate(hidden), dim=1)
        return (weight * hidden).sum(dim=1)


class NotesEncoder(nn.Module):
    """[batch, words] of word numbers to [batch, width]."""

    def __init__(self, settings):
        super().__init__()
        self.table = nn.Embedding(settings.words, settings.width)
        self.project = nn.Linear(settings.width, settings.width)

    @torch.no_grad()
    def pool(self, found):
        longest = found.norm(dim=2, keepdim=True).clamp(min=1.0)
        return (found / longest).mean(dim=1)

    def forward(self, notes):
        return torch.tanh(self.project(self.pool(self.table(notes))))


class Fusion(nn.Module):
    """Vitals and notes, each [batch, width], to one case, [batch, width]."""

    def __init__(self, settings):
        super().__init__()
        self.mix = nn.Linear(2 * settings.width, settings.width)
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, vitals, notes):
        mixed = self.mix(torch.cat([vitals, notes], dim=1))
        return torch.relu(self.norm(mixed))


class Triage(nn.Module):
    """Vitals and notes to the scores of each level, [batch, levels], and the days, [batch]."""

    def __init__(self, settings):
        super().__init__()
        self.vitals = VitalsEncoder(settings)
        self.notes = NotesEncoder(settings)
        self.fusion = Fusion(settings)
        self.urgency = nn.Linear(settings.width, settings.levels)
        self.days = nn.Linear(settings.width, 1)
        self.last_case = None

    def forward(self, vitals, notes):
        case = self.fusion(self.vitals(vitals), self.notes(notes))
        self.last_case = case.detach()
        return self.urgency(case), self.days(case).squeeze(1)


def urgency_loss(scores, urgency):
    return F.cross_entropy(scores, urgency)


def days_loss(expected, days):
    """The mean distance in days; one that is off by less than half a day counts nothing."""
    total = 0.0
    for one, true in zip(expected.tolist(), days.tolist()):
        distance = abs(one - true)
        total += max(distance - 0.5, 0.0)
    return total / len(days)


def loss_of(model, batch):
    vitals, notes, urgency, days = batch
    scores, expected = model(vitals, notes)
    first = urgency_loss(scores, urgency)
    second = days_loss(expected, days)
    return first + SETTINGS.share_of_days * second


def parameter_groups(model, settings):
    """Weight decay for matrices, none for biases."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    return [
        {"params": matrices, "weight_decay": settings.decay},
        {"params": biases, "weight_decay": 0.0},
    ]


def build(settings=SETTINGS):
    model = Triage(settings)
    optimizer = torch.optim.SGD(parameter_groups(model, settings), lr=settings.rate)
    return model, optimizer


def train_step(model, optimizer, batch):
    model.train()
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, batch):
    model.eval()
    vitals, notes, urgency, days = batch
    scores, expected = model(vitals, notes)
    right = (scores.argmax(dim=1) == urgency).float().mean().item()
    off = (expected - days).abs().mean().item()
    return round(right, 3), round(off, 3)


def run(steps=160, every=40):
    torch.manual_seed(0)
    model, optimizer = build()
    for step in range(1, steps + 1):
        loss = train_step(model, optimizer, make_batch())
        if step % every == 0:
            right, off = evaluate(model, make_batch(200))
            size = model.last_case.norm().item()
            print(f"step {step}: loss {loss:.3f}, right {right}, days off {off}, case {size:.1f}")

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("clinic")

# %% [markdown] lang="en"
# ## Let it run

# %% [markdown] lang="zh" of="534819ef"
# ## 运行一下

# %%
run()

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("clinic", build=build, loss_of=loss_of, train_step=train_step)

# %% [markdown] lang="en"
# ## Your examination
#
# Room for your own measurements, before and after your changes. Esc, then B, makes a new cell below.

# %% [markdown] lang="zh" of="b995dc1e"
# ## 由你来诊断
#
# 修改之前和之后，都可以在这里自己测量。先按 Esc 再按 B，就会在下面新建一个单元格。

# %%
model, optimizer = build()
batch = make_batch()

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Two questions find all three. Which parameters get no gradient after one `backward()`? And which get one, but do not move in one `train_step`? Exercises 5 and 7 have a table for each. `evaluate` and the copy for the log are innocent.
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# One fault hides operations from autograd, one leaves torch for plain numbers, one is a list that forgets somebody. To find that one, give gradkit the optimizer as well. When a tensor of numbers is treated one by one in a loop, ask which operation does it for all of them at once.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# Averaging the words is a part of what is learned. The days can be compared as tensors: `abs()`, `clamp(min=...)` and `mean()` do what the loop does. And not every vector in this model is called a bias: the scale of a `LayerNorm` is called `weight`, and has one dimension only. It should have no weight decay, like the other vectors.
#
# </details>

# %% [markdown] lang="zh" of="2fcddd67"
# <details><summary>提示一：往哪里看</summary>
#
# 两个问题就能找出全部三处：一次 `backward()` 之后，哪些参数没有梯度？一次 `train_step` 之后，哪些参数有梯度却没有动？练习 5 和练习 7 里各有一张这样的表。`evaluate` 和为日志留的那份副本是无辜的。
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 一处让运算躲开了自动求导，一处离开 torch 变成了普通的数，还有一处是一份有遗漏的名单。要找出最后这处，请把优化器也交给 gradkit。看到用循环逐个处理张量里的数，就想一想哪个运算能一次处理全部。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# 对词取平均也是要学习的一部分。天数可以作为张量来比较：`abs()`、`clamp(min=...)` 和 `mean()` 做的就是循环里的事。另外，这个模型里的向量并不都叫 bias：`LayerNorm` 的缩放因子叫 `weight`，只有一个维度。和其他向量一样，它不用权重衰减。
#
# </details>

# %% [markdown] lang="en"
# ## Check
#
# Write down your three suspects before you run it: the check says what it finds, on a program that nobody has touched as well.

# %% [markdown] lang="zh" of="436196ce"
# ## 检查
#
# 先把你怀疑的三处写下来再运行：检查会直接说出发现了什么，程序一处没改也一样。

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("clinic", build=build, loss_of=loss_of, train_step=train_step)
