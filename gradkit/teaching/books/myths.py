# %% [markdown] lang="en"
# # Myths about autograd
#
# Some sixty things that people say about gradients in PyTorch: in forums, in issues, in tutorials. Some are true, many are not, and some depend. Run the next cell, guess, and let an experiment decide. Each experiment is a few lines that you can change and run again. What you have guessed is kept, so you can stop and come back.

# %% [markdown] lang="zh" of="91e0dc7d"
# # 关于自动求导的误区
#
# 关于 PyTorch 里的梯度，论坛、issue、教程里流传着六十来种说法：有的对，很多不对，还有的要看情况。运行下一个单元格，先猜，再让实验来裁决。每个实验只有几行，可以改了再跑。猜过的都会记下，随时可以停下，回头接着做。

# %%
import gradkit

gradkit.quiz()

# %% [markdown] lang="en"
# ## One belief at a time
#
# A belief displays itself with its answer, its experiment, and the public pages on which people say it.

# %% [markdown] lang="zh" of="f7c5b16a"
# ## 一次看一条
#
# 一条说法，会连同答案、实验和公开的出处一起显示。

# %%
claim = gradkit.claim("no_grad_round_a_frozen_encoder")
claim

# %% [markdown] lang="en"
# `run()` runs the experiment on the torch that you have. Each line has three parts: what was looked at, what would be seen if the belief were right, and what is seen. The verdict follows from the last two.

# %% [markdown] lang="zh" of="7b5bbd88"
# `run()` 在你装的 torch 上运行实验。每一行说的是：观察什么，若说法成立应当看到什么，实际看到什么。结论就由后两者得出。

# %%
claim.run()

# %% [markdown] lang="en"
# ## Change it
#
# `claim.edit()` puts the experiment into a new cell below the one you run, ready to be changed. Or write one from scratch: what would be seen if the belief were right goes into `BELIEVED`, and `observe()` returns what is seen under the same names. Is `detach()` on a target as harmful as on a prediction?

# %% [markdown] lang="zh" of="b9f35ef4"
# ## 改一改
#
# `claim.edit()` 会在当前单元格下方新建一个单元格，把实验放进去任你改。也可以从头写一个：`BELIEVED` 里写“若说法成立应当看到什么”，`observe()` 用同样的名字返回实际看到的。比如：对训练目标用 `detach()`，和对预测值用它一样有害吗？

# %%
import torch
from torch import nn

BELIEVED = {"detached_prediction_starves": True, "detached_target_starves": True}


def starves(where):
    model, batch = nn.Linear(3, 3), torch.ones(2, 3)
    prediction, target = model(batch), model(batch + 1)
    if where == "prediction":
        prediction = prediction.detach()
        target = target.detach()
    if where == "target":
        target = target.detach()
    loss = (prediction - target).square().mean()
    if loss.requires_grad:
        loss.backward()
    return model.weight.grad is None


def observe():
    return {
        "detached_prediction_starves": starves("prediction"),
        "detached_target_starves": starves("target"),
    }


gradkit.judge(BELIEVED, observe())

# %% [markdown] lang="en"
# ## All of them, on your torch
#
# Every verdict was derived on one version of torch, and a newer one may behave differently. This cell runs them all and lists those whose verdict is no longer the one in the text; an empty list is good news. (Where there is no GPU, an experiment that needs one is read from the record of an earlier run.)

# %% [markdown] lang="zh" of="1a53e101"
# ## 在你的 torch 上全部跑一遍
#
# 每个结论都是在某个版本的 torch 上得出的，换到新版本，结果可能不同。这个单元格把它们全部跑一遍，列出结论已与正文不符的；列表为空就是好消息。（没有 GPU 时，需要 GPU 的实验采用以前的运行记录。）

# %%
[claim.id for claim in gradkit.claims() if claim.run().verdict != claim.verdict]
