import tempfile

import torch
import torch.nn as nn
from peft import LoraConfig, PeftModel, get_peft_model

TITLE = "GRPO-like run continued from a loaded adapter: nothing updates, backward fails or the optimizer is empty"
SOURCE = "huggingface/trl#6700"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "adapter_inference_mode"
SHOULD_TRAIN = None


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.up, self.head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)

    def forward(self, ids):
        return torch.log_softmax(self.head(torch.tanh(self.up(self.emb(ids)))), -1)


def _program(load):
    with tempfile.TemporaryDirectory() as folder:
        cfg = LoraConfig(r=2, target_modules=["up"], init_lora_weights=False)
        get_peft_model(Policy(), cfg).save_pretrained(folder)
        model = load(folder)
    ids, taken, advantage = torch.randint(0, 20, (4, 5)), torch.randint(0, 20, (4, 5)), torch.randn(4, 1)

    def step():
        logp = model(ids).gather(-1, taken[..., None])[..., 0]
        ratio = torch.exp(logp - logp.detach())
        with torch.no_grad(), model.disable_adapter():
            ref = model(ids).gather(-1, taken[..., None])[..., 0]
        kl = torch.exp(ref - logp) - (ref - logp) - 1
        return -(ratio * advantage - 0.04 * kl).mean()
    return model, step


def load(folder):
    return PeftModel.from_pretrained(Policy(), folder)  # CUT


def load_fixed(folder):
    return PeftModel.from_pretrained(Policy(), folder, is_trainable=True)


def make():
    return _program(load)


def make_fixed():
    return _program(load_fixed)
