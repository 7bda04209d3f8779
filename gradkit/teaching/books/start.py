# %% [markdown] lang="en"
# # Which line of my code lost the gradient?
#
# `RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn`: you know this one, or there is a part of your model that never learns. The panel below stands open after `gradkit lab`; elsewhere, run its cell (Shift + Enter). Choose an example, a file of yours or what a notebook has made, and press **Diagnose**: you get the line to change, the proof, a picture of where the gradient stops, and a guide to the fix. Your model is left as it was.

# %% [markdown] lang="zh" of="6c2451e2"
# # 梯度丢在了我的哪一行代码？
#
# 遇到过 `RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn`，或者模型有一部分总也学不到东西？用 `gradkit lab` 打开时，下面的面板已经显示；其他情况请运行它的单元格（Shift + Enter）。选一个示例、你的文件，或 notebook 里创建的对象，点 **开始诊断**：要改哪一行、凭什么这么说、梯度断在图上的哪里、怎样一步步改好，都会告诉你。模型会保持原样。

# %%
import gradkit

gradkit.panel()

# %% [markdown] lang="en"
# ## The same, typed
#
# A built-in example: a helper, two calls deep, detaches what a projection has computed. The result displays itself. gradkit speaks English and Chinese; `gradkit.language("zh")` switches.

# %% [markdown] lang="zh" of="c1dbb580"
# ## 也可以写成代码
#
# 一个内置示例：藏在两层调用里的辅助函数，对投影层的输出做了 detach。结果会自动显示。gradkit 会说中文和英文，可以用 `gradkit.language("en")` 切换。

# %%
from gradkit.teaching.examples import from_builtin

gradkit.diagnose(from_builtin("vision_memory_detached"))

# %% [markdown] lang="en"
# Your own model, with a batch and a loss: replace the ones below with yours. If you have a function that runs one forward pass and returns the loss, use `gradkit.diagnose(step, model=model)`.

# %% [markdown] lang="zh" of="15dfec2a"
# 把下面的模型、批次和损失函数换成自己的即可。如果手头的函数做一次前向传播并返回损失，就用 `gradkit.diagnose(step, model=model)`。

# %%
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        features = self.encoder(x).detach()
        return self.head(features)


model = Net()
batch = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
loss = nn.CrossEntropyLoss()

report = gradkit.diagnose(model, batch, loss=loss)
report

# %% [markdown] lang="en"
# A script reads the same from the report's attributes, `report.save("report.html")` saves it, and `gradkit.panel(model, batch, loss=loss)` opens the panel on these very objects.

# %% [markdown] lang="zh" of="a0d961b3"
# 同样的内容，脚本可以从报告的属性里读到；`report.save("report.html")` 把报告存下来；`gradkit.panel(model, batch, loss=loss)` 则直接用这几个对象打开面板。

# %%
first = report.findings[0]
first.cause, first.location.line, first.proof, first.parameters
