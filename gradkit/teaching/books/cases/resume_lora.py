# %% [markdown] lang="en"
# # Resuming a LoRA run: the checkpoint that would not learn
#
# A language model is being fine-tuned with LoRA. The run stopped, its adapter is saved, and the next command is to go on from there:
#
# ```sh
# python train_resume.py --resume_from runs/first --output_dir runs/second --epochs 5 --learning_rate 5e-5
# ```
#
# It ends at the first step: `element 0 of tensors does not require grad and does not have a grad_fn`. The person who met this found the cause and the cure, and both are right. They also wrote down what else the cure would solve. In this notebook you run the program as it was, then what does not help, then the cure, and you find out how far the cure reaches.
#
# The base model is a Qwen3 in miniature: random weights, a byte is a token, and it is trained on a few paragraphs about tide pools.

# %% [markdown] lang="zh" of="1924cf02"
# # 续训 LoRA：加载回来却学不动的检查点
#
# 用 LoRA 微调一个语言模型。训练中断过，适配器已经保存，接下来要从那里继续：
#
# ```sh
# python train_resume.py --resume_from runs/first --output_dir runs/second --epochs 5 --learning_rate 5e-5
# ```
#
# 第一步就停了：`element 0 of tensors does not require grad and does not have a grad_fn`。遇到它的人找到了原因，也找到了修复方法，两样都对；他还写下了这个修复另外能解决哪些问题。这个 notebook 会先后运行最初的程序、那些没有用的办法和真正的修复，再看看它究竟能管到哪里。
#
# 基座模型是微缩版的 Qwen3：权重随机，一个字节就是一个词元，训练文本是几段关于潮池的文字。

# %%
import inspect
import json
import shutil
import tempfile
import warnings
from pathlib import Path

import torch
from IPython.display import Code
from transformers.utils import logging

import gradkit
from gradkit.cases import resume_lora
from gradkit.cases import resume_lora_optimizer

logging.disable_progress_bar()
warnings.simplefilter("ignore", FutureWarning)


def source(*things):
    return Code("\n\n".join(inspect.getsource(thing).strip("\n") for thing in things), language="python")


def run(*arguments):
    try:
        resume_lora.main([str(argument) for argument in arguments])
    except (RuntimeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")


source(resume_lora.load_checkpoint, resume_lora.train)

# %% [markdown] lang="en"
# ## As it was reported
#
# This is how the checkpoint is loaded, and how the model is trained. Without `--resume_from` the program makes a first run for you, two steps long, and resumes that:

# %% [markdown] lang="zh" of="fe71404e"
# ## 最初的程序
#
# 上面是加载检查点和训练的代码。不写 `--resume_from` 时，程序会先自己跑两步作为第一次训练，再从它的检查点继续：

# %%
run()

# %% [markdown] lang="en"
# Before the error there is a line that says it all: none of the parameters is trainable. Which line of the code above caused it? Ask gradkit; a step is one forward pass that returns the loss.

# %% [markdown] lang="zh" of="2d919b03"
# 报错之前，有一行输出已经说明了一切：没有任何参数可以训练。是上面哪一行代码造成的？问问 gradkit；一个 step 就是一次返回损失的前向传播。

# %%
model, step = resume_lora.make("broken")
gradkit.diagnose(step, model=model)

# %% [markdown] lang="en"
# The adapter was trainable when it was made. `from_pretrained` takes what it loads to be for inference, and freezes it, unless you pass `is_trainable=True`. Saving also notes `inference_mode`, in a file that you can read; but `from_pretrained` sets that value itself, so an adapter whose file says `false` is frozen as well:

# %% [markdown] lang="zh" of="4c1d71da"
# 适配器刚创建时是可以训练的。`from_pretrained` 默认加载是为了推理，所以不写 `is_trainable=True` 就会冻结权重。保存时也会记下 `inference_mode`，就在一个可以打开看的文件里；但 `from_pretrained` 会自己设置这个值，所以哪怕文件里写的是 `false`，加载得到的适配器照样是冻结的：

# %%
config = Path(model.peft_config["default"].base_model_name_or_path).parent / "adapter" / "adapter_config.json"
saved = json.loads(config.read_text())
with tempfile.TemporaryDirectory() as folder:
    shutil.copytree(config.parent, folder, dirs_exist_ok=True)
    Path(folder, config.name).write_text(json.dumps({**saved, "inference_mode": False}))
    other = resume_lora.load_checkpoint(config.parent.parent / "base", folder)
saved["inference_mode"], other.get_nb_trainable_parameters()[0]

# %% [markdown] lang="en"
# ## What does not help
#
# *`model.train()`* is in the program already. It sets the mode of the layers, which dropout looks at. The flags of the parameters are another matter:

# %% [markdown] lang="zh" of="902828b2"
# ## 没有用的办法
#
# *`model.train()`*：程序里本来就有。它设置的是层的模式，dropout 会看这个；参数的标志是另一回事：

# %%
for mode in (True, False):
    model.train(mode)
    print(f"{model.training=}", any(parameter.requires_grad for parameter in model.parameters()))

# %% [markdown] lang="en"
# *Make the error go away.* Two pieces of advice do so. One lets the embedding return tensors that require grad, the other puts the flag on the loss:

# %% [markdown] lang="zh" of="b1d4ad62"
# *想办法让报错消失*。有两条建议做得到。一条让嵌入层的输出需要梯度，另一条直接给损失加上标志：

# %%
source(resume_lora.load_checkpoint_input_grads, resume_lora.compute_loss_with_flag)

# %%
run("--program", "input_grads")
run("--program", "loss_flag")

# %% [markdown] lang="en"
# No error any more. But look at the loss: it is the same before and after. Backward runs now, from the loss to a tensor that nobody trains. gradkit is not taken in:

# %% [markdown] lang="zh" of="e81a0c7b"
# 不报错了，可是看看损失：训练前后一模一样。现在反向传播确实在运行，但只是从损失走到一个没有人训练的张量。这骗不过 gradkit：

# %%
for program in ("input_grads", "loss_flag"):
    model, step = resume_lora.make(program)
    print(gradkit.diagnose(step, model=model).verdict())

# %% [markdown] lang="en"
# (Letting the embeddings require grad has its use: with gradient checkpointing of the reentrant kind and a *trainable* adapter. It unfreezes nothing.)
#
# ## The cure
#
# Ask for an adapter that can be trained, as the report does:

# %% [markdown] lang="zh" of="a0b48dda"
# （让嵌入层的输出需要梯度，自有用处：适配器*可训练*、又用了可重入的激活检查点时，就用得上。它并不解冻任何参数。）
#
# ## 修复
#
# 和报告里一样，加载时声明要训练：

# %%
source(resume_lora.load_checkpoint_fixed)

# %%
run("--fixed")

# %%
model, step = resume_lora.make_fixed()
gradkit.diagnose(step, model=model)

# %% [markdown] lang="en"
# And as two commands, the way the program is used: begin a run, then resume it. The second begins at the loss where the first one stopped, and the loss goes on falling.

# %% [markdown] lang="zh" of="a4e5c3c9"
# 再按平时的用法分成两条命令：先开始一次训练，再从它继续。第二次从第一次停下时的损失开始，并且继续下降。

# %%
with tempfile.TemporaryDirectory() as folder:
    first, second = Path(folder) / "first", Path(folder) / "second"
    run("--fresh", "--output_dir", first, "--epochs", 3)
    run("--fixed", "--resume_from", first, "--output_dir", second, "--epochs", 3)

# %% [markdown] lang="en"
# ## Must the optimizer be saved as well?
#
# peft saves the adapter, and nothing of the optimizer. The gradient does not need it: everything up to here would be the same without it. What about the training? Below, one run is stopped after six epochs and goes on in three ways: as if it had never stopped, resumed with the saved state of AdamW, and resumed with a new AdamW. `first step` is how far the weights move in the first step; then the loss before it, and after every step.

# %% [markdown] lang="zh" of="0b37561c"
# ## 优化器的状态也要保存吗？
#
# peft 只保存适配器，不保存优化器。梯度并不需要它：前面的结果，有没有它都一样。那么训练本身呢？下面让一次训练在六轮之后停下，再用三种方式继续：当作没有停过；加载保存下来的 AdamW 状态；换一个新的 AdamW。`first step` 是第一步里权重移动的距离，后面依次是这一步之前的损失，以及每一步之后的损失。

# %%
resume_lora_optimizer.main(["--first_epochs", "6"])

# %% [markdown] lang="en"
# With the saved state (and the random numbers, for dropout) the run goes on as if nothing had happened, to the last digit. A new AdamW knows nothing of the gradients so far, and its first step moves *every* weight by the whole learning rate: the longest step that it can take. The loss jumps, and the run needs a while to come back to where it was. The longer the run before, the smaller its steps had become:

# %% [markdown] lang="zh" of="3caabcc2"
# 有了保存的状态（还有 dropout 用的随机数状态），训练就像什么都没发生过一样继续，每一位数字都相同。新的 AdamW 对之前的梯度一无所知，第一步让*每个*权重都移动整整一个学习率：这是它能走的最大的一步。损失会跳上去，要过一阵才能回到原处。之前训练得越久，原来的步子就已经变得越小：

# %%
for epochs in (1, 12):
    print(f"{epochs=}")
    resume_lora_optimizer.main(["--first_epochs", str(epochs), "--steps", "3"])

# %%
learning_rate, trained = 1e-2, model.get_nb_trainable_parameters()[0]
learning_rate * trained**0.5

# %% [markdown] lang="en"
# That number is the first step of a new optimizer, whatever came before. So: after a run of some length save the optimizer, or warm the learning rate up again; after a very short one it makes little difference. One thing to know: a saved state brings its learning rate along. This program sets the one of the command again after loading.

# %% [markdown] lang="zh" of="185256dd"
# 不管之前训练了多久，新优化器的第一步都是这个数。所以：训练了一段时间之后，要么保存优化器，要么重新预热学习率；如果之前只训练了很短时间，差别不大。还有一点：保存的状态里带着学习率。这个程序加载之后，会重新设成命令里给的值。

# %%
source(resume_lora.load_optimizer)

# %% [markdown] lang="en"
# ## The related errors
#
# The report adds that the cure settles two more errors, and any that has to do with gradients while resuming. One message does belong to it. Whoever gives the optimizer only what is trainable is stopped a little earlier:

# %% [markdown] lang="zh" of="b7a370bb"
# ## “相关的错误”
#
# 报告还说，这个修复能顺带解决另外两种错误，以及续训时一切与梯度有关的错误。有一条报错信息确实属于它：如果只把可训练的参数交给优化器，会停得更早一点：

# %%
frozen, _ = resume_lora.make("broken")
try:
    torch.optim.AdamW([parameter for parameter in frozen.parameters() if parameter.requires_grad])
except ValueError as error:
    print(f"ValueError: {error}")

# %% [markdown] lang="en"
# The two errors that it names are faults of their own. Here they are, although the adapter is loaded in the right way (see the line of trainable parameters):

# %% [markdown] lang="zh" of="847e97da"
# 报告点名的那两种，则另有毛病。下面两个程序都已经用正确的方式加载了适配器（看可训练参数那一行），它们照样出现：

# %%
run("--program", "loss_per_token")

# %%
run("--program", "running_loss")

# %% [markdown] lang="en"
# The first keeps a loss for every token and never takes their mean. The second smooths the loss over the steps, with a graph in it that has been used up. gradkit names the line of each (the second program fails only at its second step, so one step is taken first):

# %% [markdown] lang="zh" of="c72c634e"
# 第一个程序给每个词元都留了一个损失，始终没有取平均。第二个程序在各步之间平滑损失，把已经用掉的计算图也带了过来。gradkit 分别指出了那一行（第二个程序到第二步才出错，所以先走一步）：

# %%
model, step = resume_lora.make("loss_per_token")
gradkit.diagnose(step, model=model)

# %%
model, step = resume_lora.make("running_loss")
step().backward()
gradkit.diagnose(step, model=model)

# %% [markdown] lang="en"
# ## What to take away
#
# | said | seen here |
# | --- | --- |
# | `PeftModel.from_pretrained` loads an adapter for inference; `is_trainable=True` is the cure. | Right for LoRA, and it is the whole cure. A tuned prompt is loaded trainable, and refuses the argument. |
# | Look at the line of trainable parameters: it must not say 0. | Right, and it costs nothing: print it at every start. (The 2,621,440 of 603,979,776 in the report cannot be checked: it names neither the base model nor the rank.) |
# | Call `model.train()` as well. | For dropout, yes. It unfreezes nothing. |
# | The cure settles "scalar outputs" and "backward a second time", too. | It does not: each has a line of its own. |
# | Half precision wherever there is CUDA. | With `float16` you need a gradient scaler, too; this program takes `bfloat16`. The notebook `device_aware_amp` tells more. |
# | Load the base with `device_map`, `low_cpu_mem_usage`, `trust_remote_code`. | These say where its weights go, how they get there, and whose code runs. What trains is decided elsewhere: with `device_map` the adapter is frozen and cured alike. |
#
# In a terminal:
#
# ```sh
# python -m gradkit.cases.resume_lora                      # as it was reported
# python -m gradkit.cases.resume_lora --fixed
# python -m gradkit.cases.resume_lora --fresh --output_dir runs/first --model_name qwen3-small
# python -m gradkit.cases.resume_lora --fixed --resume_from runs/first --output_dir runs/second --model_name qwen3-small
# python -m gradkit.cases.resume_lora --program loss_flag  # or input_grads, loss_per_token, running_loss
# python -m gradkit.cases.resume_lora_optimizer
# gradkit guide adapter_inference_mode
# ```

# %% [markdown] lang="zh" of="6ede4a2e"
# ## 小结
#
# | 说法 | 这里看到的 |
# | --- | --- |
# | `PeftModel.from_pretrained` 默认以推理方式加载适配器，`is_trainable=True` 可以修复。 | 对 LoRA 来说没错，而且这就是全部的修复。提示类适配器加载后本来就可训练，也不接受这个参数。 |
# | 看可训练参数那一行，不能是 0。 | 对，而且毫不费事：每次启动都打印出来。（报告里的 2,621,440 / 603,979,776 无从核对：它没有写明基座模型，也没有写明 LoRA 的秩。） |
# | 还要调用 `model.train()`。 | 要，但那是为了 dropout，并不解冻任何参数。 |
# | 这个修复也能解决“标量输出”和“第二次反向传播”的报错。 | 不能：它们各有出错的那一行。 |
# | 有 CUDA 就用半精度。 | 用 `float16` 训练还需要梯度缩放器；这个程序用的是 `bfloat16`。详见 `device_aware_amp` 这份 notebook。 |
# | 加载基座时用 `device_map`、`low_cpu_mem_usage`、`trust_remote_code`。 | 它们只管权重放在哪里、怎样放进去、运行谁的代码，不管训练什么：用了 `device_map`，适配器照样是冻结的，修复的办法也一样。 |
#
# 在终端里：
#
# ```sh
# python -m gradkit.cases.resume_lora                      # 最初的程序
# python -m gradkit.cases.resume_lora --fixed
# python -m gradkit.cases.resume_lora --fresh --output_dir runs/first --model_name qwen3-small
# python -m gradkit.cases.resume_lora --fixed --resume_from runs/first --output_dir runs/second --model_name qwen3-small
# python -m gradkit.cases.resume_lora --program loss_flag  # 或 input_grads、loss_per_token、running_loss
# python -m gradkit.cases.resume_lora_optimizer
# gradkit guide adapter_inference_mode
# ```
