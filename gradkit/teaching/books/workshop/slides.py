# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# # Who does not learn?
#
# Ninety minutes on gradients that get lost

# %% [markdown] lang="zh" of="5bbb17c6"
# # 谁没在学习？
#
# 九十分钟，说说丢失的梯度

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## What you can do afterwards
#
# - say what `requires_grad`, `grad_fn` and `.grad` tell you, and what they do not
# - find the line at which a gradient is lost, also where nothing raises
# - tell a fix from something that only silences the error
# - prove that a program learns: right loss, right gradient, weights that move

# %% [markdown] lang="zh" of="d6d7f3a9"
# ## 学完以后你能做到
#
# - 说清 `requires_grad`、`grad_fn` 和 `.grad` 各自说明了什么，没说明什么
# - 找到梯度丢失的那一行，不报错的情形也能找到
# - 分清真正的修复和只是让报错消失的做法
# - 证明一个程序在学习：损失正确，梯度正确，权重在动

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## Every operation leaves a note
#
# Going forward, autograd writes down what was computed from what. Going backward, it follows these notes to the weights.

# %% [markdown] lang="zh" of="1b9da692"
# ## 每个运算都留下一条记录
#
# 前向传播时，自动求导记下每个值是由什么算出来的；反向传播时，它沿着这些记录一直走到权重。

# %% slideshow={"slide_type": "fragment"}
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(4, 8), nn.Linear(8, 1)
x = torch.randn(3, 4)

loss = head(torch.tanh(encoder(x))).mean()
loss.grad_fn

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## Prediction: who gets a gradient?
#
# ```python
# hidden = torch.tanh(encoder(x)).detach()
# loss = head(hidden).mean()
# loss.backward()
# ```
#
# Both · encoder only · head only · it raises

# %% [markdown] lang="zh" of="baca4c40"
# ## 先猜一猜：谁能拿到梯度？
#
# ```python
# hidden = torch.tanh(encoder(x)).detach()
# loss = head(hidden).mean()
# loss.backward()
# ```
#
# 两者都能 · 只有 encoder · 只有 head · 会报错

# %% slideshow={"slide_type": "fragment"}
hidden = torch.tanh(encoder(x)).detach()
loss = head(hidden).mean()
loss.backward()

both = nn.ModuleDict({"encoder": encoder, "head": head})
{name: p.grad is not None for name, p in both.named_parameters()}

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## It raises only if nothing is left
#
# PyTorch complains when the loss has no history *at all*. As soon as one layer takes part, it is content, and the other layers get no gradient. Most lost gradients are silent.

# %% [markdown] lang="zh" of="94835332"
# ## 什么都不剩时才会报错
#
# 只有损失*完全*没有历史，PyTorch 才会报错。只要有一层参与，它就满意了，其余的层拿不到梯度也不会报错。梯度丢失，大多悄无声息。

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## A fix that fixes nothing

# %% [markdown] lang="zh" of="3a1023c2"
# ## 什么也没修好的“修复”

# %% slideshow={"slide_type": "fragment"}
with torch.no_grad():
    loss = head(torch.tanh(encoder(x))).mean()

loss.requires_grad_()
encoder.zero_grad(), head.zero_grad()
loss.backward()
loss.is_leaf, encoder.weight.grad, head.weight.grad

# %% [markdown] lang="en" slideshow={"slide_type": "subslide"}
# The error is gone, and nothing learns. Reporting "fixed" after this makes it worse: now nothing warns anybody.

# %% [markdown] lang="zh" of="fcdb7250"
# 报错没了，却什么也学不到。这时候宣布“修好了”，反而更糟：从此再也没有人会得到提醒。

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## Let gradkit name it

# %% [markdown] lang="zh" of="a6ab3dce"
# ## 让 gradkit 指出来

# %% slideshow={"slide_type": "fragment"}
import gradkit

model = nn.Sequential(encoder, nn.Tanh(), head)
report = gradkit.diagnose(lambda: model[2](model[:2](x).detach()).mean(), model=model)
print(report.verdict())

# %% [markdown] lang="en" slideshow={"slide_type": "subslide"}
# ## Where the gradient stops

# %% [markdown] lang="zh" of="21945793"
# ## 梯度断在哪里

# %% slideshow={"slide_type": "-"}
from IPython.display import SVG

SVG(report.svg("map"))

# %% [markdown] lang="en" slideshow={"slide_type": "subslide"}
# ## The whole report

# %% [markdown] lang="zh" of="78e908ba"
# ## 完整的报告

# %% slideshow={"slide_type": "-"}
report

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## Three measurements
#
# 1. `loss.requires_grad`: is there a history at all?
# 2. Which parameters have a `.grad` after one `backward()`?
# 3. Which parameters have moved after one step?
#
# Each of them finds faults that the ones before do not see.

# %% [markdown] lang="zh" of="8d285476"
# ## 三次测量
#
# 1. `loss.requires_grad`：到底有没有历史？
# 2. 一次 `backward()` 之后，谁有 `.grad`？
# 3. 走一步之后，谁动了？
#
# 每一次都能发现前面看不到的错误。

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## Your turn
#
# Open `01_forgotten_no_grad.ipynb`. Work in pairs: one types, one predicts.
#
# The check at the end runs *your* functions on fresh weights. It wants the right loss, the right gradients, and everything in place that was there before.

# %% [markdown] lang="zh" of="0d812aed"
# ## 轮到你了
#
# 打开 `01_forgotten_no_grad.ipynb`。两人一组：一人敲代码，一人先预测。
#
# 最后的检查会用新的权重运行*你的*函数。它要求损失正确、梯度正确，而且原来有的一样也不能少。

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## What is not the cause
#
# - `eval()` switches no gradient off, `train()` switches none on
# - a frozen layer in the middle lets the gradient through
# - `no_grad` round something frozen takes no gradient from the layers after it (a layer before it does lose its own)
# - a constant joined to a value takes no gradient from it

# %% [markdown] lang="zh" of="17bbf16b"
# ## 这些不是原因
#
# - `eval()` 不会关掉梯度，`train()` 也不会打开
# - 中间有冻结的层，梯度照样穿过去
# - 把冻结的部分放进 `no_grad`，它后面的层照样有梯度（前面的层才会丢掉梯度）
# - 旁边拼上一个常量，不会夺走谁的梯度

# %% slideshow={"slide_type": "fragment"}
encoder.eval(), head.requires_grad_(False), encoder.zero_grad()
pad = torch.zeros(2, 1)
loss = torch.cat([pad, head(torch.tanh(encoder(x)))]).mean()
loss.backward()
encoder.weight.grad.norm() > 0

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## To take home
#
# A loss that falls proves that *something* learns. Ask who.

# %% [markdown] lang="zh" of="e19be308"
# ## 记住一句话
#
# 损失在下降，只能证明*有东西*在学习。要问一句：是谁？
