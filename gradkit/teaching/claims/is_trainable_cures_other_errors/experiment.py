import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

BELIEVED = {"non_scalar_loss_works": True, "second_backward_works": True}


def works(program):
    try:
        program()
    except RuntimeError:
        return False
    return True


def observe():
    with tempfile.TemporaryDirectory() as folder:
        get_peft_model(nn.Sequential(nn.Linear(4, 4)), LoraConfig(target_modules=["0"])).save_pretrained(folder)
        model = PeftModel.from_pretrained(nn.Sequential(nn.Linear(4, 4)), folder, is_trainable=True)
    batch = torch.ones(2, 4)
    loss = model(batch).square().sum()
    loss.backward()
    return {
        "non_scalar_loss_works": works(lambda: model(batch).backward()),
        "second_backward_works": works(loss.backward),
    }
