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

# %% [markdown] lang="en" slideshow={"slide_type": "slide"} tags=["question"]
# ## Question 1: who gets a gradient?
#
# ```python
# hidden = torch.tanh(encoder(x)).detach()
# loss = head(hidden).mean()
# loss.backward()
# ```
#
# 1\. both · 2. only the encoder · 3. only the head · 4. it raises
#
# *Minute 3. Answer with one to four fingers, all at the same time.*

# %% [markdown] lang="zh" of="f68a7379"
# ## 问题一：谁能拿到梯度？
#
# ```python
# hidden = torch.tanh(encoder(x)).detach()
# loss = head(hidden).mean()
# loss.backward()
# ```
#
# 1\. 两者都能 · 2. 只有 encoder · 3. 只有 head · 4. 会报错
#
# *第 3 分钟。请同时伸出一到四根手指回答。*

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

# %% [markdown] lang="en" slideshow={"slide_type": "slide"} tags=["question"]
# ## Question 2: and with everything in the block?
#
# ```python
# with torch.no_grad():
#     loss = head(torch.tanh(encoder(x))).mean()
# loss.backward()
# ```
#
# 1\. both get a gradient · 2. only the head · 3. nothing, and nothing raises · 4. it raises
#
# *Minute 8. First by yourself, then tell your neighbour why, then fingers.*

# %% [markdown] lang="zh" of="1eb408c8"
# ## 问题二：全都放进这个块里呢？
#
# ```python
# with torch.no_grad():
#     loss = head(torch.tanh(encoder(x))).mean()
# loss.backward()
# ```
#
# 1\. 两者都拿到梯度 · 2. 只有 head · 3. 谁也拿不到，也不报错 · 4. 会报错
#
# *第 8 分钟。先自己想，再把理由讲给同桌听，然后伸手指。*

# %% slideshow={"slide_type": "fragment"}
with torch.no_grad():
    loss = head(torch.tanh(encoder(x))).mean()

try:
    loss.backward()
except RuntimeError as error:
    print(error)

# %% [markdown] lang="en" slideshow={"slide_type": "slide"} tags=["question"]
# ## Question 3: somebody adds one line
#
# ```python
# loss.requires_grad_()
# loss.backward()
# ```
#
# 1\. both get a gradient · 2. only the head · 3. nothing, and nothing raises · 4. it raises
#
# *Minute 11. Fingers.*

# %% [markdown] lang="zh" of="60705146"
# ## 问题三：有人加了一行
#
# ```python
# loss.requires_grad_()
# loss.backward()
# ```
#
# 1\. 两者都拿到梯度 · 2. 只有 head · 3. 谁也拿不到，也不报错 · 4. 会报错
#
# *第 11 分钟。伸手指。*

# %% slideshow={"slide_type": "fragment"}
encoder.zero_grad(), head.zero_grad()
loss.requires_grad_()
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
# ## Your turn: exercise 1, until minute 30
#
# Open `01_forgotten_no_grad.ipynb`. Work in pairs: one types, one predicts. Click on your prediction *before* you run what comes after it.
#
# The check runs *your* functions on fresh weights. It wants the right loss, the right gradients, and everything in place that was there before.

# %% [markdown] lang="zh" of="48fb02c5"
# ## 轮到你了：练习 1，到第 30 分钟
#
# 打开 `01_forgotten_no_grad.ipynb`。两人一组：一人敲代码，一人先预测。*先*点击你的预测，再运行后面的单元格。
#
# 检查会用新的权重运行*你的*函数。它要求损失正确、梯度正确，而且原来有的一样也不能少。

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

# %% [markdown] lang="en" slideshow={"slide_type": "slide"} tags=["question"]
# ## Question 4: which measurement is the first to notice?
#
# ```python
# hidden = torch.from_numpy(encoder(x).detach().numpy())
# loss = head(hidden).mean()
# ```
#
# 1\. the first · 2. the second · 3. the third · 4. none
#
# *Minute 32. Fingers; then exercise 3, until minute 50.*

# %% [markdown] lang="zh" of="9738a2a5"
# ## 问题四：哪一次测量最先发现？
#
# ```python
# hidden = torch.from_numpy(encoder(x).detach().numpy())
# loss = head(hidden).mean()
# ```
#
# 1\. 第一次 · 2. 第二次 · 3. 第三次 · 4. 都发现不了
#
# *第 32 分钟。伸手指；然后做练习 3，到第 50 分钟。*

# %% slideshow={"slide_type": "fragment"}
encoder.zero_grad(), head.zero_grad()
hidden = torch.from_numpy(encoder(x).detach().numpy())
loss = head(hidden).mean()
loss.backward()
print("1.", loss.requires_grad)
print("2.", {name: p.grad is not None for name, p in both.named_parameters()})

# %% [markdown] lang="en" slideshow={"slide_type": "slide"} tags=["question"]
# ## Question 5: is it so?
#
# - `eval()` on a frozen module cuts the graph.
# - `no_grad` round a frozen encoder costs the projection after it its gradient.
# - `torch.cat` with a constant loses the gradient of the other part.
#
# *Minute 51. One finger: true. Two: false. Three: it depends. `gradkit class poll poll.html` shows them one by one.*

# %% [markdown] lang="zh" of="7c3e3a71"
# ## 问题五：真是这样吗？
#
# - 对冻结的模块调用 `eval()`，计算图就断了。
# - 冻结的编码器外面套上 `no_grad`，后面的投影层就拿不到梯度。
# - `torch.cat` 拼上一个常量，另一部分的梯度就没了。
#
# *第 51 分钟。一根手指：正确；两根：错误；三根：视情况而定。`gradkit class poll poll.html` 会逐条显示。*

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
# ## Your turn: exercise 5, until minute 70
#
# Open `05_two_cuts.ipynb`. Write down each change that you make, and what the table said after it.

# %% [markdown] lang="zh" of="7ff10144"
# ## 轮到你了：练习 5，到第 70 分钟
#
# 打开 `05_two_cuts.ipynb`。把每一处改动，以及改动之后的结果，都记下来。

# %% [markdown] lang="en" slideshow={"slide_type": "slide"} tags=["question"]
# ## Question 6: one of two cuts is fixed
#
# ```python
# words = encoder(x).detach()      # this detach() is taken away
# mixed = mixer(words).detach()    # this one stays
# loss = head(mixed).mean()
# ```
#
# What changes? 1. the encoder gets a gradient · 2. encoder and mixer do · 3. nothing · 4. it raises
#
# *Minute 71. Fingers; then exercise 7, until minute 86.*

# %% [markdown] lang="zh" of="5418c4f1"
# ## 问题六：两处切断，修好一处
#
# ```python
# words = encoder(x).detach()      # 去掉这个 detach()
# mixed = mixer(words).detach()    # 这个留着
# loss = head(mixed).mean()
# ```
#
# 会有什么变化？1. encoder 拿到梯度 · 2. encoder 和 mixer 都拿到 · 3. 没有变化 · 4. 会报错
#
# *第 71 分钟。伸手指；然后做练习 7，到第 86 分钟。*

# %% slideshow={"slide_type": "fragment"}
mixer, head = nn.Linear(8, 8), nn.Linear(8, 1)
three = nn.ModuleDict({"encoder": encoder, "mixer": mixer, "head": head})


def reached(words):
    three.zero_grad()
    head(mixer(words).detach()).mean().backward()
    return [name for name, p in three.named_parameters() if p.grad is not None]


reached(encoder(x).detach()), reached(encoder(x))

# %% [markdown] lang="en" slideshow={"slide_type": "slide"} tags=["question"]
# ## Question 7: the loss falls. What have you proved?
#
# 1\. that the model learns · 2. that every layer learns · 3. that something learns · 4. nothing
#
# *Minute 87. Fingers.*

# %% [markdown] lang="zh" of="6abdd9c4"
# ## 问题七：损失在下降，你证明了什么？
#
# 1\. 模型在学习 · 2. 每一层都在学习 · 3. 有东西在学习 · 4. 什么也没证明
#
# *第 87 分钟。伸手指。*

# %% [markdown] lang="en" slideshow={"slide_type": "slide"}
# ## To take home
#
# A loss that falls proves that *something* learns. Ask who.
#
# - the sheet: three measurements, where to look, what is not the cause
# - hand in: the last cell of `summary.ipynb` writes your file
# - at home: exercises 2, 4, 6, and the clinic

# %% [markdown] lang="zh" of="465401f9"
# ## 带回去
#
# 损失在下降，只能证明*有东西*在学习。要问一句：是谁？
#
# - 一页纸：三次测量，往哪里看，哪些不是原因
# - 提交：`summary.ipynb` 的最后一个单元格会写出你的文件
# - 回家做：练习 2、4、6，还有综合诊室
