import torch
import torch.nn as nn
from peft import LoraConfig, get_peft_model

TITLE = "two adapters of which one is active: the other has no gradient, as it should"
SOURCE = "huggingface/peft#2807"
ERROR = ""
CAUSE = "healthy"
SHOULD_TRAIN = ["base_model.model.up.lora_A.second.weight", "base_model.model.up.lora_B.second.weight"]


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.head = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        return self.head(torch.relu(self.up(x)))


def make():
    cfg = LoraConfig(r=2, target_modules=["up"], init_lora_weights=False)
    model = get_peft_model(Tiny(), cfg, adapter_name="first")
    model.add_adapter("second", cfg)
    model.set_adapter("second")
    x = torch.randn(5, 6)
    return model, lambda: model(x).pow(2).mean()
