import torch
from peft import LoraConfig, get_peft_model
from torch import nn

BELIEVED = {"adapter_gets_gradient": True}


def observe():
    model = get_peft_model(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), LoraConfig(target_modules=["0"]))
    model.base_model.disable_adapter_layers()
    model.set_adapter("default")
    head = model.base_model.model[1].requires_grad_(True)
    model(torch.ones(2, 4)).sum().backward()
    adapter = {name: p for name, p in model.named_parameters() if "lora_" in name}
    return {
        "adapter_requires_grad": all(p.requires_grad for p in adapter.values()),
        "adapter_gets_gradient": any(p.grad is not None for p in adapter.values()),
        "head_gets_gradient": head.weight.grad is not None,
    }
