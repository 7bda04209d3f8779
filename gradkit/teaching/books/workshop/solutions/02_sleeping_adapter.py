# %% [markdown] lang="en"
# # Solution 2: an adapter that will not learn
#
# Unless it is asked for more, `PeftModel.from_pretrained` loads an adapter for use: all of its weights have `requires_grad=False`.

# %% [markdown] lang="zh" of="e1525960"
# # 练习 2 的解答：不肯学习的适配器
#
# 除非另有要求，`PeftModel.from_pretrained` 加载的适配器只供使用：所有权重都是 `requires_grad=False`。

# %% tags=["given"]
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

# %% tags=["program"]
def build():
    model = PeftModel.from_pretrained(make_base(), checkpoint.name, is_trainable=True)
    model.train()
    return model


def loss_of(model, batch):
    words, tag = batch
    return F.cross_entropy(model(words), tag)

# %%
gradkit.testing.judged("sleeping_adapter", build=build, loss_of=loss_of)

# %% [markdown] lang="en"
# Why other ways do not work:
#
# - Switching `requires_grad` on for all parameters makes the error go away, and trains the base as well: the frozen base is what the method rests on, and what keeps the memory small.
# - A new adapter from `get_peft_model` learns, but what the first run learned is lost.

# %% [markdown] lang="zh" of="8f167d75"
# 为什么别的办法不行：
#
# - 把所有参数的 `requires_grad` 都打开，报错是没了，基座却也跟着训练：这种方法正是靠冻结基座才成立，省内存也靠这一点。
# - 用 `get_peft_model` 新建的适配器能学习，但第一次训练学到的都丢了。

# %%
def build_open():
    model = PeftModel.from_pretrained(make_base(), checkpoint.name)
    model.requires_grad_(True)
    return model


gradkit.testing.judged("sleeping_adapter", build=build_open, loss_of=loss_of)

# %%
def build_new():
    return get_peft_model(make_base(), LoraConfig(r=4, target_modules=["encoder", "head"]))


gradkit.testing.judged("sleeping_adapter", build=build_new, loss_of=loss_of)
