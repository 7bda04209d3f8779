import tempfile

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

BELIEVED = dict.fromkeys(["set_adapter", "enable_adapter_layers", "empty_disable_adapter_block"], 0)


def base():
    return nn.Sequential(nn.Linear(4, 4))


def empty_block(model):
    with model.disable_adapter():
        pass


def observe():
    actions = {
        "set_adapter": lambda model: model.set_adapter("default"),
        "enable_adapter_layers": lambda model: model.base_model.enable_adapter_layers(),
        "empty_disable_adapter_block": empty_block,
    }
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        get_peft_model(base(), LoraConfig(target_modules=["0"])).save_pretrained(folder)
        for name, act in actions.items():
            model = PeftModel.from_pretrained(base(), folder)
            act(model)
            seen[name] = sum(p.requires_grad for p in model.parameters())
    return seen
