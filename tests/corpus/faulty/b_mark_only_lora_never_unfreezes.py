import torch
import torch.nn as nn

TITLE = "model frozen first, then 'mark only LoRA as trainable': the marker only switches flags off"
SOURCE = "microsoft/LoRA#125"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "frozen_all"
SHOULD_TRAIN = ["enc.lora_a", "enc.lora_b"]


class LoraLinear(nn.Linear):
    def __init__(self, n, m, r=2):
        super().__init__(n, m)
        self.lora_a, self.lora_b = nn.Parameter(torch.randn(r, n)), nn.Parameter(torch.randn(m, r))

    def forward(self, x):
        return super().forward(x) + x @ self.lora_a.t() @ self.lora_b.t()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.head = LoraLinear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.relu(self.enc(x)))


def mark_only_lora(model):
    for name, p in model.named_parameters():
        if "lora_" not in name:
            p.requires_grad = False


def prepare(model):
    model.requires_grad_(False)  # CUT
    mark_only_lora(model)


def prepare_fixed(model):
    mark_only_lora(model)


def _program(prepare):
    torch.manual_seed(0)
    model, x, y = Net(), torch.randn(5, 6), torch.randint(0, 3, (5,))
    prepare(model)
    return model, lambda: nn.functional.cross_entropy(model(x), y)


def make():
    return _program(prepare)


def make_fixed():
    return _program(prepare_fixed)
