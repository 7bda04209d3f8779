import torch
import torch.nn as nn

TITLE = "'only optimise LoRA' with a module name of another architecture: nothing is converted, all is frozen"
SOURCE = "deepspeedai/DeepSpeed#3339"
ERROR = "element 0 of tensors does not require grad"
CAUSE = "frozen_all"
SHOULD_TRAIN = None


class LoraLinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_right, self.lora_left = nn.Linear(12, 2, bias=False), nn.Linear(2, 12, bias=False)

    def forward(self, x):
        return self.base(x) + self.lora_left(self.lora_right(x))


class Bloom(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(20, 12)
        self.h = nn.ModuleList(nn.ModuleDict({"dense": nn.Linear(12, 12)}) for _ in range(2))
        self.lm_head = nn.Linear(12, 20)

    def forward(self, ids):
        x = self.word_embeddings(ids)
        for layer in self.h:
            x = torch.relu(layer["dense"](x))
        return self.lm_head(x)


def convert(model, lora_module_name):
    for parent_name, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and lora_module_name in f"{parent_name}.{name}":
                parent[name] = LoraLinear(child)
    for name, p in model.named_parameters():
        p.requires_grad = "lora_" in name
    return model


def build():
    return convert(Bloom(), "decoder.layers.")  # CUT


def build_fixed():
    return convert(Bloom(), "h.")


def _program(build):
    torch.manual_seed(0)
    model, ids, y = build(), torch.randint(0, 20, (2, 4)), torch.randint(0, 20, (8,))
    return model, lambda: nn.functional.cross_entropy(model(ids).flatten(0, 1), y)


def make():
    return _program(build)


def make_fixed():
    return _program(build_fixed)
