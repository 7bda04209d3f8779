import tempfile

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

BELIEVED = {"trainable_after_train": 2}


def base():
    return nn.Sequential(nn.Linear(4, 4))


def trainable(model):
    return sum(p.requires_grad for p in model.parameters())


def observe():
    with tempfile.TemporaryDirectory() as folder:
        get_peft_model(base(), LoraConfig(target_modules=["0"])).save_pretrained(folder)
        model = PeftModel.from_pretrained(base(), folder)
    seen = {"trainable_after_train": trainable(model.train())}
    model.set_adapter("default")
    seen["trainable_after_set_adapter"] = trainable(model)
    return seen
