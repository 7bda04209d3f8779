# %% [markdown] lang="en"
# # Mixed precision that follows the device
#
# A model for prices, with an LSTM and a transformer layer, is trained on a laptop. The training loop was written for CUDA, with `torch.cuda.amp`, and the laptop has none. Training ends at its first step: `element 0 of tensors does not require grad and does not have a grad_fn`.
#
# What was concluded: CUDA's mixed precision breaks the graph on a machine without CUDA; so every device needs a branch of its own, and where there is no CUDA a `GradScaler('cpu')` stands in for the scaler, switched off. Training then ran, which is good. In this notebook you find out whether that was the reason, what `GradScaler('cpu')` is, and how one code path serves CPU, CUDA and MPS.

# %% [markdown] lang="zh" of="d9def2b2"
# # 跟随设备的混合精度
#
# 一个预测价格走势的模型，由 LSTM 和一层 Transformer 组成，在笔记本电脑上训练。训练循环原本是为 CUDA 写的，用的是 `torch.cuda.amp`，而这台电脑没有 CUDA。训练第一步就停了：`element 0 of tensors does not require grad and does not have a grad_fn`。
#
# 当时的结论是：在没有 CUDA 的机器上使用 CUDA 的混合精度，会断开计算图；所以每种设备都要有自己的分支，没有 CUDA 时就用 `GradScaler('cpu')` 顶替，当作一个关闭的缩放器。此后训练能跑了，这是好事。在这份 notebook 里，你会弄清楚真正的原因是不是这个，`GradScaler('cpu')` 究竟是什么，以及怎样用同一套代码支持 CPU、CUDA 和 MPS。

# %%
import inspect
import json
from pathlib import Path

import torch
from IPython.display import Code

import gradkit
from gradkit.cases import device_aware_amp as amp
from gradkit.cases import device_aware_amp_record as record



def source(*things):
    return Code("\n\n".join(inspect.getsource(thing).strip("\n") for thing in things), language="python")


def run(program, *arguments):
    try:
        with torch.set_grad_enabled(True):  # whatever happens inside, grad mode is put back afterwards
            amp.main(["--device", "cpu", "--program", program, *arguments])
    except (RuntimeError, AssertionError) as error:
        print(f"{type(error).__name__}: {error}")


source(amp.CudaOnlyLoop)

# %% [markdown] lang="en"
# ## Is it CUDA's mixed precision?
#
# These few lines are the suspects. The rest of the loop is as it should be. Run them on the CPU:

# %% [markdown] lang="zh" of="d68fbce3"
# ## 是 CUDA 的混合精度吗？
#
# 受到怀疑的就是上面这几行，训练循环的其余部分都没有问题。在 CPU 上运行：

# %%
run("cuda_only")

# %% [markdown] lang="en"
# It warns, and trains. Without CUDA both switch themselves off: nothing is computed in half precision, nothing is scaled. The losses are those of a run without mixed precision, to the last digit, and gradkit finds nothing to complain about.

# %% [markdown] lang="zh" of="2edd8db6"
# 有警告，但照样能训练。没有 CUDA 时，两者都会自行关闭：既没有用半精度计算，也没有做任何缩放。各步的损失与不用混合精度时完全相同，一位数字都不差，gradkit 也挑不出毛病。

# %%
run("fixed", "--no_mixed_precision")

# %%
model, step = amp.make("cuda_only")
print(gradkit.diagnose(step, model=model))

# %% [markdown] lang="en"
# So these lines cannot have been the reason. What was? The report does not show its whole program, so nobody can know. But it prints `Val Loss: 0.0000`, which is what a loop without validation data would print. Here is a program that does the same, and ends in the same error:

# %% [markdown] lang="zh" of="d201e377"
# 可见原因不会是这几行。那是什么？报告没有给出完整的程序，谁也无法断定。不过它打印出 `Val Loss: 0.0000`，没有验证数据的训练循环正是这样。下面这个程序就有这个特点，报的也是同样的错：

# %%
run("symptom")

# %% [markdown] lang="en"
# Now with the device branches that were thought to be the answer:

# %% [markdown] lang="zh" of="6d8b6f38"
# 换上当时认定的答案，也就是按设备分支：

# %%
run("symptom_branches")

# %% [markdown] lang="en"
# The same error. Ask gradkit about one step: the validation before it, and the forward pass.

# %% [markdown] lang="zh" of="89a021c9"
# 还是一样。把一个 step 交给 gradkit：先验证一次，再做一次前向传播。

# %%
model, step = amp.make("symptom_branches")
gradkit.diagnose(step, model=model)

# %% [markdown] lang="en"
# Grad mode is switched off by hand, and an early `return` leaves before it is switched on again. That happens only if there is nothing to validate, and then grad mode stays off for all that follows, in every function. `@torch.no_grad()` on `validate` cannot forget: that is how the loop below does it.
#
# ## What is `GradScaler('cpu')`?
#
# Back to the branches, without that fault. This is the answer that was found, and it does not run:

# %% [markdown] lang="zh" of="cc7e212b"
# 梯度模式是手动关掉的，而提前的 `return` 让它没有机会重新打开。只有没有数据可验证时才会这样，而此后的一切、任何函数，都受影响。给 `validate` 加上 `@torch.no_grad()` 就不会忘记，后面的训练循环就是这么写的。
#
# ## `GradScaler('cpu')` 是什么？
#
# 再看那些分支，这次去掉了上面的毛病。下面就是当时找到的答案，它跑不起来：

# %%
source(amp.DeviceBranches)

# %%
run("branches")

# %%
torch.amp.GradScaler("cpu").is_enabled(), torch.amp.GradScaler("cpu").get_scale()

# %% [markdown] lang="en"
# `"cpu"` names the device that the scaler works on. It is switched on, and would multiply by 65536. The branch that calls `backward()` does not scale, the branch that updates does divide, and the scaler notices that it was never used. In the report the test prints `GradScaler enabled: False`; that fits its last branch, the one for an older PyTorch, where the scaler really is disabled:

# %% [markdown] lang="zh" of="fb44ee8e"
# `"cpu"` 指的是缩放器在哪种设备上工作。它是开着的，会乘以 65536。调用 `backward()` 的分支没有乘，负责更新的分支却要除，缩放器于是发现自己从未用过。报告里的测试打印了 `GradScaler enabled: False`；这与它的最后一个分支相符，那个分支是为旧版 PyTorch 准备的，其中的缩放器确实是关闭的：

# %%
torch.amp.GradScaler("cuda", enabled=False).is_enabled()

# %% [markdown] lang="en"
# gradkit names the line where the loss should have been scaled:

# %% [markdown] lang="zh" of="a312ccd4"
# gradkit 指出了本该放大损失的那一行：

# %%
model, step = amp.make("branches")
gradkit.diagnose(step, model=model)

# %% [markdown] lang="en"
# ## Two ways to silence it
#
# *The scaler wants to be used, so the scaled loss is logged.* Or, the other way round: *the loss is scaled everywhere, and the step does not ask the scaler.*

# %% [markdown] lang="zh" of="ab9954fb"
# ## 两种让它不再报错的办法
#
# *缩放器非要用一下不可，那就用它放大损失，写进日志*。或者反过来：*处处放大损失，更新时绕过缩放器*。

# %%
source(amp.ScaledLossLogged, amp.PastTheScaler)

# %%
run("logged")
run("past_the_scaler")

# %% [markdown] lang="en"
# The first learns next to nothing. The second seems to learn! Measure what each gives the optimizer in the first update, without clipping, and compare with an update in full precision:

# %% [markdown] lang="zh" of="e7bf1103"
# 第一种几乎什么也没学到。第二种看起来学到了！不做裁剪，量一量第一次更新时各自交给优化器的梯度，和全精度的更新放在一起比较：

# %%
def table(rows):
    for name, row in rows.items():
        print(f"{name:21}", row.get("raised", "")[:40] or f"{row['gradient_norm']:13.6g} {row['weights_moved']:13.6g}"
              f" {row.get('times_full_precision', 1):13.6g}")  # fmt: skip


table(record.first_updates(amp.TrainerConfig()))

# %% [markdown] lang="en"
# The columns are the norm of the gradient, how far the weights moved, and how many times as large the gradient is as it should be. `1.52588e-05` is 1/65536: gradients that were never multiplied have been divided. `65536` is the opposite. That one went unnoticed because clipping cuts every gradient, good or bad, to the same length; without it:

# %% [markdown] lang="zh" of="81f2c665"
# 三列依次是梯度的范数、权重移动的距离，以及梯度是正确值的多少倍。`1.52588e-05` 就是 1/65536：梯度从未乘过，却被除了一次。`65536` 则正好相反，之所以没有露馅，是因为裁剪把每个梯度都剪成同样的长度，不管对错。去掉裁剪：

# %%
run("past_the_scaler", "--max_grad_norm", "inf")

# %% [markdown] lang="en"
# Adam hides the first mistake as well: it divides by the size of the gradients, so a factor in them makes little difference. That is how such a loop can live for a long time.

# %% [markdown] lang="zh" of="62d1fecc"
# Adam 也会掩盖第一种：它会除以梯度的大小，所以梯度多乘一个倍数，影响很小。这样的训练循环就能一直用下去，很久都没有人发现。

# %%
run("logged", "--optimizer", "Adam", "--learning_rate", "0.01")

# %%
for program in ("logged", "past_the_scaler"):
    model, step = amp.make(program)
    for finding in gradkit.diagnose(step, model=model).findings:
        print(finding.cause, finding.location.line, finding.location.text.strip())

# %% [markdown] lang="en"
# ## One code path
#
# What a device does not need is switched off with `enabled=False`; a scaler that is off hands everything through. No branch is left that could be wrong on the device you do not have:

# %% [markdown] lang="zh" of="2c9b71b7"
# ## 同一套代码
#
# 设备用不着的，用 `enabled=False` 关掉；关闭的缩放器会让一切原样通过。这样，就不会有哪个分支在你手边没有的设备上出错：

# %%
source(amp.TrainingLoop)

# %%
run("fixed")

# %%
model, step = amp.make("fixed")
gradkit.diagnose(step, model=model)

# %% [markdown] lang="en"
# `scale`, `unscale_`, clip, `step`, `update`: the order never changes. On a CPU autocast computes in `bfloat16`, which reaches as far down as `float32` and needs no scaler; on CUDA and MPS it computes in `float16`, with one. Gradient accumulation divides the loss of each part, and what is left over at the end of an epoch is used, too. `unscale_` is called once for all parts together: a second call before `update` raises.
#
# ## On a real GPU
#
# This notebook runs on a CPU. The same programs were run once on a GPU, by `python gradkit/cases/device_aware_amp.py --device cuda --record FILE`, and the numbers are kept:

# %% [markdown] lang="zh" of="a1e19558"
# `scale`、`unscale_`、裁剪、`step`、`update`：顺序始终不变。在 CPU 上，autocast 用 `bfloat16` 计算，它能表示的最小数量级与 `float32` 相同，不需要缩放器；在 CUDA 和 MPS 上用 `float16`，需要缩放器。累积梯度时，每一份的损失都要除以份数；一轮结束时剩下的部分也会用上。`unscale_` 对所有份一共只调用一次：在 `update` 之前再调用就会报错。
#
# ## 在真正的 GPU 上
#
# 这份 notebook 在 CPU 上运行。同样的程序在 GPU 上跑过一次，命令是 `python gradkit/cases/device_aware_amp.py --device cuda --record FILE`，数字都保存了下来：

# %%
kept = json.loads(Path(amp.__file__).with_name("records").joinpath("device_aware_amp_cuda.json").read_text())
{key: kept[key] for key in ("device", "torch", "date", "half", "scaler_enabled")}

# %%
for name, losses in kept["losses"].items():
    print(f"{name:26}", *(f"{loss:.4f}" for loss in losses))
table(kept["first_updates"])

# %% [markdown] lang="en"
# Mixed precision trains as full precision does, and the wrong orders are wrong by the same factor. Here the device branches are right, for on CUDA they take the proper path. There is one exception: with mixed precision switched off, they still find the CPU's scaler switched on, and compute in this precision:

# %% [markdown] lang="zh" of="ab7dab03"
# 混合精度与全精度训练得一样好，顺序写错的，错的也还是那个倍数。按设备分支的写法在这里是对的，因为在 CUDA 上它走的是正确的分支。只有要求不用混合精度时例外：这时它同样会发现 CPU 的缩放器是开着的，于是用这种精度计算：

# %%
kept["branches_that_were_told_no"]

# %% [markdown] lang="en"
# Two more suspicions were put to the test there. A pass under `no_grad` in the same autocast block, before the one that counts: how many parameters get a gradient, of how many? And an LSTM in `eval()`: cuDNN does not run its backward, and says so in its own words. Here `eval()` does stop a gradient, although the graph is whole.

# %% [markdown] lang="zh" of="4d5edbef"
# 还有两个怀疑也在 GPU 上检验过。在同一个 autocast 块里，正式的前向传播之前先在 `no_grad` 下做一次前向传播：一共多少个参数，其中多少个得到梯度？还有处于 `eval()` 的 LSTM：cuDNN 不为它做反向传播，并且用自己的报错说明了这一点。这里 `eval()` 确实挡住了梯度，尽管计算图是完整的。

# %%
kept["reached_after_a_pass_without_grad"], kept["lstm_backward"]

# %% [markdown] lang="en"
# Does MPS support mixed precision? Ask torch which devices its autocast supports; you need not have them for that:

# %% [markdown] lang="zh" of="272dd66f"
# MPS 支持混合精度吗？可以问一问 torch，它的 autocast 支持哪些设备；手边没有那种设备也能问：

# %%
{device: torch.amp.is_autocast_available(device) for device in ("cpu", "cuda", "mps")}

# %% [markdown] lang="en"
# Nothing here was run on MPS. What can be said: PyTorch 2.13 has autocast for MPS, and its scaler has a branch for MPS in `unscale_`; `--device mps` runs the same lines. With `--record` you can keep what you see.
#
# ## What to take away
#
# | said | seen here |
# | --- | --- |
# | Look at the device before using mixed precision. | Right; let the device decide a flag, and keep one code path. |
# | CUDA's autocast and scaler disconnect the graph where there is no CUDA. | They do not: they warn and switch themselves off. |
# | `GradScaler('cpu')` is a scaler that is off. | It is on. `enabled=False` is off. |
# | MPS has no mixed precision. | The torch that runs here has it: see above. |
# | On CUDA it is two to three times as fast and takes half the memory. | Not measured here: this model is too small to tell. |
# | Inputs need no `requires_grad`, and the architecture was not the cause. | Right. |
# | A loss that falls shows that the gradient flow is right. | It fell with gradients 65536 times too large, and with Adam, 65536 times too small. |
#
# In a terminal:
#
# ```sh
# python -m gradkit.cases.device_aware_amp                        # on the best device of this machine
# python -m gradkit.cases.device_aware_amp --program symptom      # or symptom_branches, branches, logged, past_the_scaler, cuda_only
# python -m gradkit.cases.device_aware_amp --record numbers.json
# gradkit guide amp_misuse
# ```

# %% [markdown] lang="zh" of="0a2f1eb0"
# 这里的一切都没有在 MPS 上运行过。能说的是：PyTorch 2.13 的 autocast 支持 MPS，缩放器的 `unscale_` 也有专为 MPS 准备的分支；`--device mps` 走的是同样的代码。用 `--record` 可以把你看到的结果保存下来。
#
# ## 小结
#
# | 说法 | 这里看到的 |
# | --- | --- |
# | 使用混合精度之前先看设备。 | 对；让设备决定一个开关，代码仍是一套。 |
# | 没有 CUDA 时，CUDA 的 autocast 和缩放器会断开计算图。 | 不会：它们发出警告，并自行关闭。 |
# | `GradScaler('cpu')` 是关闭的缩放器。 | 它是开着的。`enabled=False` 才是关闭。 |
# | MPS 不支持混合精度。 | 这里的 torch 支持：见上。 |
# | 在 CUDA 上快两到三倍，显存减半。 | 这里没有测：这个模型太小，看不出来。 |
# | 输入不需要 `requires_grad`，模型结构也没有问题。 | 对。 |
# | 损失下降，说明梯度流动正常。 | 梯度大了 65536 倍时它在下降；用 Adam，小了 65536 倍时它也在下降。 |
#
# 在终端里：
#
# ```sh
# python -m gradkit.cases.device_aware_amp                        # 在这台机器最好的设备上
# python -m gradkit.cases.device_aware_amp --program symptom      # 或 symptom_branches、branches、logged、past_the_scaler、cuda_only
# python -m gradkit.cases.device_aware_amp --record numbers.json
# gradkit guide amp_misuse
# ```
