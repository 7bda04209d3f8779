# %% [markdown] lang="en"
# # Vision memory: three attempts, and the line that nobody suspected
#
# A language model is to remember long texts. What no longer fits is drawn as an image, read by an OCR encoder, projected into the language model, and put before the recent tokens:
#
# ```text
# text --+-- its end -------------------------> embedding ----------------+
#        |                                      (frozen)                  +--> cat, left padding --> base LM --> loss
#        +-- all before --> render --> OCR encoder --> proj --> memory ---+                          (frozen)
#                           (image)    (frozen)        (trained)
# ```
#
# Only `proj` is trained. The very first step ends in `element 0 of tensors does not require grad and does not have a grad_fn`. Three attempts were made at it, with great care: no `no_grad` round the encoder any more, no `requires_grad=False` on the padding, no `eval()` on what is frozen. In this notebook you run one program that behaves as they report, each attempt, and a cure, and you measure what the attempts changed.
#
# The program is rebuilt. The report tells of its parts, the error and the attempts, and its parameter counts; it holds neither all of the code nor what cured it in the end. This program has the same parts and the same counts, ends in the same error, and none of the attempts helps. So the line below is one that fits all that was reported. Whether it was the line in question there, nobody can know from the report.

# %% [markdown] lang="zh" of="a81e20c7"
# # 视觉记忆：三次尝试，和谁也没有怀疑的那一行
#
# 想让语言模型记住很长的文本。装不下的部分先渲染成图像，由 OCR 编码器读出来，经过投影层送进语言模型，排在最近的词元之前：
#
# ```text
# 文本 --+-- 末尾 ----------------------------> 嵌入层 ------------------+
#        |                                     （冻结）                  +--> 拼接、左侧填充 --> 基座语言模型 --> 损失
#        +-- 之前的全部 --> 渲染 --> OCR 编码器 --> proj --> 记忆 -------+                         （冻结）
#                          （图像）   （冻结）     （训练）
# ```
#
# 只训练 `proj`。可是第一步就报 `element 0 of tensors does not require grad and does not have a grad_fn`。当时认真试了三次：去掉编码器外面的 `no_grad`，去掉填充张量的 `requires_grad=False`，不再对冻结的部分调用 `eval()`。这个 notebook 会运行一个表现与报告一致的程序、每一次尝试和一种修复，并且量一量这些尝试究竟改变了什么。
#
# 这里的程序是重建的。报告讲了它的组成部分、报错、三次尝试和参数量，但既没有完整的代码，也没有说最后是怎样解决的。这个程序的组成部分和参数量与报告相同，报错相同，三次尝试也都无济于事。所以，下面找到的那一行与报告所说的一切都吻合；至于当时是不是就错在这一行，单凭报告无从知道。

# %%
import inspect
import warnings

import torch
from IPython.display import Code

import gradkit
from gradkit.cases.vision_memory import attempts
from gradkit.cases.vision_memory import programs
from gradkit.cases.vision_memory.adapter_only_trainer import NOTES
from gradkit.cases.vision_memory.adapter_only_trainer import batches
from gradkit.cases.vision_memory.adapter_only_trainer import print_modes
from gradkit.cases.vision_memory.adapter_only_trainer import train
from gradkit.cases.vision_memory.adapter_only_trainer import worth_an_image
from gradkit.cases.vision_memory.mem_adapter_only import MEMConfig
from gradkit.cases.vision_memory.mem_adapter_only import MEMModel
from gradkit.cases.vision_memory.mem_adapter_only import PageStore
from gradkit.cases.vision_memory.mem_adapter_only import render
from gradkit.cases.vision_memory.verify_gradient_flow import verify_gradient_flow





def source(*things):
    return Code("\n\n".join(inspect.getsource(thing).strip("\n") for thing in things), language="python")


source(MEMModel.read, MEMModel.memory, MEMModel.embed, MEMModel.left_pad, MEMModel.train)

# %% [markdown] lang="en"
# ## The program before the attempts
#
# These are the five methods of the model that came under suspicion. Texts come in batches in order of their length. Put the first batch to the test:

# %% [markdown] lang="zh" of="bcafa29d"
# ## 最初的程序
#
# 上面是模型中受到怀疑的五个方法。文本按长度排序后分批。用第一批检验一下：

# %%
reported, first = programs.build(MEMModel), batches(NOTES)[0]
verify_gradient_flow(reported, first)

# %% [markdown] lang="en"
# The loss has a value and no history. Before you go on: which of the five methods would you change?
#
# ## Attempt 1: no `no_grad` round the encoder

# %% [markdown] lang="zh" of="a8dedf23"
# 损失有数值，却没有计算历史。往下看之前先想一想：这五个方法，你会改哪一个？
#
# ## 尝试一：去掉编码器外面的 `no_grad`

# %%
source(attempts.Attempt1)

# %%
verify_gradient_flow(programs.build(attempts.Attempt1), first)

# %% [markdown] lang="en"
# The same error. Look at what the encoder returns with the block, and without it, and at how many tensors autograd keeps for backward when there is no block:

# %% [markdown] lang="zh" of="1aada026"
# 还是同样的错误。比较一下有这个块和没有这个块时编码器的输出；再看看没有这个块时，自动求导为反向传播留下了多少张量：

# %%
page = render(batches(NOTES)[-1][0], 64, 4)
with_block, kept = reported.read(page), []
with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
    without = programs.build(attempts.Attempt1).read(page)
torch.equal(with_block, without), with_block.requires_grad, without.requires_grad, len(kept)

# %% [markdown] lang="en"
# The same numbers, and no gradient either way: the image requires none, and no weight of a frozen encoder does. There is nothing for `no_grad` to switch off, and nothing that it saves. The graph begins *behind* it, at the weights of `proj`:

# %% [markdown] lang="zh" of="709a4648"
# 数值相同，而且两种情形都不带梯度：图像不需要梯度，冻结的编码器里也没有哪个权重需要梯度。`no_grad` 在这里没有什么可关，也省不下什么。计算图是从它*之后*、从 `proj` 的权重才开始的：

# %%
memory = reported.proj(with_block)
memory.requires_grad, memory.grad_fn

# %% [markdown] lang="en"
# ## Attempt 2: no `requires_grad=False` on the padding

# %% [markdown] lang="zh" of="4b3ca8a2"
# ## 尝试二：去掉填充张量的 `requires_grad=False`

# %%
source(attempts.Attempt2)

# %%
verify_gradient_flow(programs.build(attempts.Attempt2), first)

# %% [markdown] lang="en"
# This could not help: `requires_grad=False` is what `torch.zeros` does anyway. And a constant beside a tensor that has a gradient takes nothing from it; one input that requires grad is enough for the result to require grad.

# %% [markdown] lang="zh" of="15d68ddd"
# 这不可能有用：`torch.zeros` 本来就是 `requires_grad=False`。而且，常量和带梯度的张量拼在一起，并不会夺走它的梯度；只要有一个输入需要梯度，结果就需要梯度。

# %%
pad = torch.zeros(2, memory.shape[1], requires_grad=False)
joined = torch.cat([pad, memory])
torch.zeros(2).requires_grad, pad.requires_grad, joined.requires_grad, joined.grad_fn

# %% [markdown] lang="en"
# ## Attempt 3: `train()` for the frozen parts, too

# %% [markdown] lang="zh" of="184bc10e"
# ## 尝试三：让冻结的部分也处于 `train()`

# %%
source(attempts.Attempt3)

# %%
third = programs.build(attempts.Attempt3)
print_modes(reported)
print_modes(third)
verify_gradient_flow(third, first)

# %% [markdown] lang="en"
# All the switches are set as intended, and the error is still there. `train()` and `eval()` tell layers such as dropout and batch norm how to behave; whether a graph is recorded is none of their business. (A library may look at `self.training` for a purpose of its own: cuDNN's recurrent layers refuse to run backward after `eval()`, and say so.)
#
# ## What did the attempts change?
#
# Give every version a batch that does reach `proj`: all eight texts at once, four of which are long enough for an image, and four of which are padded. Then compare the loss and all gradients of `proj` with those of the program before the attempts, bit by bit.

# %% [markdown] lang="zh" of="a630b7c7"
# 所有开关都拨到了想要的位置，错误却还在。`train()` 和 `eval()` 只是告诉 dropout、batch norm 这类层该怎么工作；是否记录计算图，与它们无关。（有的库会拿 `self.training` 另作他用：cuDNN 的循环层在 `eval()` 之后拒绝反向传播，并且会明确报错。）
#
# ## 这些尝试改变了什么？
#
# 给每个版本一批确实会用到 `proj` 的数据：八段文本放在一起，其中四段足够长，会渲染成图像；另外四段则需要填充。然后把损失和 `proj` 的全部梯度与最初的程序逐位比较。

# %%
before = programs.gradients(MEMModel)
{kind.__name__: programs.same(before, programs.gradients(kind)) for kind in attempts.ATTEMPTS[1:]}

# %%
{name: f"{gradient.norm():.4f}" for name, gradient in before.items()}

# %% [markdown] lang="en"
# Not one bit, and the gradients are not zero. The base model here has no dropout, as Qwen3 has none. With dropout in its attention, attempt 3 does change something: the frozen model becomes noisy, and the same batch no longer gives the same loss. The gradient was there before and is there after. That is why `eval()` on frozen parts is often the better choice, as in the report's first version.

# %% [markdown] lang="zh" of="99033158"
# 一个比特都没有变，而且梯度并不是零。这里的基座模型没有 dropout，Qwen3 本来也没有。如果注意力里有 dropout，尝试三倒是会改变一些东西：冻结的模型会带上噪声，同一批数据不再给出同样的损失。梯度则是改之前就有，改之后也有。所以，像报告最初那样对冻结部分调用 `eval()`，往往是更好的选择。

# %%
everything = batches(NOTES, len(NOTES))[0]
still, noisy = (programs.build(kind, dropout=0.1) for kind in (MEMModel, attempts.Attempt3))
[[model(everything).loss.item() for _ in range(2)] for model in (still, noisy)]

# %% [markdown] lang="en"
# ## What else was changed on the way
#
# The report names two more changes and shows no code of them: the configuration is checked more strictly, and the trainer no longer calls what PyTorch has deprecated. Both are good to have, and neither brings a gradient back. A check of the sizes passes this program, whose sizes were never wrong:

# %% [markdown] lang="zh" of="c388a848"
# ## 顺带还改了什么
#
# 报告还提到另外两处改动，没有给出代码：配置检查得更严格，训练脚本也不再调用 PyTorch 已经弃用的接口。两者都值得做，但都带不回梯度。检查各项尺寸，这个程序能通过，因为它的尺寸本来就没有错：

# %%
def sizes_that_fit(config):
    llm, sam = config.llm, config.sam
    return {
        "query heads share key heads evenly": llm["num_attention_heads"] % llm["num_key_value_heads"] == 0,
        "the page is a whole number of patches": sam["image_size"] % sam["patch_size"] == 0,
        "the encoder's channels make whole features": 4 * sam["output_channels"] % config.feature == 0,
        "some tokens are kept, and some are worth an image": config.keep > 0 and config.render_from > 0,
    }


sizes_that_fit(MEMConfig())

# %% [markdown] lang="en"
# What such a check would need to ask is whether the *data* ever reach `proj` with this configuration: you will come to that below. And a deprecated call warns, and does what it always did. Here it is the scaler of mixed precision, for one:

# %% [markdown] lang="zh" of="f7fd8b70"
# 这样的检查真正该问的是：在这份配置下，*数据*到底会不会走到 `proj`？后面会讲到。而弃用的接口会给出警告，做的事情还和从前一样。以混合精度的 GradScaler 为例：

# %%
def gradient(scaler):
    torch.manual_seed(0)
    layer = torch.nn.Linear(2, 1)
    scaler.scale(layer(torch.ones(1, 2)).sum()).backward()
    return layer.weight.grad


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    old = gradient(torch.cuda.amp.GradScaler(enabled=False))
new = gradient(torch.amp.GradScaler("cuda", enabled=False))
[one.category.__name__ for one in caught], torch.equal(old, new)

# %% [markdown] lang="en"
# ## The diagnosis
#
# gradkit names the same thing for the program before the attempts and after each of them. None of the attempts came near it:

# %% [markdown] lang="zh" of="8e27f83c"
# ## 诊断
#
# 无论是最初的版本还是任何一次尝试，gradkit 指出的都是同一件事，三次尝试都没有碰到它：

# %%
model, step = programs.make("never_called")
gradkit.diagnose(step, model=model)

# %%
for name in ("attempt_1", "attempt_2", "attempt_3"):
    model, step = programs.make(name)
    (finding,) = gradkit.diagnose(step, model=model).findings
    print(name, finding.cause, finding.location.text.strip())

# %% [markdown] lang="en"
# `proj` is never called in this step, and the last note names the condition: there must be at least `render_from` tokens before the last `keep`. How long are the texts?

# %% [markdown] lang="zh" of="16f8f2da"
# 这一步根本没有调用 `proj`，最后一条说明指出了条件：最后 `keep` 个词元之前，至少还要有 `render_from` 个词元。这些文本有多长？

# %%
config = reported.config
needed = config.keep + config.render_from
needed, [[len(tokens) for tokens in batch] for batch in batches(NOTES)]

# %% [markdown] lang="en"
# None of the first batch is long enough. So the step runs the frozen embedding and the frozen base model and nothing else. A frozen embedding returns values without a history, and nothing trainable comes in later:

# %% [markdown] lang="zh" of="ee2c6de9"
# 第一批没有一段够长。于是这一步只运行了冻结的嵌入层和冻结的基座模型。冻结的嵌入层给出的数值没有计算历史，后面也没有任何可训练的部分参与进来：

# %%
[reported.embed(tokens)[0].requires_grad for batch in batches(NOTES) for tokens in batch]

# %% [markdown] lang="en"
# ## The cure
#
# From a text without an image, `proj` cannot learn anything. So leave such texts out, and leave the model as it is: `no_grad`, padding and `eval()` are all still there.

# %% [markdown] lang="zh" of="941404b8"
# ## 真正的修复
#
# 没有图像的文本，`proj` 从中什么也学不到。所以只要去掉这样的文本，模型一行都不用改：`no_grad`、填充和 `eval()` 都原样保留。

# %%


source(worth_an_image)

# %%
fixed, long = programs.build(MEMModel), worth_an_image(NOTES, config)
verify_gradient_flow(fixed, batches(long)[0])

# %%
before_training = {name: parameter.clone() for name, parameter in fixed.named_parameters()}
losses = train(fixed, long, epochs=5)

# %% [markdown] lang="en"
# Three things show that it trains: the loss falls, all of `proj` has moved, and nothing else has. (Of a step of your own, `gradkit verify train.py:step --steps 5` shows the same three, and its exit status tells a CI.)

# %% [markdown] lang="zh" of="23a64f0e"
# 三件事说明它在训练：损失在下降，`proj` 的参数全都变了，其余的一个也没变。（对你自己的训练步，`gradkit verify train.py:step --steps 5` 会显示同样的三件事，并用退出状态告诉 CI。）

# %%
moved = [name for name, parameter in fixed.named_parameters() if not torch.equal(parameter, before_training[name])]
losses[-1] < losses[0], moved

# %% [markdown] lang="en"
# One long text in a batch is enough for the step to run: the batch of all eight texts is sound as well. gradkit lists the suspects as looked at and harmless:

# %% [markdown] lang="zh" of="6aa2b2ff"
# 一批里只要有一段够长的文本，这一步就能运行：八段放在一起的那一批也没有问题。gradkit 把几个嫌疑对象列为“查看过，无害”：

# %%
report = gradkit.diagnose(lambda: fixed(everything).loss, model=fixed)
report

# %% [markdown] lang="en"
# The original report checks its code with `grep`: no `torch.no_grad`, and `requires_grad=False` nowhere but where parameters are frozen. A search can tell where such a line stands, but not whether it does harm. `gradkit.scan` lists them too, and, given a step, says of each what the diagnosis knows:

# %% [markdown] lang="zh" of="ed3546d4"
# 最初的报告用 `grep` 检查代码：不该再有 `torch.no_grad`，`requires_grad=False` 只许出现在冻结参数的地方。搜索能告诉你这些写法在哪里，却不知道是否有害。`gradkit.scan` 同样会逐一列出；再给它一个 step，它就会按诊断的结果说明每一处有没有害：

# %%
gradkit.scan(inspect.getsourcefile(MEMModel), lambda: fixed(everything).loss, model=fixed)

# %% [markdown] lang="en"
# ## Where `no_grad` and `detach` do cut
#
# The suspicion was not foolish. Three small changes to the program that trains, and each one breaks it: the block takes in one more line; the block is put around the base model, which is just as frozen as the encoder, but stands *behind* `proj`; the store hands back the copy that it keeps.

# %% [markdown] lang="zh" of="8c30f805"
# ## `no_grad` 和 `detach` 真正会切断梯度的地方
#
# 这样怀疑并不离谱。对能训练的程序做三处小改动，每一处都会弄坏它：`no_grad` 块多包进一行；块套在基座模型外面，基座模型和编码器一样是冻结的，但它位于 `proj` *之后*；存储交回来的，是它自己留下的那份副本。

# %%
source(attempts.NoGradTooWide, attempts.NoGradRoundLLM, attempts.DetachingStore)

# %%
for name in ("no_grad_too_wide", "no_grad_round_llm", "detached"):
    model, step = programs.make(name)
    (finding,) = gradkit.diagnose(step, model=model).findings
    print(f"{name}: {finding.cause}, {finding.proof}, in {finding.location.function}: {finding.location.text.strip()}")

# %%
model, step = programs.make("no_grad_round_llm")
gradkit.diagnose(step, model=model)

# %% [markdown] lang="en"
# So ask of every `no_grad` and `detach` on the way: **does anything that should train stand before it, or inside it?** Frozen means that a weight does not change. It does not mean that no gradient has to pass through.
#
# ## What the parameter count can tell, and what it cannot

# %% [markdown] lang="zh" of="2917c1ac"
# 所以，对途中的每一个 `no_grad` 和 `detach` 都要问：**它之前，或者它里面，有没有应当训练的东西？** 冻结是说权重不变，并不是说梯度不必从这里经过。
#
# ## 参数统计能说明什么，不能说明什么

# %%
reported.print_trainable_parameters()

# %% [markdown] lang="en"
# This is the same before and after the cure: whether parameters *may* be trained says nothing of whether this batch reaches them. It does find a part that somebody forgot to freeze, or froze by mistake:

# %% [markdown] lang="zh" of="5ba1ab73"
# 修复前后，这份统计都一样：参数*可以*训练，不等于这一批数据会用到它们。不过，忘了冻结或者误冻结的部分，它查得出来：

# %%
careless = programs.build(MEMModel)
careless.ocr_embed.norm.requires_grad_(True)
careless.proj.requires_grad_(False)
careless.print_trainable_parameters()

# %% [markdown] lang="en"
# The run in the report was larger, and its numbers are printed there. On the `meta` device tensors have a shape and no memory, so the same program can be built in that size: Qwen3-8B, SAM's encoder of base size, the blocks of CLIP's large one, and a projection of two layers. The report does not say what its parts were; this combination matches its numbers to the last parameter.

# %% [markdown] lang="zh" of="18ba4829"
# 报告中的那次训练规模更大，并且给出了参数量。`meta` 设备上的张量只有形状、不占内存，因此同一个程序可以按那个规模搭出来：Qwen3-8B、SAM 的 base 规格编码器、CLIP 的 large 规格编码块，以及两层的投影。报告没有说明各部分用的是什么；这样组合起来，参数量与报告分毫不差。

# %%
with torch.device("meta"):
    large = MEMModel(MEMConfig.reported(), PageStore()).train()
large.print_trainable_parameters()

# %%
{name: f"{sum(p.numel() for p in part.parameters()):,}" for name, part in large.named_children()}

# %% [markdown] lang="en"
# A gradient that has no way to go is the same at any size. The diagnosis needs no weights either:

# %% [markdown] lang="zh" of="913c217d"
# 梯度无路可走，与规模大小无关。诊断也用不着权重：

# %%
print(gradkit.diagnose(lambda: large(first).loss, model=large).verdict())

# %% [markdown] lang="en"
# ## What to take away
#
# | said | seen here |
# | --- | --- |
# | Freeze by `requires_grad=False` on parameters. | Right; and check it with the breakdown. |
# | Verify loss, `grad_fn`, backward and the gradient of `proj` before a long run. | Right: it stops every broken program here. On the batch that you train on! |
# | `grep` for `no_grad` and `requires_grad=False` to see that the code is right. | It finds the lines, the harmless ones too. `gradkit.scan` with a step tells them apart. |
# | Never use `no_grad` on the way forward. | Not behind what should train, nor round it. Before it, it does no harm. |
# | A tensor with `requires_grad=False` in `cat` loses the gradient of the others. | It does not: one input that requires grad is enough. |
# | Frozen parts must be in `train()`, `eval()` disconnects the graph. | It does not. `eval()` keeps frozen parts free of noise. |
# | A frozen embedding returns tensors with a `grad_fn`. | It does not, and that does no harm as long as `proj` takes part. |
#
# In a terminal:
#
# ```sh
# python -m gradkit.cases.vision_memory --attempt 1          # 0 to 3
# python -m gradkit.cases.vision_memory --program fixed      # or detached, no_grad_too_wide, no_grad_round_llm
# python -m gradkit.cases.vision_memory --program fixed --verify
# python -m gradkit.cases.vision_memory --compare
# python -m gradkit.cases.vision_memory --counts
# ```

# %% [markdown] lang="zh" of="e3c6a595"
# ## 小结
#
# | 说法 | 这里看到的 |
# | --- | --- |
# | 要冻结，就把参数设成 `requires_grad=False`。 | 对；再用分项统计核对一遍。 |
# | 长时间训练之前，先检查损失、`grad_fn`、反向传播和 `proj` 的梯度。 | 对：这里每个坏掉的程序都会被它拦下。但要用真正训练的那批数据！ |
# | 用 `grep` 搜索 `no_grad` 和 `requires_grad=False`，就能确认代码没有问题。 | 它只找得到这些行，无害的也包括在内。给 `gradkit.scan` 一个 step，才分得清哪些有害。 |
# | 前向传播里绝不要用 `no_grad`。 | 不要放在应当训练的部分之后，也不要把它包进去。放在它之前则无妨。 |
# | 拼接时只要有一个张量是 `requires_grad=False`，其余张量的梯度也会丢。 | 不会：有一个输入需要梯度就够了。 |
# | 冻结的部分必须处于 `train()`，`eval()` 会断开计算图。 | 不会。`eval()` 让冻结的部分没有噪声。 |
# | 冻结的嵌入层给出的张量有 `grad_fn`。 | 没有；只要 `proj` 参与了计算，这也无妨。 |
#
# 在终端里：
#
# ```sh
# python -m gradkit.cases.vision_memory --attempt 1          # 0 到 3
# python -m gradkit.cases.vision_memory --program fixed      # 或 detached、no_grad_too_wide、no_grad_round_llm
# python -m gradkit.cases.vision_memory --program fixed --verify
# python -m gradkit.cases.vision_memory --compare
# python -m gradkit.cases.vision_memory --counts
# ```
