# %% [markdown] lang="en"
# # 2. An adapter that will not learn
#
# A small net sorts messages into four tags. It was adapted with LoRA: the net itself (the base) is frozen, and beside two of its layers an adapter learns, a pair of small matrices `lora_A` and `lora_B`. The first run saved its adapter. Today's run is to go on from there.
#
# **Your goal:** the saved adapter goes on learning, with the values that it was saved with. The base stays frozen.

# %% [markdown] lang="zh" of="d17f0088"
# # 2. 不肯学习的适配器
#
# 一个小网络把消息归到四个标签。它用 LoRA 做过微调：网络本身（基座）冻结，在其中两层旁边各有一个适配器在学习，也就是一对小矩阵 `lora_A` 和 `lora_B`。第一次训练保存了适配器，今天要接着训练。
#
# **目标**：保存下来的适配器从保存时的数值继续学习，基座保持冻结。

# %% tags=["given"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "given", "locked": true, "schema_version": 3, "solution": false, "task": false}
import tempfile

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

import gradkit
import gradkit.testing


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(10, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, words):
        return self.head(torch.tanh(self.encoder(words)))


def make_batch():
    tag = torch.randint(0, 4, (32,))
    return torch.randn(32, 10) + tag[:, None], tag


def make_base():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return Tagger()


def first_run(folder):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        model = get_peft_model(make_base(), LoraConfig(r=4, target_modules=["encoder", "head"]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            words, tag = make_batch()
            optimizer.zero_grad()
            F.cross_entropy(model(words), tag).backward()
            optimizer.step()
    model.save_pretrained(folder)


checkpoint = tempfile.TemporaryDirectory()
first_run(checkpoint.name)

# %% [markdown] lang="en"
# ## Your program

# %% [markdown] lang="zh" of="cbab5094"
# ## 你的程序

# %% tags=["program"] nbgrader={"cell_type": "code", "grade": false, "grade_id": "program", "locked": false, "schema_version": 3, "solution": true, "task": false}
def build():
    model = PeftModel.from_pretrained(make_base(), checkpoint.name)
    model.train()
    return model


def loss_of(model, batch):
    words, tag = batch
    return F.cross_entropy(model(words), tag)

# %% [markdown] lang="en"
# ## Predict
#
# Read your program and run its cell, which only defines it. What will happen when it trains? Run the next cell and click on an answer. It is kept, and you will see it beside what happens.

# %% [markdown] lang="zh" of="876f7c61"
# ## 先预测
#
# 读一读你的程序，运行那个单元格（它只做定义）。训练起来会怎样？运行下一个单元格，点击一个答案。答案会记下来，稍后和结果放在一起看。

# %% tags=["prediction"]
gradkit.testing.predict("sleeping_adapter")

# %% [markdown] lang="en"
# ## See it fail

# %% [markdown] lang="zh" of="4a9b3643"
# ## 看它怎样失败

# %% tags=["raises-exception"]
model, batch = build(), make_batch()
loss = loss_of(model, batch)
loss.backward()

# %% [markdown] lang="en"
# `model.train()` is there, and the model says that it is in training mode. What do the weights say?

# %% [markdown] lang="zh" of="34547d11"
# `model.train()` 已经写了，模型也说自己处于训练模式。那么权重怎么说？

# %%
print(model.training)
for name, parameter in model.named_parameters():
    print(f"{name:50} {parameter.requires_grad}")

# %% [markdown] lang="en"
# Your prediction, and what happened:

# %% [markdown] lang="zh" of="d1518d9a"
# 你的预测，和实际的结果：

# %% tags=["prediction"]
gradkit.testing.happened("sleeping_adapter", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Your turn
#
# Change your program and run its cell. Then run the cells of *See it fail* again. If you get stuck, open the hints, one at a time.
#
# <details><summary>Hint 1: where to look</summary>
#
# `train()` and `eval()` choose how layers such as dropout behave. Whether a weight may learn is another switch: its `requires_grad`. Look at the list above: which weights may learn? Which should?
#
# </details>
#
# <details><summary>Hint 2: what to keep in mind</summary>
#
# Whoever loads an adapter may want to use it, or to train it. peft has to assume one of the two. `help(PeftModel.from_pretrained)` says which, and how to ask for the other. The base has to stay as it is.
#
# </details>
#
# <details><summary>Hint 3: nearly there</summary>
#
# There are two ways. Ask for a trainable adapter when it is loaded: among the arguments of `from_pretrained` there is one for it. Or switch `requires_grad` on afterwards, but only for the weights that have `lora_` in their name.
#
# </details>

# %% [markdown] lang="zh" of="1839ec7f"
# ## 轮到你了
#
# 修改你的程序，运行那个单元格，再把“看它怎样失败”里的单元格重新运行一遍。卡住了就展开提示，一次只看一条。
#
# <details><summary>提示一：往哪里看</summary>
#
# `train()` 和 `eval()` 决定的是 dropout 之类的层怎样工作。权重能不能学习是另一个开关：它的 `requires_grad`。看看上面的列表：哪些权重可以学习？哪些应该学习？
#
# </details>
#
# <details><summary>提示二：要注意什么</summary>
#
# 加载适配器，有人为了使用，有人为了训练，peft 只能假定其中一种。是哪一种、怎样要求另一种，`help(PeftModel.from_pretrained)` 里都有。基座必须保持原样。
#
# </details>
#
# <details><summary>提示三：只差一步</summary>
#
# 有两种办法：加载时就要求适配器可训练，`from_pretrained` 有一个参数管这件事；或者加载之后再打开 `requires_grad`，但只对名字里带 `lora_` 的权重这样做。
#
# </details>

# %% [markdown] lang="en"
# ## Check

# %% [markdown] lang="zh" of="dd464e41"
# ## 检查

# %% tags=["check", "raises-exception"] nbgrader={"cell_type": "code", "grade": true, "grade_id": "check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
gradkit.testing.check("sleeping_adapter", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# ## Ask gradkit
#
# Write down what you think `model.train()` does. Then:

# %% [markdown] lang="zh" of="aab1897f"
# ## 问问 gradkit
#
# 先写下你认为 `model.train()` 做了什么，然后运行：

# %%
model, batch = build(), make_batch()
gradkit.diagnose(lambda: loss_of(model, batch), model=model)
