import json
import tempfile
from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

BELIEVED = {"trainable_as_loaded": 0, "trainable_with_is_trainable": 2}


def base():
    return nn.Sequential(nn.Linear(4, 4))


def trainable(model):
    return sum(p.requires_grad for p in model.parameters())


def observe():
    with tempfile.TemporaryDirectory() as folder:
        get_peft_model(base(), LoraConfig(target_modules=["0"])).save_pretrained(folder)
        return {
            "saved_as_inference_mode": json.loads(Path(folder, "adapter_config.json").read_text())["inference_mode"],
            "trainable_as_loaded": trainable(PeftModel.from_pretrained(base(), folder)),
            "trainable_with_is_trainable": trainable(PeftModel.from_pretrained(base(), folder, is_trainable=True)),
        }
