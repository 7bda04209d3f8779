# %% [markdown] lang="en"
# # The batch with nothing to learn from
#
# A marsh camera films dancing cranes. A model looks at a clip and tells what the bird is doing (stand, bow, leap, toss) and, if asked to, where its head, wing and foot are. A biologist labels what she has time for, so some clips come without an action, and a mask says which.
#
# Training runs well for five epochs. In epoch 6 it stops with `element 0 of tensors does not require grad and does not have a grad_fn`. A first cure was found quickly, and it does stop the crash. In this notebook you make the crash happen, find its line, measure what the first cure costs, and end with one that costs nothing.

# %% [markdown] lang="zh" of="d1309d98"
# # 什么也学不到的批次
#
# 湿地里的摄像机拍下鹤舞。模型看一段视频，判断鹤在做什么（站立、鞠躬、跳跃、抛掷），需要时还给出头、翅、足的位置。生物学家只来得及标注其中一部分，所以有些片段没有动作标签，由掩码标明。
#
# 前五轮训练一切顺利，到第 6 轮突然报错：`element 0 of tensors does not require grad and does not have a grad_fn`。很快有人找到了第一种改法，程序确实不再崩溃。在这份 notebook 里，你会重现这次崩溃，找到出错的那一行，量出第一种改法的代价，最后换成没有代价的改法。

# %%
import inspect

import torch
from IPython.display import Code

import gradkit
from gradkit.cases.multitask import attempts
from gradkit.cases.multitask import price
from gradkit.cases.multitask import programs
from gradkit.cases.multitask import ranks
from gradkit.cases.multitask.clips import make_loaders
from gradkit.cases.multitask.train_multitask import build
from gradkit.cases.multitask.train_multitask import compute_loss
from gradkit.cases.multitask.train_multitask import parse
from gradkit.cases.multitask.train_multitask import run
from gradkit.cases.multitask.train_multitask import train_step
from gradkit.cases.multitask.train_multitask import validate
from gradkit.teaching.examples import from_builtin





def source(*things):
    return Code("\n\n".join(inspect.getsource(thing).strip("\n") for thing in things), language="python")


source(compute_loss, train_step)

# %% [markdown] lang="en"
# ## Epoch 6
#
# These two functions are the heart of the program: two masked losses, mixed precision with a `GradScaler`, clipping. Run it. From a terminal it is `python -m gradkit.cases.multitask`.

# %% [markdown] lang="zh" of="4001a393"
# ## 第 6 轮
#
# 上面两个函数是程序的核心：两个带掩码的损失、配合 `GradScaler` 的混合精度、梯度裁剪。运行它。在终端里是 `python -m gradkit.cases.multitask`。

# %%
try:
    run(parse(["--model_type", "action_only", "--batch_size", "2"]))
except RuntimeError as error:
    print(error)

# %% [markdown] lang="en"
# Why so late? The clips are shuffled again in every epoch. Count the batches in which nothing is labelled, epoch by epoch:

# %% [markdown] lang="zh" of="bce0f171"
# 为什么这么晚才出错？每一轮都会重新打乱片段的顺序。逐轮数一数，有多少批次完全没有标签：

# %%
def empty_batches(batch_size, epochs=8):
    loader, _ = make_loaders(batch_size, seed=7)
    return [sum(not batch["action_mask"].any() for batch in loader) for _ in range(epochs)]


{size: [int(n) for n in empty_batches(size)] for size in (1, 2, 4)}

# %% [markdown] lang="en"
# With two clips a batch, two of the five unlabelled ones have to meet: rare, and bad luck decides when. With one clip a batch it happens in the very first epoch, and with four not at all in these eight. **Nothing had changed in epoch 6 but the order.** A fault that depends on the batch is found soonest with the smallest batches.

# %% [markdown] lang="zh" of="7b2e5009"
# 每批两个片段时，五个未标注片段中要恰好有两个碰到一起：这种情况不多，什么时候发生全凭运气。每批一个片段，第一轮就会出现；每批四个，这八轮里一次也没有。**第 6 轮唯一不同的，是片段的顺序。** 和批次有关的错误，用最小的批次最容易暴露。

# %% [markdown] lang="en"
# ## The line
#
# This built-in example trains until backward raises, and returns the step that raised:

# %% [markdown] lang="zh" of="fbebd831"
# ## 是哪一行
#
# 这个内置示例一直训练到反向传播报错，然后交出报错的那一步：

# %%
report = gradkit.diagnose(from_builtin("multitask_epoch_6"))
report

# %% [markdown] lang="en"
# The first report on this crash had it right: `torch.tensor(0.0)` has no history, so there is nothing to go backward through.
#
# It suspected a second line as well, the constant `kp_loss` of the action-only model. That one is innocent. It is not even added in, and if it were, it would do no harm: a sum has a history as soon as one of its terms has.

# %% [markdown] lang="zh" of="99b778f6"
# 最初的报告在这一点上是对的：`torch.tensor(0.0)` 没有历史，反向传播无路可走。
#
# 报告还怀疑另一行，也就是 action_only 模型里恒为零的 `kp_loss`。这一行是无辜的：它根本没有被加进去；即使加进去也无妨，因为只要有一项带着历史，和就有历史。

# %%
args = parse(["--device", "cpu", "--no-amp"])
model = build(args)[0]
loss = compute_loss(args, model, programs.clips(labelled=True)) + torch.tensor(0.0)
loss.requires_grad, loss.grad_fn

# %% [markdown] lang="en"
# ## The first cure
#
# Let the zero hang on the model's output, and guard the step:

# %% [markdown] lang="zh" of="06551f5d"
# ## 第一种改法
#
# 让这个零挂在模型的输出上，再给更新这一步加一道判断：

# %%
source(attempts.times_zero, attempts.guarded_step)

# %%
_ = run(parse(), *attempts.FIXES["times_zero"])

# %% [markdown] lang="en"
# It gets past epoch 6. And it is true, as its authors wrote, that the loss is 0, has a `grad_fn`, and gives gradients that are just zero. The question is what "just zero" does next. Ask gradkit about a batch without labels:

# %% [markdown] lang="zh" of="9abee231"
# 程序顺利越过了第 6 轮。修改者说得也没错：损失是 0，有 `grad_fn`，梯度“只是零”。问题在于，这些“只是零”的梯度接下来会做什么。用没有标签的批次问一问 gradkit：

# %%
gradkit.diagnose(from_builtin("multitask_times_zero"))

# %% [markdown] lang="en"
# ## What it costs
#
# For an optimizer, a gradient of zero is not the same as no gradient. Three real steps, then one on two clips without a label. `skip` leaves that step out, `every_rank` comes later, for many processes. How far does the farthest weight move?

# %% [markdown] lang="zh" of="cdf62c57"
# ## 代价
#
# 对优化器来说，梯度为零和没有梯度是两回事。先正常训练三步，再用两个没有标签的片段走一步。`skip` 会跳过这一步，`every_rank` 用于多个进程，后面再讲。移动最多的那个权重，移动了多少？

# %%
price.table(programs.clips(labelled=False))

# %% [markdown] lang="en"
# Only plain SGD stays where it is. Momentum carries on in the old direction, Adam likewise, and weight decay shrinks the weights: all for a batch that had nothing to say. Leaving the step out (`skip`) moves nothing, with any optimizer.
#
# The second price is rarer and higher. Often a clip has no label because there is no bird in it. Then the pose detector reports a height of 0, and the pose, divided by it, is nan:

# %% [markdown] lang="zh" of="cfbd8b59"
# 只有普通的 SGD 原地不动。动量会沿着原来的方向继续走，Adam 也一样，权重衰减则让权重变小，而这个批次其实什么信息也没有提供。跳过这一步（`skip`），用哪种优化器权重都不动。
#
# 第二种代价少见一些，却更大。片段没有标签，往往是因为画面里根本没有鹤。这时姿态检测器给出的身高是 0，姿态除以它就成了 nan：

# %%
price.table(price.nobody_there())

# %% [markdown] lang="en"
# Zero times nan is nan. It goes backward into every gradient, clipping spreads it, and one step later every weight of the model is nan. With `0.0 * sum of the weights` (`every_rank`, below) the clip cannot get in.

# %% [markdown] lang="zh" of="ca4d8799"
# 零乘以 nan 还是 nan。它沿反向传播进入每一个梯度，裁剪又把它扩散开来，一步之后，整个模型的权重都成了 nan。如果零乘的是权重之和（下文的 `every_rank`），这个片段就影响不到损失。

# %% [markdown] lang="en"
# No cure of the *empty* batch helps where such a clip stands *beside* a labelled one. Picking rows out of the logits is too late: the nan has been through the layers, and the weights' gradients sum over all rows. Take the clip out before the model sees it, or better, never divide by a height of 0.

# %% [markdown] lang="zh" of="32ce4a10"
# 如果这样的片段和有标签的片段出现在*同一个*批次里，针对*空*批次的任何改法都没有用。等到算出 logits 再挑行已经太晚：nan 已经流过各层，而权重的梯度是对所有行求和得到的。应当在送进模型之前就把它去掉；更好的办法是，从一开始就不要除以为 0 的身高。

# %%
def bad_gradients(batch):
    model = build(args)[0]
    attempts.skip(args, model, batch).backward()
    return sum(not parameter.grad.isfinite().all().item() for parameter in model.parameters())


labelled, nobody = programs.clips(labelled=True), price.nobody_there()
mixed = {name: torch.cat([labelled[name], nobody[name]]) for name in labelled}
kept = {name: value[mixed["action_mask"] > 0] for name, value in mixed.items()}
bad_gradients(mixed), bad_gradients(kept)

# %% [markdown] lang="en"
# ## The cure was in it
#
# The guard of the first cure came with a remark that it should never be needed. True, and a pity: the zero with a `grad_fn` is what makes it useless. Put the constant back, and the guard does its job:

# %% [markdown] lang="zh" of="af8b328e"
# ## 解药其实就在其中
#
# 第一种改法里的那道判断附有一句说明：它应该永远用不上。的确如此，也很可惜，正是那个带 `grad_fn` 的零让它失去了作用。把常量换回去，这道判断就能发挥作用：

# %%
_ = run(parse(), *attempts.FIXES["guard"])

# %% [markdown] lang="en"
# One weakness is left: it asks for the symptom. A model that was frozen by mistake has no gradient either, and now gets a warning for each batch in the place of an error. So ask for the reason: does this batch hold anything to learn from?

# %% [markdown] lang="zh" of="e8d83463"
# 它还有一个弱点：判断的是症状。被误冻结的模型同样没有梯度，原本会报错，现在只是每个批次给一条警告。所以应当判断原因：这个批次里有没有可以学的东西？

# %%
frozen, optimizer, scaler, _, _ = build(args)
frozen.requires_grad_(False)
attempts.guarded_step(args, frozen, labelled, optimizer, scaler)

# %%
source(attempts.skip, attempts.skipping_step)

# %%
model = run(parse(), *attempts.FIXES["skip"])

# %% [markdown] lang="en"
# `skip` adds up the losses that there are, and says None if there are none. A batch with keypoints and no action still trains the keypoints. gradkit has nothing to say against it:

# %% [markdown] lang="zh" of="85330d36"
# `skip` 只把存在的损失加起来；一项也没有，就返回 None。有关键点而没有动作标签的批次，仍然可以训练关键点。gradkit 对它没有意见：

# %%
gradkit.diagnose(from_builtin("multitask_fixed"))

# %% [markdown] lang="en"
# ## Validation
#
# The first cure was put into `validate` as well. There is no backward in validation, so nothing could crash; under `no_grad` the zero has no `grad_fn` anyway. But the zero does something else: it counts. Each batch without labels pulls the mean down, and the same model looks better than it is. First as reported, then with `skip`:

# %% [markdown] lang="zh" of="515c140e"
# ## 验证
#
# 第一种改法也用在了 `validate` 里。验证时没有反向传播，本来就不会崩溃；在 `no_grad` 下，这个零也没有 `grad_fn`。但它会产生另一个影响：计入平均。每个没有标签的批次都会拉低平均损失，同一个模型显得比实际更好。先是报告中的算法，再是 `skip`：

# %%
val_loader = make_loaders(2, seed=7)[1]
with torch.no_grad():
    print(attempts.times_zero(args, model, programs.clips(labelled=False)).grad_fn)
[round(validate(args, model, val_loader, loss_fn)[0], 4) for loss_fn in (attempts.times_zero, attempts.skip)]

# %% [markdown] lang="en"
# ## The same line in the multitask model
#
# With `--model_type multitask` nothing raises, as the keypoint loss has a history. The action head then gets no gradient (None, not zero), and no optimizer moves it. So on a batch without labels this is just right, and gradkit's finding means: *from this batch* the action head learns nothing.

# %% [markdown] lang="zh" of="d852f3d1"
# ## 同一行，换成 multitask 模型
#
# 用 `--model_type multitask` 时不会报错，因为关键点损失带有历史。识别动作的输出头此时没有梯度（是 None，不是零），优化器也不会动它。对没有标签的批次来说，这恰到好处。gradkit 的结论应当这样理解：*从这个批次*，识别动作的输出头什么也学不到。

# %%
report = gradkit.diagnose(from_builtin("multitask_keypoints_only"))
report.findings[0].cause, report.findings[0].parameters

# %%
_ = run(parse(["--model_type", "multitask", "--batch_size", "1", "--epochs", "3", "--amp"]), *attempts.FIXES["skip"])

# %% [markdown] lang="en"
# ## Where every process must take part
#
# There is one place where skipping alone is wrong: training on several GPUs with `DistributedDataParallel`. Its processes wait for each other inside backward. If only one of them skips, its *next* step is averaged with the *present* step of the other. From then on they are one step apart, and at the end one of them waits for a step that never comes. Here are two processes on the CPU; in the first step the second one has no label. It takes half a minute:

# %% [markdown] lang="zh" of="9737b9a9"
# ## 每个进程都必须参加时
#
# 只有一种场合不能单单跳过：用 `DistributedDataParallel` 在多块 GPU 上训练。各进程会在反向传播中互相等待。如果只有一个进程跳过，它的*下一步*就会和另一个进程的*这一步*求平均，从此两边相差一步，最后总有一个进程空等永远不会到来的一步。下面在 CPU 上开两个进程，第一步时第二个进程没有标签。大约需要半分钟：

# %%
ranks.show(("skip", False), ("every_rank", False), ("times_zero", True), ("every_rank", True))

# %% [markdown] lang="en"
# `every_rank` adds `0.0 * sum(p.sum() for p in model.parameters())` to the loss of every batch. All processes take part, the weights stay equal, and a nan in the clip stays out; with `0.0 * logits.sum()` one bad clip ruins the model on *all* of them. Note the gradient of the first step: it is half of what the labelled process had by itself (see `skip`), because the mean is taken over both.
#
# If a process skips by itself in a program of yours, `torchrun --nproc-per-node 2 -m gradkit run train.py` says which one ended early, after how many steps, and at which line the others were left; the guide `ddp_unused` tries it on a small program.

# %% [markdown] lang="zh" of="5500d02a"
# `every_rank` 在每个批次的损失上加 `0.0 * sum(p.sum() for p in model.parameters())`。所有进程都参加，权重保持一致，片段里的 nan 也进不来；换成 `0.0 * logits.sum()`，一个坏片段就会毁掉*所有*进程上的模型。注意第一步的梯度：只有有标签的进程单独计算时的一半（对照 `skip`），因为平均是对两个进程取的。
#
# 如果你的程序里有进程独自跳过，`torchrun --nproc-per-node 2 -m gradkit run train.py` 会指出是哪一个提前结束、走了几步，其余进程又停在哪一行；指南 `ddp_unused` 用一个小程序试了一遍。

# %%
source(attempts.every_rank)

# %% [markdown] lang="en"
# ## What it costs when nobody has a label
#
# As long as one process has a label, the step is a real one, and the zeros of the others only make its gradient smaller. But in a step in which *no* process has a label, every gradient is zero, and the price that you measured above falls due, on several processes as on one. `agreed` asks all of them first, by an `all_reduce` of the number of labels, and they take the step together or leave it out together. Again three real steps, then one without labels, now on two processes:

# %% [markdown] lang="zh" of="8e08996c"
# ## 谁都没有标签时的代价
#
# 只要有一个进程有标签，这一步就是真正的一步，其余进程的零只会让梯度变小。可是如果某一步里*所有*进程都没有标签，每个梯度就都是零，前面量出的代价就要照付，多个进程和一个进程一样。`agreed` 先用 `all_reduce` 把标签的数量加起来，问过所有进程，然后要么一起走这一步，要么一起跳过。同样先正常训练三步，再走没有标签的一步，这一次是两个进程：

# %%
ranks.table("every_rank", "agreed")

# %%
source(attempts.agreed_step)

# %% [markdown] lang="en"
# The first column is that of the table above, number by number. Is it worth asking? It is one number more to send in every step, and one more place where all wait for each other. With plain SGD there is nothing to save. With momentum, Adam or weight decay it depends on how often *all* processes come up empty at once; where clips are dealt out at random, that gets rarer with every process.

# %% [markdown] lang="zh" of="f38dbf64"
# 第一列与前面那张表逐个相同。值得先问一声吗？这要在每一步多传一个数，多一处互相等待。用普通的 SGD，没有什么可省的。用动量、Adam 或权重衰减，则要看*所有*进程同时没有标签的情况有多常见；如果片段是随机分配的，进程越多，就越少见。

# %% [markdown] lang="en"
# ## What to take away
#
# - A constant in the place of a loss has no history: the report was right about the line.
# - A sum may start with a constant. Only a loss that is *nothing but* a constant raises.
# - Zero gradients are not "no step": momentum, Adam and weight decay move the weights, and zero times nan is nan.
# - Skip the step when the batch holds nothing. Where all processes must take part, hang the zero on the weights, not on the output; if none of them has anything, let all skip together.
# - In validation leave such batches out of the mean.
#
# Try it: `--batch_size 1`, or another `--seed`. In which epoch does it crash now?

# %% [markdown] lang="zh" of="2a4d788b"
# ## 小结
#
# - 用常量顶替损失，就没有历史：报告对这一行的判断是对的。
# - 累加可以从常量开始。只有损失*完全*是常量时才会报错。
# - 梯度为零不等于“没有这一步”：动量、Adam 和权重衰减都会移动权重，零乘以 nan 还是 nan。
# - 批次里没有可学的东西，就跳过这一步。如果每个进程都必须参加，就让零挂在权重上，而不是挂在输出上；如果所有进程都没有可学的东西，就一起跳过。
# - 验证时，这样的批次不要计入平均。
#
# 试一试：用 `--batch_size 1`，或者换一个 `--seed`。这一次在第几轮崩溃？

# %%
try:
    run(parse(["--batch_size", "1"]))
except RuntimeError as error:
    print(error)
